//! Dice for tests that let a seed decide: which fault comes next, and whom it hits.
//!
//! Invariant: the same seed gives the same numbers and the same plan, and a plan leaves nothing out.

use std::time::{SystemTime, UNIX_EPOCH};

/// Numbers that follow from a seed (SplitMix64).
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Of a seed.
    pub fn of(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Of `POSTRIDER_TEST_SEED`, or of the clock; and the seed, to print.
    ///
    /// # Panics
    /// If the variable is no number.
    pub fn from_environment() -> (Dice, u64) {
        let given = std::env::var("POSTRIDER_TEST_SEED").ok();
        let seed = given.map_or_else(
            || {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::from(now.subsec_nanos())
            },
            |text| text.parse().expect("POSTRIDER_TEST_SEED is a number"),
        );
        (Dice(seed), seed)
    }

    /// Below `end`.
    ///
    /// # Panics
    /// If `end` is zero.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64)
            .expect("invariant: it is below a usize")
    }

    /// All of these, in an order of their own.
    pub fn plan<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        let mut left = all.to_vec();
        let mut plan = Vec::new();
        while !left.is_empty() {
            plan.push(left.swap_remove(self.below(left.len())));
        }
        plan
    }
}

/// How long rounds go on beyond their plan: `POSTRIDER_TEST_MINUTES`, or not at all.
///
/// # Panics
/// If the variable is no number.
pub fn seconds_to_go_on() -> f64 {
    let given = std::env::var("POSTRIDER_TEST_MINUTES");
    let minutes: f64 =
        given.map_or(0.0, |text| text.parse().expect("POSTRIDER_TEST_MINUTES is a number"));
    minutes * 60.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same seed gives the same plan, and each plan has everything.
    #[test]
    fn a_seed_decides_the_plan() {
        let all: Vec<u32> = (0..9).collect();
        let mut plans = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut plan = Dice::of(seed).plan(&all);
            assert_eq!(plan, Dice::of(seed).plan(&all));
            plans.insert(plan.clone());
            plan.sort_unstable();
            assert_eq!(plan, all);
        }
        assert!(plans.len() > 90, "only {} plans of 100 seeds", plans.len());
    }
}
