//! What goes wrong at present, and what has struck so far.
//!
//! While there are faults, each call asks the weather; when the scenario's time is over, the weather
//! is calm for good, and what is left must come right.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::dice::Dice;
use crate::scenario::Rates;

/// The rates of a world, and the faults that struck.
#[derive(Debug)]
pub struct Weather {
    rates: Rates,
    calm: AtomicBool,
    struck: Mutex<BTreeMap<&'static str, u64>>,
}

impl Weather {
    /// The weather of a scenario.
    pub fn new(rates: Rates) -> Weather {
        Weather { rates, calm: AtomicBool::new(false), struck: Mutex::default() }
    }

    /// From now on nothing strikes.
    pub fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// Whether the faults are over.
    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// Draws whether a fault strikes now, and counts it if so.
    pub fn strikes(
        &self,
        dice: &mut Dice,
        name: &'static str,
        rate: impl Fn(&Rates) -> u32,
    ) -> bool {
        let rate = rate(&self.rates);
        if rate == 0 || self.is_calm() || !dice.chance(rate) {
            return false;
        }
        self.count(name);
        true
    }

    /// A fault struck.
    pub fn count(&self, name: &'static str) {
        *self.struck.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
    }

    /// What struck so far, by name.
    pub fn struck(&self) -> BTreeMap<&'static str, u64> {
        self.struck.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
