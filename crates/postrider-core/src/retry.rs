//! When a failed delivery is tried again: a pure function of attempts and a random number.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often, and how far apart, one event is tried before it becomes a dead letter.
///
/// Delays grow by the factor from `delay_min` to `delay_max` and are spread by jitter, so that many
/// events that failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// Attempts that count, the first included, before giving up. Default 10: with the default
    /// delays 4 to 9 minutes, longer than most restarts of a consumer.
    pub attempts_max: u32,
    /// The delay after the first failure. Default 1 s.
    #[serde(with = "millis")]
    pub delay_min: Duration,
    /// The longest delay, also the longest `Retry-After` that is obeyed. Default 10 min.
    #[serde(with = "millis")]
    pub delay_max: Duration,
    /// The growth from one delay to the next. Default 2.
    pub factor: f64,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts_max: 10,
            delay_min: Duration::from_secs(1),
            delay_max: Duration::from_secs(600),
            factor: 2.0,
        }
    }
}

impl RetryPolicy {
    /// The delay after the given number of counted attempts (1 after the first failure), with the
    /// server's wish if it had one; `None` when it is time to give up.
    ///
    /// The jitter takes away up to half, so a delay is between half and the whole of its step.
    ///
    /// ```
    /// use std::time::Duration;
    /// use postrider_core::{Jitter, RetryPolicy};
    /// let policy = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
    /// let mut jitter = Jitter::seeded(1);
    /// let second = policy.delay(2, None, &mut jitter).unwrap();
    /// assert!(second >= Duration::from_secs(1) && second <= Duration::from_secs(2));
    /// assert_eq!(policy.delay(3, None, &mut jitter), None);
    /// ```
    pub fn delay(
        &self,
        attempts: u32,
        retry_after: Option<Duration>,
        jitter: &mut Jitter,
    ) -> Option<Duration> {
        if attempts >= self.attempts_max {
            return None;
        }
        let step = self.step(attempts);
        let share = 1.0 - 0.5 * jitter.unit();
        // The longest duration of all is rounded up as a float, and no duration any more.
        let spread = Duration::try_from_secs_f64(step.as_secs_f64() * share).unwrap_or(step);
        let wished = retry_after.unwrap_or_default();
        Some(spread.max(wished).min(self.delay_max))
    }

    /// The longest time from the first attempt to the last, if no server wishes for more and each attempt itself
    /// takes no time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use postrider_core::RetryPolicy;
    /// assert_eq!(RetryPolicy::default().span(), Duration::from_secs(511));
    /// ```
    pub fn span(&self) -> Duration {
        let mut span = Duration::ZERO;
        let last = self.attempts_max.saturating_sub(1);
        for attempt in 1..=last {
            let step = self.step(attempt);
            if step >= self.delay_max {
                let left = last - attempt + 1;
                return span.saturating_add(self.delay_max.saturating_mul(left));
            }
            span = span.saturating_add(step);
        }
        span
    }

    /// The longest delay after so many attempts, before jitter.
    fn step(&self, attempts: u32) -> Duration {
        let exponent = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        // Finite, so that no delay times any growth stays no delay.
        let growth = self.factor.max(1.0).powi(exponent).min(f64::MAX);
        let seconds = self.delay_min.as_secs_f64() * growth;
        if seconds.is_finite() && seconds < self.delay_max.as_secs_f64() {
            Duration::from_secs_f64(seconds)
        } else {
            self.delay_max
        }
    }
}

/// A small seeded generator for jitter (SplitMix64), so that the engines stay deterministic: the
/// same seed gives the same delays.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// A generator that starts at the seed.
    pub const fn seeded(seed: u64) -> Jitter {
        Jitter(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A random number from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

mod millis {
    //! Durations as whole milliseconds, in fields whose name in the store ends without a unit.
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        u64::deserialize(d).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn delays_stay_between_half_a_step_and_the_longest(
            attempts in 1u32..200, seed: u64, wish in 0u64..10_000,
        ) {
            let policy = RetryPolicy { attempts_max: 201, ..RetryPolicy::default() };
            let wish = Duration::from_secs(wish);
            let delay = policy.delay(attempts, Some(wish), &mut Jitter::seeded(seed)).unwrap();
            prop_assert!(delay <= policy.delay_max);
            prop_assert!(delay >= policy.step(attempts) / 2);
            prop_assert!(delay >= wish.min(policy.delay_max));
        }
    }
}
