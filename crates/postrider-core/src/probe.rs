//! Hooks for the simulator: planted bugs, and which states and transitions a run has reached.
//!
//! They exist only where everything is built with `--cfg postrider_sim`, as `cargo x sim` does. In
//! any other build [`planted!`](crate::planted) is the constant `false`, and
//! [`reach!`](crate::reach) is nothing: what users run has neither the bugs nor the bookkeeping.
//!
//! A planted bug shows that the simulator would have found it: a checker that never failed proves
//! nothing. Both are kept by thread, so that worlds on several threads do not see each other.

/// Whether a bug is planted in this thread's world. Constantly false outside the simulator.
///
/// ```
/// assert!(!postrider_core::planted!(SettleBeforeAck));
/// ```
#[cfg(postrider_sim)]
#[macro_export]
macro_rules! planted {
    ($mutant:ident) => {
        $crate::probe::is_planted($crate::probe::Mutant::$mutant)
    };
}

/// Whether a bug is planted in this thread's world. Constantly false outside the simulator.
///
/// ```
/// assert!(!postrider_core::planted!(SettleBeforeAck));
/// ```
#[cfg(not(postrider_sim))]
#[macro_export]
macro_rules! planted {
    ($mutant:ident) => {
        false
    };
}

/// Counts that a state or a transition was reached, always or if something holds. Nothing outside
/// the simulator.
#[cfg(postrider_sim)]
#[macro_export]
macro_rules! reach {
    ($spot:ident) => {
        $crate::probe::reached($crate::probe::Spot::$spot)
    };
    ($spot:ident, if $reached:expr) => {
        if $reached {
            $crate::probe::reached($crate::probe::Spot::$spot)
        }
    };
}

/// Counts that a state or a transition was reached, always or if something holds. Nothing outside
/// the simulator.
#[cfg(not(postrider_sim))]
#[macro_export]
macro_rules! reach {
    ($spot:ident) => {};
    ($spot:ident, if $reached:expr) => {};
}

#[cfg(postrider_sim)]
pub use kept::{is_planted, plant, reached, take_reached};
#[cfg(postrider_sim)]
pub use mutant::Mutant;
#[cfg(postrider_sim)]
pub use spot::Spot;

#[cfg(postrider_sim)]
mod mutant;
#[cfg(postrider_sim)]
mod spot;

#[cfg(postrider_sim)]
mod kept {
    use std::cell::{Cell, RefCell};

    use super::{Mutant, Spot};

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
        static REACHED: RefCell<[u64; Spot::ALL.len()]> =
            const { RefCell::new([0; Spot::ALL.len()]) };
    }

    /// Plants a bug in this thread's world, or none.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.set(mutant);
    }

    /// Whether it is planted in this thread's world.
    pub fn is_planted(mutant: Mutant) -> bool {
        PLANTED.get() == Some(mutant)
    }

    /// Counts it.
    pub fn reached(spot: Spot) {
        REACHED.with_borrow_mut(|counts| counts[spot as usize] += 1);
    }

    /// How often each was reached in this thread since this was last called.
    pub fn take_reached() -> [u64; Spot::ALL.len()] {
        REACHED.replace([0; Spot::ALL.len()])
    }
}
