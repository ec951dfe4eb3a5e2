//! The faults that were planned, and how often each struck: a demo in which a fault did not happen
//! proves nothing about it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::demo::plan::{Mishap, Plan};
use crate::terminal::{self, style};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    RolledBack,
    KilledBeforePublish,
    KilledAfterPublish,
    KilledBeforeSettle,
    LostAnswer,
    Doubled,
    Poison,
    MailCrash,
}

impl Fault {
    pub(crate) const ALL: [Fault; 8] = [
        Fault::RolledBack,
        Fault::KilledBeforePublish,
        Fault::KilledAfterPublish,
        Fault::KilledBeforeSettle,
        Fault::LostAnswer,
        Fault::Doubled,
        Fault::Poison,
        Fault::MailCrash,
    ];

    /// What happened, for people.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Fault::RolledBack => "transactions rolled back with their events",
            Fault::KilledBeforePublish => "relay killed between fetch and publish",
            Fault::KilledAfterPublish => "relay killed between publish and settle",
            Fault::KilledBeforeSettle => "relay killed before it saved its cursor",
            Fault::LostAnswer => "batch stored by the broker, its answer lost",
            Fault::Doubled => "batch stored twice by the broker",
            Fault::Poison => "event refused for good by the broker",
            Fault::MailCrash => "mail handler killed while it held a claim",
        }
    }

    /// The fault of a relay that is killed at a point.
    pub(crate) fn of_point(point: &str) -> Fault {
        match point {
            "after_publish" => Fault::KilledAfterPublish,
            "before_settle" => Fault::KilledBeforeSettle,
            _ => Fault::KilledBeforePublish,
        }
    }
}

/// What was planned, and what struck.
#[derive(Debug)]
pub(crate) struct Tally {
    planned: Vec<Fault>,
    struck: Mutex<BTreeMap<Fault, u64>>,
}

impl Tally {
    /// A tally of a plan; nothing has struck yet.
    pub(crate) fn new(plan: &Plan) -> Tally {
        let killed = |point| plan.shifts.iter().any(|s| s.kill.is_some_and(|(at, _)| at == point));
        let is_planned = |fault: &Fault| match fault {
            Fault::RolledBack => {
                plan.orders.iter().any(|order| order.mishap == Some(Mishap::PaidAgain))
            }
            Fault::KilledBeforePublish => killed("before_publish"),
            Fault::KilledAfterPublish => killed("after_publish"),
            Fault::KilledBeforeSettle => killed("before_settle"),
            Fault::LostAnswer => plan.shifts.iter().any(|shift| shift.lose.is_some()),
            Fault::Doubled => plan.shifts.iter().any(|shift| shift.double.is_some()),
            Fault::Poison => plan.poison.is_some(),
            Fault::MailCrash => plan.crash.is_some(),
        };
        Tally {
            planned: Fault::ALL.into_iter().filter(is_planned).collect(),
            struck: Mutex::default(),
        }
    }

    /// A fault struck, now.
    pub(crate) fn strike(&self, fault: Fault) {
        let mut struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        *struck.entry(fault).or_default() += 1;
    }

    /// A fault struck, now, and people are told.
    pub(crate) fn tell(&self, fault: Fault) {
        self.strike(fault);
        terminal::note(&format!("  {} {}", style().notable("!"), fault.label()));
    }

    /// Each planned fault, and how often it struck.
    pub(crate) fn count(&self) -> Vec<(Fault, u64)> {
        let struck = self.struck.lock().unwrap_or_else(PoisonError::into_inner);
        self.planned
            .iter()
            .map(|fault| (*fault, struck.get(fault).copied().unwrap_or_default()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_plan_plans_every_fault_and_an_empty_one_none() {
        assert_eq!(Tally::new(&Plan::draw(20, 1, true)).count().len(), Fault::ALL.len());
        assert!(Tally::new(&Plan::draw(20, 1, false)).count().is_empty());
    }
}
