//! The retry schedule against a naive model: a delay that is multiplied once for each failure.
//!
//! Any policy, also one that makes no sense, and any number of attempts: an operator's configuration
//! is not the place where a relay is to panic. Schedules with a flaw each are caught.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::time::Duration;

use postrider_core::{Jitter, RetryPolicy};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

/// How an event's next delay is found.
type Schedule = fn(&RetryPolicy, u32, Option<Duration>, &mut Jitter) -> Option<Duration>;

/// A failed event: its policy, how often it failed, what the server wished at each, and the dice.
#[derive(Clone, Debug)]
struct Life {
    policy: RetryPolicy,
    /// From which number of attempts on it is looked at.
    from: u32,
    wishes: Vec<Option<Duration>>,
    seed: u64,
}

/// The seed after which the generator yields zero: the whole of a step, nothing taken away.
const NO_JITTER: u64 = 0x9E37_79B9_7F4A_7C15_u64.wrapping_neg();

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (0u64..10_000_000).prop_map(Duration::from_millis),
        1 => any::<u64>().prop_map(Duration::from_nanos),
        1 => (any::<u64>(), 0u32..1_000_000_000).prop_map(|(s, n)| Duration::new(s, n)),
        1 => Just(Duration::ZERO),
        1 => Just(Duration::MAX),
    ]
}

fn any_factor() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 1.0f64..10.0,
        1 => any::<f64>(),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(f64::MAX),
    ]
}

fn any_life() -> impl Strategy<Value = Life> {
    let attempts_max = prop_oneof![4 => 0u32..40, 1 => any::<u32>(), 1 => Just(u32::MAX)];
    let from = prop_oneof![4 => 0u32..4, 1 => any::<u32>(), 1 => Just(u32::MAX - 4)];
    let wishes = proptest::collection::vec(proptest::option::of(any_span()), 1..48);
    let seed = prop_oneof![4 => any::<u64>(), 1 => Just(NO_JITTER)];
    (attempts_max, any_span(), any_span(), any_factor(), from, wishes, seed).prop_map(
        |(attempts_max, delay_min, delay_max, factor, from, wishes, seed)| Life {
            policy: RetryPolicy { attempts_max, delay_min, delay_max, factor },
            from,
            wishes,
            seed,
        },
    )
}

/// The step after so many attempts, in seconds, as a person would reckon it; past a thousand
/// multiplications it either stands still or is at its longest.
fn naive_step(policy: &RetryPolicy, attempts: u32) -> f64 {
    let factor = if policy.factor > 1.0 { policy.factor } else { 1.0 };
    let longest = policy.delay_max.as_secs_f64();
    let mut step = policy.delay_min.as_secs_f64();
    for _ in 1..attempts.min(20_000) {
        if step >= longest || step == 0.0 || factor == 1.0 {
            break;
        }
        step *= factor;
    }
    step.min(longest)
}

/// Follows an event through its failures and compares each delay with the model.
fn follow(life: &Life, delay: Schedule) -> Result<(), TestCaseError> {
    let Life { policy, from, wishes, seed } = life;
    let mut jitter = Jitter::seeded(*seed);
    let (mut least, mut tries) = (0.0, 0u32);
    for (attempts, wish) in (*from..=u32::MAX).zip(wishes) {
        let Some(delay) = delay(policy, attempts, *wish, &mut jitter) else {
            prop_assert!(attempts >= policy.attempts_max, "gave up after {attempts} attempts");
            return Ok(());
        };
        tries += 1;
        prop_assert!(attempts < policy.attempts_max, "goes on after {attempts} attempts");
        prop_assert!(delay <= policy.delay_max, "{delay:?} is longer than the longest");
        let wished = wish.unwrap_or_default().min(policy.delay_max);
        prop_assert!(delay >= wished, "{delay:?} is earlier than the server asked for: {wished:?}");
        let (step, seconds) = (naive_step(policy, attempts), delay.as_secs_f64());
        // Floating point, and the nanosecond a duration ends with.
        let slack = step * 1e-9 + 2e-9;
        prop_assert!(seconds >= step / 2.0 - slack, "{delay:?} is under half of {step} s");
        let most = step.max(wished.as_secs_f64());
        prop_assert!(seconds <= most + most * 1e-9 + 2e-9, "{delay:?} is more than {most} s");
        prop_assert!(step >= least, "the step shrinks from {least} s to {step} s");
        least = step;
    }
    prop_assert!(tries <= policy.attempts_max.saturating_sub(*from));
    Ok(())
}

