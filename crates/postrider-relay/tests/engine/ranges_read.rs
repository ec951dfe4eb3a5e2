//! Ranges that are read on: what the pages are bounded by, and who waits for them meanwhile (INV-3, INV-5, INV-6, INV-8).

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::source::DefinitionChange;
use postrider_core::waiting::{Reason, WaitingState};
use postrider_core::{ErrorKind, Fault, NewEvent, OutboxSource, Outcome, Start};
use postrider_relay::{Ending, Target};
use postrider_testkit::fault::{Gate, Operation, SourceAction};
use postrider_testkit::memory::Kind;

use crate::ranges::{commit_stuck, narrow, of, patient, ranges, waiting};
use crate::world::{World, event, id, now};

/// A page of a range is one of the next so many.
const PAGES: usize = 6;

/// A world whose relay has died of a key of which much waits, some of it by a range: how the next one reads it is the test's.
fn left_behind(events: u64) -> World {
    let mut world = narrow(Kind::ChangeLog, &["order.changed"]);
    // So that few pages are asked for that are not a range's.
    (world.settings.poll_min, world.settings.poll_max) = [Duration::from_secs(4); 2].into();
    commit_stuck(&world, 1, events);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(5));
    assert_eq!(ranges(&world), 1);
    world.kill(0);
    world.place("all").broker.relent();
    world.clock.advance(world.settings.lease);
    world
}

/// Lets everything be sent that waits, and nothing be read before that: then ranges are read at once.
fn nothing_waits(world: &mut World) {
    let unavailable = SourceAction::FailBefore(ErrorKind::Unavailable);
    world.source.script(Operation::Fetch).always(Some(unavailable));
    world.run_until(Duration::from_secs(600), |world| waiting(world) == 0);
    world.source.script(Operation::Fetch).always(None);
}

/// INV-3, INV-6: while a page of a range is away, what comes of its key is kept, and that counts as memory: no more is read
/// than there is room for. None of it is sent before its elders.
#[test]
fn what_is_kept_while_a_range_is_read_counts_as_memory() {
    const MEMORY: u64 = 64 << 10;
    let mut world = left_behind(60);
    let window = &mut world.settings.window;
    (window.memory_bytes_max, window.page_bytes_max) = (MEMORY, 16 << 10);
    world.start(Target::Forever);
    nothing_waits(&mut world);
    let gate = Gate::new();
    world.source.script(Operation::Fetch).then([SourceAction::Hold(gate.clone())]);
    world.run_for(Duration::from_secs(5));
    let ranged = |world: &World| world.store.ranged(&id("all")).len();
    let (before, sent) = (ranged(&world), world.delivered("all"));
    let large = |n: u64| {
        NewEvent::new("order", "1", "order.changed").bytes(n.to_be_bytes().repeat(128), "a/b")
    };
    world.commit((60..2_060).map(large).collect());
    let mut most = 0;
    for _ in 0..40 {
        world.run_for(Duration::from_millis(250));
        most = most.max(world.healths().remove(0).memory_bytes);
    }
    // It is a range's page that is away: others are read meanwhile, and kept.
    assert!(ranges(&world) == 1 && ranged(&world) > before, "{before} and {}", ranged(&world));
    assert_eq!(world.delivered("all"), sent, "nothing is sent before its elders");
    assert!((MEMORY / 2..=MEMORY + (16 << 10)).contains(&most), "{most} bytes");
    gate.open();
    world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 2_060);
    world.run_for(Duration::from_secs(5));
    assert_eq!((waiting(&world), ranges(&world)), (0, 0));
    world.check("all");
}

/// INV-8: a one-shot run is not done while a page of a range is to be asked for again.
#[test]
fn a_one_shot_run_waits_for_a_range_that_was_refused() {
    for pages in 0..PAGES {
        let mut world = left_behind(60);
        let passes = (0..pages).map(|_| SourceAction::Pass);
        let refused = [SourceAction::FailBefore(ErrorKind::Unavailable)];
        world.source.script(Operation::Fetch).then(passes.chain(refused));
        let relay = world.start(Target::Once);
        world.run_until(Duration::from_secs(600), |world| world.ending(relay).is_some());
        assert_eq!(world.ending(relay), Some(&Ending::Done), "behind {pages} pages");
        assert_eq!((world.delivered("all"), waiting(&world), ranges(&world)), (60, 0, 0));
        world.check("all");
    }
}

/// INV-8: a one-shot run that reads a range on, page after page without an event of the key, does not stand still.
#[test]
fn a_one_shot_run_that_reads_a_sparse_range_gets_on() {
    let mut world = narrow(Kind::ChangeLog, &["order.changed"]);
    world.settings.stall = Duration::from_secs(20);
    commit_stuck(&world, 1, 60);
    world.commit((0..1_000).map(|n| event(2 + n % 50, n / 50)).collect());
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 1_000);
    world.run_for(Duration::from_secs(5));
    world.kill(0);
    world.place("all").broker.relent();
    world.clock.advance(world.settings.lease);
    let relay = world.start(Target::Once);
    let (begun, mut rounds) = (world.clock.elapsed(), 0);
    while world.ending(relay).is_none() {
        world.round();
        world.clock.advance(Duration::from_millis(500)); // Each answer takes its time.
        rounds += 1;
        assert!(rounds < 5_000, "it does not end");
    }
    assert_eq!(world.ending(relay), Some(&Ending::Done));
    assert!(world.clock.elapsed() - begun > 2 * world.settings.stall, "long enough to be a stall");
    assert_eq!((world.delivered("all"), ranges(&world)), (1_060, 0));
}

