//! The right rule, and the wrong ones.

use postrider_core::snapshot::{Drawn, Pending, Snapshot, SnapshotCursor};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use crate::reader::{Reader, Rule};
use crate::server::Server;
use crate::trial::{Fault, Step, run, steps};

proptest! {
    #![proptest_config(Config { cases: 4_000, failure_persistence: None, ..Config::default() })]

    /// INV-1, INV-3: with early numbers, rollbacks, commits in any order, long transactions, two
    /// readers that fall back to what they saved, and small pages: nothing is lost, nothing comes
    /// twice, no key is out of order.
    #[test]
    fn the_floor_of_a_tick_loses_nothing(page in 1..7usize, steps in steps(120)) {
        prop_assert_eq!(run(Rule::Tick, page, &steps), Ok(()));
    }
}

/// Looks for a script under which a rule fails, and says how it fails in the shortest.
fn found(rule: Rule) -> Option<Fault> {
    let config = Config { cases: 3_000, failure_persistence: None, ..Config::default() };
    let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&(1..7usize, steps(60)), |(page, steps)| {
        run(rule, page, &steps).map_err(|fault| TestCaseError::fail(format!("{fault:?}")))
    });
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(_, (page, steps))) => run(rule, page, &steps).err(),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// INV-1, negative control: each wrong rule is seen to lose.
#[test]
fn the_sequence_at_the_fetch_loses() {
    assert_eq!(found(Rule::AtFetch), Some(Fault::Lost));
}

/// The same.
#[test]
fn the_highest_number_seen_loses() {
    assert_eq!(found(Rule::HighestSeen), Some(Fault::Lost));
}

/// The same.
#[test]
fn a_fresh_sequence_taken_at_its_word_loses() {
    assert_eq!(found(Rule::FreshAsGiven), Some(Fault::Lost));
}

/// The same.
#[test]
fn a_sequence_read_while_it_logs_ahead_loses() {
    assert_eq!(found(Rule::LoggedAhead), Some(Fault::Lost));
}

/// The same.
#[test]
fn a_tick_in_a_transaction_that_has_a_number_loses() {
    assert_eq!(found(Rule::TickInTransaction), Some(Fault::Lost));
}

/// The relay first, then one event in a fresh store: a tick and a fetch find nothing, and the event
/// is there afterwards.
#[test]
fn the_first_event_of_a_fresh_store_comes() {
    let first_event = |rule| {
        let steps = [
            Step::Tick(0),
            Step::Tick(0),
            Step::Fetch(0),
            Step::Enqueue(0, 0),
            Step::Enqueue(0, 0),
            Step::Commit(0),
            Step::Fetch(0),
        ];
        run(rule, 1, &steps)
    };
    assert_eq!(first_event(Rule::Tick), Ok(()));
    assert_eq!(first_event(Rule::FreshAsGiven), Err(Fault::Lost));
}

/// An open transaction costs nothing: the scan begins at the floor of the others, and at its own when
/// it ends.
#[test]
fn a_scan_begins_low_only_for_what_has_finished() {
    let base = SnapshotCursor::at(&"5:9:5,7".parse().unwrap(), 100, 40);
    let while_open: Snapshot = "5:12:5,7".parse().unwrap();
    let when_over: Snapshot = "7:12:7".parse().unwrap();
    assert_eq!((base.lo(&while_open), base.lo(&when_over)), (100, 40));
    assert_eq!(base.ground(), 40);
    let link = base.toward(when_over, Some(120)).unwrap();
    assert_eq!(link.drained().pending(), [Pending { xid: 7, floor: 40 }]);
    assert_eq!((link.drained().floor(), link.drained().xmax()), (120, 12));
    assert!(link.is_next(Drawn { xid: 5, seq: 41 }) && !link.is_next(Drawn { xid: 7, seq: 41 }));
    assert!(link.at_position(41).has_passed(Drawn { xid: 5, seq: 41 }));
    assert!(link.drained().follows(&link) && !base.follows(&link));
}

/// A snapshot older than the base is no target, and a drain is over when the base covers its head.
#[test]
fn time_does_not_run_backwards() {
    let base = SnapshotCursor::at(&"5:9:5,7".parse().unwrap(), 100, 40);
    assert!(base.toward("5:8:5,7".parse().unwrap(), None).is_err());
    assert!(base.toward("6:9:6,7".parse().unwrap(), None).is_err());
    assert!(base.covers(&"5:9:5,7".parse().unwrap()) && base.covers(&"5:8:5,7".parse().unwrap()));
    assert!(!base.covers(&"7:9:7".parse().unwrap()) && !base.covers(&"5:10:5,7".parse().unwrap()));
}

/// After a restore the transaction numbers begin anew, and old rows carry numbers that were not given
/// yet. Rebased, the cursor finds both the new rows and those of transactions that were running.
#[test]
fn a_rebased_cursor_loses_nothing() {
    // It had settled all up to 100 but for 5, which was running and wrote 90; 101 was not read.
    let saved = SnapshotCursor::at(&"5:900:5,899".parse().unwrap(), 100, 80);
    let restored =
        [Drawn { xid: 899, seq: 90 }, Drawn { xid: 901, seq: 101 }, Drawn { xid: 903, seq: 102 }];
    let written = [Drawn { xid: 20, seq: 103 }, Drawn { xid: 24, seq: 104 }];
    let seen: Snapshot = "24:25:24".parse().unwrap();
    assert!(saved.toward(seen.clone(), Some(102)).is_err(), "the server is behind the cursor");
    let link = saved.rebased().toward(seen.clone(), Some(102)).unwrap();
    assert_eq!(link.lo(&seen), 80);
    let read: Vec<_> =
        restored.iter().chain(&written).filter(|row| link.is_next(**row)).copied().collect();
    assert_eq!(read, [restored[0], restored[1], restored[2], written[0]]);
    let later = link.drained().toward("30:30:".parse().unwrap(), None).unwrap();
    let next: Vec<_> = restored.iter().chain(&written).filter(|row| later.is_next(**row)).collect();
    assert_eq!(next, [&written[1]], "what is restored comes once");
}

/// A reader that never ticks never raises its floor, and loses nothing: it reads old ground again.
#[test]
fn without_a_tick_the_floor_stands() {
    let mut server = Server::new(1);
    let mut reader = Reader::new(Rule::Tick, 7);
    for _ in 0..3 {
        server.enqueue(0, 0);
        server.enqueue(0, 0);
        server.commit(0);
        assert!(reader.fetch(&server));
    }
    assert_eq!((reader.cursor.floor(), reader.read.len()), (0, 3));
}
