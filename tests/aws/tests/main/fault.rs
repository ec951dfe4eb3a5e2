//! What happens to the parts of the way, in an order that a seed decides.
//!
//! Invariant: each fault is struck at least once, whatever the seed. The servers themselves are other tests' as
//! well and stay; the line to them is cut instead.

/// Whom it happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A relay is killed, and another one started.
    RelayKilled,
    /// A relay stands still for longer than its lease.
    RelayStopped,
    /// A consumer is killed, and another one started.
    ConsumerKilled,
    /// A consumer stands still for longer than what it holds is hidden.
    ConsumerStopped,
    /// DynamoDB is away, for everybody.
    TablesCut,
    /// SQS is away, for everybody.
    QueueCut,
    /// The queue has some events twice.
    Copied,
}

impl Fault {
    pub(crate) const ALL: [Fault; 7] = [
        Fault::RelayKilled,
        Fault::RelayStopped,
        Fault::ConsumerKilled,
        Fault::ConsumerStopped,
        Fault::TablesCut,
        Fault::QueueCut,
        Fault::Copied,
    ];
}

/// Numbers that follow from a seed (SplitMix64).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Of `POSTRIDER_TEST_SEED`, or of the clock.
    pub(crate) fn from_environment() -> (Dice, u64) {
        let given = std::env::var("POSTRIDER_TEST_SEED").ok();
        let seed = given.map_or_else(
            || {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                u64::from(now.unwrap().subsec_nanos())
            },
            |text| text.parse().expect("POSTRIDER_TEST_SEED is a number"),
        );
        (Dice(seed), seed)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("it is below a usize")
    }

    /// All faults, in an order of their own.
    pub(crate) fn plan(&mut self) -> Vec<Fault> {
        let mut left = Fault::ALL.to_vec();
        let mut plan = Vec::new();
        while !left.is_empty() {
            plan.push(left.swap_remove(self.below(left.len())));
        }
        plan
    }
}

/// The same seed gives the same plan, and each plan has everything.
#[test]
fn a_seed_decides_the_plan() {
    for seed in 0..100 {
        let mut plan = Dice(seed).plan();
        assert_eq!(plan, Dice(seed).plan());
        plan.sort();
        assert_eq!(plan, Fault::ALL);
    }
}