/// INV-8: of two ranges each is read a page at a time, so a long one keeps no other waiting.
#[test]
fn ranges_are_read_by_turns() {
    let mut world = narrow(Kind::ChangeLog, &["order.changed"]);
    commit_stuck(&world, 1, 36);
    commit_stuck(&world, 2, 36);
    world.commit((0..2_000).map(|n| event(3 + n % 50, n / 50)).collect());
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 2_000);
    world.run_for(Duration::from_secs(5));
    assert_eq!(ranges(&world), 2);
    world.place("all").broker.relent();
    nothing_waits(&mut world);
    while ranges(&world) == 2 {
        if !world.round() {
            world.pass(Duration::from_secs(1));
        }
    }
    let left = world.store.ranges(&id("all")).remove(0).cursor.position();
    assert!(left > 1_000, "the other one stands at {left}");
    world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 2_072);
    world.check("all");
}

/// INV-6: what a range stands for and no route takes any more becomes dead letters, and they are bound by what may wait.
#[test]
fn letters_of_a_range_are_bound_by_what_may_wait() {
    const MAX: usize = 100;
    let (both, one) = (patient(&["order.changed", "other"]), patient(&["order.changed"]));
    let mut world = narrow(Kind::ChangeLog, &["order.changed"]);
    world.settings.waiting_max = MAX as u64;
    let put = |world: &World, definition: &postrider_core::Destination| {
        let put = vec![(definition.clone(), Start::Now)];
        now(world.store.apply(&DefinitionChange { put, ..DefinitionChange::default() })).unwrap();
    };
    put(&world, &both);
    commit_stuck(&world, 1, 40);
    world.commit((0..400).map(|n| of("other", 1, n)).collect());
    world.start_with(vec![both], Target::Forever);
    world.run_for(Duration::from_secs(5));
    assert_eq!(ranges(&world), 1);
    world.kill(0);
    put(&world, &one);
    world.clock.advance(world.settings.lease);
    world.place("all").broker.relent();
    world.start_with(vec![one], Target::Forever);
    let mut letters = 0;
    loop {
        world.run_for(Duration::from_secs(30));
        let rows = world.store.waiting(&id("all"));
        let rows: Vec<_> =
            rows.into_iter().filter(|row| row.state != WaitingState::Discarded).collect();
        if rows.is_empty() {
            break;
        }
        // A page more than may wait, at most.
        assert!(rows.len() <= MAX + 10, "{} wait", rows.len());
        assert!(rows.iter().all(|row| row.reason == Reason::NoRoute), "{rows:?}");
        letters += rows.len();
        world.ask(Verb::Discard(rows.iter().map(|row| world.row("all", row.row.seq)).collect()));
    }
    assert_eq!((letters, world.delivered("all"), ranges(&world)), (400, 40, 0));
}

/// INV-3: whatever comes of a key while its range is read on and ends stays behind what came before.
#[test]
fn what_comes_while_a_range_ends_stays_behind() {
    for every in 1..8 {
        let mut world = left_behind(60);
        world.start(Target::Forever);
        let mut next = 60;
        for round in 0..3_000 {
            if round % every == 0 && next < 400 {
                world.commit(vec![event(1, next)]);
                next += 1;
            }
            if !world.round() {
                world.pass(Duration::from_millis(100));
            }
        }
        world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 400);
        world.run_for(Duration::from_secs(5));
        assert_eq!((waiting(&world), ranges(&world)), (0, 0));
        world.check("all");
    }
}

/// INV-3: when a range has ended, the last event of it that still waits holds its key.
#[test]
fn the_last_of_a_range_holds_its_key() {
    let mut world = narrow(Kind::ChangeLog, &["order.changed"]);
    let events: Vec<_> = (0..60).map(|n| event(1, n)).collect();
    let ids: Vec<_> = events.iter().map(|new| new.event().id).collect();
    let fault = Fault::new(ErrorKind::Unavailable, "503");
    let fails = Outcome::Retry { fault, after: Some(Duration::from_secs(2)) };
    world.place("all").broker.answer([ids[0]], &fails);
    world.commit(events);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(5));
    assert_eq!(ranges(&world), 1);
    world.place("all").broker.relent();
    world.place("all").broker.answer([ids[59]], &fails);
    let done = |world: &World| world.delivered("all") == 59 && ranges(world) == 0;
    world.run_until(Duration::from_secs(600), done);
    world.commit((60..64).map(|n| event(1, n)).collect());
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.delivered("all"), 59, "one waits, and what came since is behind it");
    world.place("all").broker.relent();
    world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 64);
    world.check("all");
}