fn judge(schedule: Schedule) -> Result<(), String> {
    let config = Config { cases: 1_000, failure_persistence: None, ..Config::default() };
    let config = Config { max_shrink_iters: 512, ..config };
    TestRunner::new(config)
        .run(&any_life(), |life| follow(&life, schedule))
        .map_err(|error| error.to_string())
}

/// R093: bounded attempts, delays that grow between half a step and the longest, `Retry-After`
/// obeyed up to it; and no panic, whatever is configured.
#[test]
fn any_schedule_follows_the_model() {
    judge(|policy, attempts, wish, jitter| policy.delay(attempts, wish, jitter))
        .unwrap_or_else(|broken| panic!("{broken}"));
}

/// The ends of what can be configured, which chance may miss.
#[test]
fn the_ends_of_every_range_are_no_panic() {
    let spans = [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(600), Duration::MAX];
    for delay_min in spans {
        for delay_max in spans {
            for factor in [f64::NAN, f64::NEG_INFINITY, 0.0, 1.0, 2.0, f64::MAX, f64::INFINITY] {
                for seed in [0, 1, NO_JITTER, u64::MAX] {
                    let policy =
                        RetryPolicy { attempts_max: u32::MAX, delay_min, delay_max, factor };
                    for from in [0, 1, 2, 60, 1_020, 1_030, u32::MAX - 2] {
                        let wishes = vec![None, Some(Duration::MAX), None];
                        follow(
                            &Life { policy, from, wishes, seed },
                            |policy, attempts, wish, j| policy.delay(attempts, wish, j),
                        )
                        .unwrap();
                    }
                }
            }
        }
    }
}

/// The jitter is spread over the whole of its half, for every attempt: what failed together does not
/// come back together.
#[test]
fn jitter_fills_its_half() {
    let policy = RetryPolicy::default();
    let mut jitter = Jitter::seeded(7);
    for attempts in 1..policy.attempts_max {
        let step = naive_step(&policy, attempts);
        let mut eighths = [0u32; 8];
        for _ in 0..800 {
            let seconds = policy.delay(attempts, None, &mut jitter).unwrap().as_secs_f64();
            let share = (seconds / step - 0.5) * 2.0;
            eighths[((share * 8.0) as usize).min(7)] += 1;
        }
        assert!(eighths.iter().all(|count| (50..=150).contains(count)), "{attempts}: {eighths:?}");
    }
}

/// Each of these mistakes has been made in a schedule; the model finds every one.
#[test]
fn schedules_with_a_flaw_are_caught() {
    let flawed: [(&str, Schedule); 6] = [
        ("goes on after", |policy, attempts, wish, jitter| {
            let generous = RetryPolicy { attempts_max: u32::MAX, ..*policy };
            generous.delay(attempts, wish, jitter)
        }),
        ("gave up after|is more than", |policy, attempts, wish, jitter| {
            policy.delay(attempts.saturating_add(1), wish, jitter)
        }),
        ("longer than the longest", |policy, attempts, wish, jitter| {
            Some(policy.delay(attempts, wish, jitter)?.max(wish.unwrap_or_default()))
        }),
        ("earlier than the server asked", |policy, attempts, _, jitter| {
            policy.delay(attempts, None, jitter)
        }),
        ("under half", |policy, attempts, wish, jitter| {
            let delay = policy.delay(attempts, wish, jitter)?;
            let full = delay.mul_f64(jitter.unit().min(0.999));
            Some(full.max(wish.unwrap_or_default()).min(policy.delay_max))
        }),
        ("is more than", |policy, attempts, wish, jitter| {
            let delay = policy.delay(attempts.saturating_add(2).min(30), wish, jitter);
            (attempts < policy.attempts_max).then(|| delay.unwrap_or(policy.delay_max))
        }),
    ];
    for (mistake, schedule) in flawed {
        let broken = judge(schedule).expect_err(mistake);
        let named = mistake.split('|').any(|mistake| broken.contains(mistake));
        assert!(named, "caught for another reason than {mistake}: {broken}");
    }
}
