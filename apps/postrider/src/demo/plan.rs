//! What the demo will do, drawn from the seed before anything happens: who orders what, and which
//! faults strike whom.
//!
//! Invariant: the same number of orders and the same seed give the same plan.

use postrider_core::Jitter;

/// Threads of the shop that take orders at once.
pub(crate) const CLERKS: usize = 3;

/// The shares in which orders are taken: the relay of shift k is there before share k begins, so
/// that every shift has something to do.
pub(crate) const SHARES: usize = 4;

/// The steps of an order's life. Each is one transaction and one event of the order's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Placed,
    Paid,
    Shipped,
}

impl Step {
    pub(crate) const ALL: [Step; 3] = [Step::Placed, Step::Paid, Step::Shipped];

    /// The type of the step's event, which is also its topic.
    pub(crate) const fn event_type(self) -> &'static str {
        match self {
            Step::Placed => "order.placed",
            Step::Paid => "order.paid",
            Step::Shipped => "order.shipped",
        }
    }
}

/// What goes wrong in the shop itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// The first transaction is rolled back: the order never existed.
    NeverPlaced,
    /// The payment is rolled back with its event, and then made anew.
    PaidAgain,
}

/// One order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Its name, the aggregate's id.
    pub(crate) id: String,
    pub(crate) customer: u64,
    pub(crate) cents: u64,
    pub(crate) share: usize,
    pub(crate) mishap: Option<Mishap>,
}

/// How a process of the relay ends, and what its broker does meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shift {
    /// Where it is killed: the point's name, and the how manieth time it is reached.
    pub(crate) kill: Option<(&'static str, u64)>,
    /// The batch that is stored while its answer is lost.
    pub(crate) lose: Option<u64>,
    /// The batch that is stored twice.
    pub(crate) double: Option<u64>,
}

impl Shift {
    const QUIET: Shift = Shift { kill: None, lose: None, double: None };
}

/// Everything that is going to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) faults: bool,
    pub(crate) orders: Vec<Order>,
    pub(crate) shifts: Vec<Shift>,
    /// The order whose payment the destination refuses for good.
    pub(crate) poison: Option<String>,
    /// The order whose mail is sent by a process that dies holding the claim.
    pub(crate) crash: Option<String>,
}

impl Plan {
    /// Draws a plan.
    pub(crate) fn draw(orders: usize, seed: u64, faults: bool) -> Plan {
        let mut dice = Dice(Jitter::seeded(seed));
        let customers = (orders as u64 / 4).max(3);
        let orders: Vec<Order> = (0..orders)
            .map(|index| Order {
                id: format!("{:05}", index + 1),
                customer: 1 + dice.below(customers),
                cents: 500 + dice.below(20_000),
                share: index * SHARES / orders,
                mishap: None,
            })
            .collect();
        let mut plan =
            Plan { seed, faults, orders, shifts: vec![Shift::QUIET], poison: None, crash: None };
        if faults {
            plan.spoil(&mut dice);
        }
        plan
    }

    /// How many transactions commit until a share is done.
    pub(crate) fn transactions_until(&self, share: usize) -> u64 {
        let commits =
            |order: &&Order| order.share <= share && order.mishap != Some(Mishap::NeverPlaced);
        (self.orders.iter().filter(commits).count() * Step::ALL.len()) as u64
    }

    fn spoil(&mut self, dice: &mut Dice) {
        // Two of the first share, so that there is time for what follows: their successors pile up
        // behind the one, and the claim on the other must expire.
        let first = self.orders.iter().take_while(|order| order.share == 0).count() as u64;
        let poison = dice.below(first) as usize;
        let crash = (poison + 1 + dice.below(first - 1) as usize) % first as usize;
        self.poison = Some(self.orders[poison].id.clone());
        self.crash = Some(self.orders[crash].id.clone());
        let last = self.orders.len() - 1;
        for (index, order) in self.orders.iter_mut().enumerate() {
            if index == poison || index == crash {
                continue;
            }
            order.mishap = match dice.below(8) {
                0 => Some(Mishap::NeverPlaced),
                1 => Some(Mishap::PaidAgain),
                _ => None,
            };
            // However few orders there are, each kind happens.
            if index == last {
                order.mishap = Some(Mishap::NeverPlaced);
            } else if index + 1 == last {
                order.mishap = Some(Mishap::PaidAgain);
            }
        }
        let kill = |point, nth| Shift { kill: Some((point, nth)), ..Shift::QUIET };
        self.shifts = vec![
            kill("after_publish", 1 + dice.below(3)),
            kill("before_publish", 1 + dice.below(2)),
            kill("before_settle", 1),
            Shift { lose: Some(1), double: Some(2), ..Shift::QUIET },
        ];
    }
}

/// A seeded generator with the one question that is asked here.
struct Dice(Jitter);

impl Dice {
    /// A number below the bound.
    fn below(&mut self, bound: u64) -> u64 {
        self.0.bits() % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_its_seed() {
        assert_eq!(Plan::draw(50, 7, true), Plan::draw(50, 7, true));
        assert_ne!(Plan::draw(50, 7, true).orders, Plan::draw(50, 8, true).orders);
    }

    #[test]
    fn every_kind_of_fault_is_planned_however_few_the_orders() {
        for seed in 0..200 {
            let plan = Plan::draw(20, seed, true);
            assert_ne!(plan.poison, plan.crash);
            for mishap in [Mishap::NeverPlaced, Mishap::PaidAgain] {
                assert!(plan.orders.iter().any(|order| order.mishap == Some(mishap)), "{seed}");
            }
            let spared = |order: &&Order| order.mishap.is_some();
            for id in [&plan.poison, &plan.crash].into_iter().flatten() {
                assert!(!plan.orders.iter().filter(spared).any(|order| order.id == *id), "{seed}");
            }
            assert_eq!(plan.orders.last().unwrap().share, SHARES - 1);
        }
    }

    #[test]
    fn without_faults_nothing_goes_wrong() {
        let plan = Plan::draw(50, 7, false);
        assert!(plan.orders.iter().all(|order| order.mishap.is_none()));
        assert!(plan.shifts.iter().all(|shift| *shift == Shift::QUIET));
        assert_eq!((plan.poison, plan.crash), (None, None));
    }
}
