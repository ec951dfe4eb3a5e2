//! How a handler takes an event this time.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use postrider_core::Event;

use crate::dice::Dice;
use crate::weather::Weather;

/// What one try of a handler is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// It does what it should.
    Good,
    /// It fails half-way.
    Fails,
    /// It panics half-way.
    Panics,
    /// It works for long, and stops when it is told to.
    Slow,
    /// It works for long, and does not listen.
    Deaf,
    /// It never ends.
    Hangs,
    /// This event will never succeed.
    Refuses,
}

/// A handler's moods.
pub(super) struct Moods {
    dice: Mutex<Dice>,
}

impl Moods {
    pub(super) fn new(dice: Dice) -> Moods {
        Moods { dice: Mutex::new(dice) }
    }

    fn draw<T>(&self, from: impl FnOnce(&mut Dice) -> T) -> T {
        from(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A mood for an event, and how long it works on each half, if its lease is so long.
    pub(super) fn next(
        &self,
        event: &Event,
        weather: &Weather,
        lease: Duration,
    ) -> (Mood, Duration) {
        self.draw(|dice| {
            let bad = weather.strikes(dice, "handler_fails", |rates| rates.handler_fails);
            let mood = match dice.below(16) {
                _ if !bad => Mood::Good,
                0..=4 => Mood::Fails,
                5..=6 => Mood::Panics,
                7..=10 => Mood::Slow,
                11..=13 => Mood::Deaf,
                14 => Mood::Hangs,
                // Some events and not others: whoever refuses one refuses it again.
                _ if event.id.as_u128().is_multiple_of(5) => Mood::Refuses,
                _ => Mood::Fails,
            };
            let lease = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
            // Some work takes long, and nothing is wrong.
            let long = mood == Mood::Good && !weather.is_calm() && dice.chance(1_500);
            let most = match mood {
                _ if long => lease * 3 / 2,
                Mood::Slow | Mood::Deaf => lease * 2,
                _ => 500,
            };
            (mood, Duration::from_millis(dice.between(1, most)))
        })
    }

    /// Whether something happens that happens every second time.
    pub(super) fn coin(&self) -> bool {
        self.draw(|dice| dice.chance(5_000))
    }

    /// A number nobody else draws.
    pub(super) fn id(&self) -> u128 {
        self.draw(|dice| u128::from(dice.bits()) << 64 | u128::from(dice.bits()))
    }
}
