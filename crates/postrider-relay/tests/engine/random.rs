//! Random worlds: faults drawn from a seed, and what must hold whatever they are.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::{BrokerCapabilities, ErrorKind, Fault, Jitter, OutboxSource, Outcome};
use postrider_relay::Target;
use postrider_testkit::fault::{BrokerAction, Operation, SourceAction};

use crate::world::{World, event, everything, id, now};

struct Dice(Jitter);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.bits() % bound
    }
}

fn broker_fault(dice: &mut Dice) -> BrokerAction {
    match dice.below(6) {
        0 => BrokerAction::FailBefore(ErrorKind::Unavailable),
        1 => BrokerAction::FailAfter(ErrorKind::Timeout),
        2 => BrokerAction::FailAfterFirst(2, ErrorKind::Unavailable),
        3 => BrokerAction::StoreTwice,
        4 => BrokerAction::RetryNamed { after: None },
        _ => BrokerAction::Unroutable,
    }
}

fn source_fault(dice: &mut Dice) -> SourceAction {
    match dice.below(3) {
        0 => SourceAction::FailBefore(ErrorKind::Unavailable),
        1 => SourceAction::FailAfter(ErrorKind::Timeout),
        _ => SourceAction::busy(),
    }
}

/// One run: producers with overlapping transactions, relays that die and are paused, brokers and a
/// store that fail, poison; then peace, and everything must be delivered or visibly dead.
fn run(seed: u64) {
    let mut dice = Dice(Jitter::seeded(seed));
    let mut world = World::new(1 + (dice.below(3) as u16), vec![everything("a")]);
    let mut capabilities = BrokerCapabilities::least();
    capabilities.durable = true;
    capabilities.prefix_order = dice.below(2) == 0;
    capabilities.batch_rows_max = 1 + dice.below(20) as u32;
    world.places.clear();
    world.add_place_with(everything("a"), capabilities);
    world.settings.window.rows_max = 16 + dice.below(64) as u32;
    world.settings.window.page_rows_max = 8;
    world.settings.seed = seed;
    world.start(Target::Forever);
    let mut committed = 0u64;
    let mut poison = 0;
    for _ in 0..60 {
        match dice.below(12) {
            0 if world.relays.len() < 3 => _ = world.start(Target::Forever),
            1 if world.relays.len() > 1 => {
                world.kill(dice.below(world.relays.len() as u64) as usize)
            }
            2 => {
                let index = dice.below(world.relays.len() as u64) as usize;
                world.relays[index].paused = !world.relays[index].paused;
            }
            3 => world.place("a").broker.script.then([broker_fault(&mut dice)]),
            4 => {
                let operation =
                    [Operation::Settle, Operation::Fetch, Operation::Renew, Operation::Load]
                        [dice.below(4) as usize];
                world.source.script(operation).then([source_fault(&mut dice)]);
            }
            5 => {
                let event = event(dice.below(6), committed);
                committed += 1;
                if dice.below(2) == 0 {
                    world.place("a").broker.refuse([event.event().id]);
                } else {
                    let fault = Fault::new(ErrorKind::Unavailable, "503");
                    let outcome = Outcome::Retry { fault, after: None };
                    world.place("a").broker.answer([event.event().id], &outcome);
                }
                poison += 1;
                world.commit(vec![event]);
            }
            _ => {
                // Two transactions that overlap: numbers drawn in one order, committed in the other.
                let mut first = world.store.begin();
                let mut second = world.store.begin();
                for _ in 0..dice.below(12) {
                    first.enqueue(event(dice.below(3), committed)).unwrap();
                    second.enqueue(event(3 + dice.below(3), committed + 1)).unwrap();
                    committed += 2;
                }
                second.commit().unwrap();
                if dice.below(5) == 0 { first.roll_back() } else { _ = first.commit().unwrap() }
            }
        }
        world.run_for(Duration::from_millis(dice.below(3_000)));
        for health in world.healths() {
            assert!(health.window_rows <= u64::from(world.settings.window.rows_max) * 6, "INV-6");
        }
    }
    // Peace.
    for operation in [Operation::Settle, Operation::Fetch, Operation::Renew, Operation::Load] {
        world.source.script(operation).always(None);
    }
    world.relays.iter_mut().for_each(|relay| relay.paused = false);
    if world.relays.is_empty() {
        world.start(Target::Forever);
    }
    let total = world.store.committed().len();
    for n in 0..60 {
        // A trickle of another key, so that the poison's failures can be told from an outage.
        // Of many keys, so that every relay has some of it.
        world.commit((0..12).map(|key| event(100 + key, 1_000_000 + n)).collect());
        world.run_for(Duration::from_secs(20));
    }
    let total = total + 60 * 12;
    let counts = now(world.store.counts(&id("a"))).unwrap();
    let retrying: Vec<_> = world
        .store
        .waiting(&id("a"))
        .into_iter()
        .filter(|w| w.state.as_str() == "retrying")
        .collect();
    assert!(retrying.is_empty(), "{retrying:#?} at {:?}", world.clock.elapsed());
    let visible = world.delivered("a") as u64 + counts.dead + counts.parked;
    assert_eq!(visible, total as u64, "INV-1, INV-8: {counts:?} {:#?}", world.healths());
    assert_eq!(counts.retrying, 0, "{counts:?}");
    assert!(counts.dead <= poison, "INV-5: {counts:?} of {poison}");
    world.check("a");
}

#[test]
fn whatever_fails_nothing_is_lost_and_no_key_is_out_of_order() {
    let only = std::env::var("POSTRIDER_SEED").ok().and_then(|seed| seed.parse().ok());
    if let Some(seed) = only {
        return run(seed);
    }
    let seeds = std::env::var("POSTRIDER_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(40) {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed} fails");
    }
}
