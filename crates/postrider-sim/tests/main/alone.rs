//! Each fault alone, in a small world: it strikes, and everything comes right.

use postrider_sim::incident::{Incident, What};
use postrider_sim::outcome::Outcome;
use postrider_sim::scenario::{Rates, Scenario};
use postrider_sim::world::{Options, run};
use postrider_testkit::memory::Kind;

/// A small world of a kind of store, in which nothing goes wrong.
fn calm(store: Kind) -> Scenario {
    Scenario {
        store,
        partitions: 2,
        relays: 2,
        destinations: 1,
        apps: 2,
        transactions: 12,
        keys: 4,
        consumers: 0,
        operator: 0,
        outbox_max: 0,
        saves_apart_ms: 0,
        waiting_max: 0,
        retention: false,
        span_ms: 20_000,
        rates: Rates::default(),
        incidents: Vec::new(),
        ..Scenario::of(11)
    }
}

/// Runs it, and sees that the fault struck and nothing was broken.
fn survives(scenario: &Scenario, fault: &str) -> Outcome {
    let outcome = run(scenario, &Options::default());
    assert_eq!(outcome.failure, None, "{fault} with {:?}", scenario.store);
    assert!(
        outcome.tally.delivered > 0 && outcome.tally.committed > 0,
        "{fault}: nothing happened"
    );
    assert!(fault.is_empty() || outcome.tally.faults.contains_key(fault), "{fault} never struck");
    outcome
}

/// A fault that strikes three times.
fn strikes(store: Kind, what: &What) {
    let mut scenario = calm(store);
    let at = [1_500, 6_000, 14_000];
    scenario.incidents = at.map(|at_ms| Incident { at_ms, what: what.clone() }).to_vec();
    survives(&scenario, what.name());
}

/// A fault with a rate, once in twelve calls.
fn happens(store: Kind, name: &str) {
    let mut scenario = calm(store);
    let rate = scenario.rates.each().into_iter().find(|(known, _)| *known == name);
    *rate.unwrap().1 = 800;
    survives(&scenario, name);
}

#[test]
fn without_a_fault_everything_arrives_once_in_every_kind_of_store() {
    for store in Kind::ALL {
        let outcome = survives(&calm(store), "");
        let tally = outcome.tally;
        assert_eq!(tally.committed, tally.delivered, "{store:?}");
        assert!(tally.faults.is_empty(), "{store:?}: {:?}", tally.faults);
    }
}

/// R001, R008, R009, R036, F1: relays die within whatever they do, others go on, nothing is lost.
#[test]
fn relays_die_at_any_await_point() {
    for (store, steps) in Kind::ALL.into_iter().zip([1, 7, 19, 33, 60]) {
        strikes(store, &What::KillRelay { relay: 0, steps, again_ms: 2_000 });
    }
}

/// F11: a relay stands still beyond its lease, and goes on beside its successor.
#[test]
fn a_relay_stands_still_beyond_its_lease() {
    for store in Kind::ALL {
        strikes(store, &What::PauseRelay { relay: 0, steps: 1, for_ms: 31_000 });
    }
}

/// F7: a relay's way to its store is cut.
#[test]
fn a_relay_is_cut_off_from_its_store() {
    strikes(Kind::Snapshot, &What::CutRelay { relay: 0, for_ms: 20_000 });
    strikes(Kind::Keyed, &What::CutRelay { relay: 1, for_ms: 20_000 });
}

/// F39: relays are replaced while events come.
#[test]
fn relays_are_drained_and_replaced() {
    strikes(Kind::Number, &What::DrainRelay { relay: 0, again_ms: 1_000 });
    strikes(Kind::RowState, &What::DrainRelay { relay: 1, again_ms: 1_000 });
}

/// F12: a relay's wall clock jumps, there and back.
#[test]
fn a_wall_clock_jumps() {
    strikes(Kind::ChangeLog, &What::JumpClock { relay: 0, by_ms: 600_000 });
    strikes(Kind::Snapshot, &What::JumpClock { relay: 0, by_ms: -3_600_000 });
}

/// F2: an application dies before, within, and after its commit.
#[test]
fn an_application_dies_at_any_await_point() {
    for (store, steps) in Kind::ALL.into_iter().zip([1, 3, 5, 7, 9]) {
        strikes(store, &What::KillApp { app: 0, steps, again_ms: 500 });
    }
}

#[test]
fn the_server_of_the_store_crashes() {
    for store in Kind::ALL {
        strikes(store, &What::CrashServer { for_ms: 4_000 });
    }
}

/// F23: the store has no room for a while.
#[test]
fn the_store_is_full_or_read_only() {
    strikes(Kind::Number, &What::DiskFull { for_ms: 5_000 });
    strikes(Kind::Snapshot, &What::ReadOnly { for_ms: 5_000 });
}

/// F5: the broker is away for longer than all attempts of an event take together, and none dies of it.
#[test]
fn a_broker_is_away_for_long() {
    for store in Kind::ALL {
        let mut scenario = calm(store);
        scenario.span_ms = 700_000;
        let what = What::BrokerDown { place: 0, for_ms: 600_000 };
        scenario.incidents = vec![Incident { at_ms: 1_500, what }];
        let tally = survives(&scenario, "broker_down").tally;
        assert_eq!(tally.committed, tally.delivered, "{store:?}");
    }
}

#[test]
fn one_of_a_brokers_topics_is_away() {
    strikes(Kind::Snapshot, &What::TopicDown { place: 0, topic: 1, for_ms: 10_000 });
    strikes(Kind::Number, &What::TopicGone { place: 0, topic: 2 });
}

/// R005, F9: what is lost on the way, there or back, is sent again.
#[test]
fn questions_and_answers_are_lost() {
    for name in ["line_lost_there", "line_lost_back", "broker_lost_there", "broker_lost_back"] {
        Kind::ALL.into_iter().for_each(|store| happens(store, name));
    }
}

/// R002: what was rolled back is never sent.
#[test]
fn transactions_are_rolled_back_and_stay_open() {
    for name in ["roll_back", "linger"] {
        Kind::ALL.into_iter().for_each(|store| happens(store, name));
    }
}

/// F8, F18: a broker that is slow, refuses, throttles, or stores twice, and poison.
#[test]
fn a_broker_misbehaves() {
    let names = ["broker_slow", "broker_refuses_one", "broker_throttles", "broker_twice", "poison"];
    for (name, store) in names.into_iter().zip(Kind::ALL) {
        happens(store, name);
    }
}
