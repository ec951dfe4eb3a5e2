//! The bound of what waits, as arithmetic: with a store's answers, and between them.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use postrider_core::source::Loaded;
use postrider_core::{Cursor, KeyHash, PartitionId};

use super::*;

const ALONE: Share = Share { owned: 4, partitions: 4 };
const PAUSE: Duration = Duration::from_millis(500);

fn at(seconds: u64) -> Tick {
    Tick::default() + Duration::from_secs(seconds)
}

/// A gauge that was told so many.
fn told(waiting: u64, most: u64) -> Gauge {
    let mut gauge = Gauge::default();
    gauge.ask(0, at(1));
    gauge.answer(Some(waiting), most, at(1));
    gauge
}

/// INV-6: it stops at the bound, goes on when an eighth has gone, and says each once.
#[test]
fn it_stops_at_the_bound_and_goes_on_when_an_eighth_has_gone() {
    let mut gauge = told(49, 100);
    assert_eq!(gauge.weigh(100), None);
    gauge.entered = 1;
    assert_eq!((gauge.weigh(100), gauge.weigh(100)), (Some(Filling::Half), None));
    gauge.entered = 51;
    assert_eq!((gauge.weigh(100), gauge.full), (Some(Filling::Full), true));
    // It was reckoned: the store is asked, soon.
    assert_eq!(gauge.ask_at(ALONE, 100, PAUSE), Some(at(1) + PAUSE));
    gauge.ask(0, at(2));
    gauge.answer(Some(100), 100, at(2));
    for left in 0..12 {
        gauge.left = left;
        assert_eq!((gauge.weigh(100), gauge.full), (None, true), "{left}");
    }
    // Of 100 an eighth, rounded down, is 12.
    gauge.left = 12;
    assert_eq!((gauge.weigh(100), gauge.full), (Some(Filling::Room), false));
    gauge.left = 64;
    assert_eq!(gauge.weigh(100), Some(Filling::Less));
}

/// INV-6: the least bound works as any other.
#[test]
fn one_event_may_be_all_that_waits() {
    let mut gauge = told(1, 1);
    assert_eq!((gauge.weigh(1), gauge.full), (Some(Filling::Full), true));
    gauge.ask(0, at(2));
    gauge.answer(Some(1), 1, at(2));
    assert_eq!((gauge.weigh(1), gauge.full), (None, true));
    gauge.left = 1;
    assert_eq!((gauge.weigh(1), gauge.full), (Some(Filling::Room), false));
}

/// INV-8: what only seems to wait holds nothing back: the store's word goes.
#[test]
fn what_was_reckoned_too_high_is_corrected_by_the_store() {
    let mut gauge = told(90, 100);
    gauge.entered = 10;
    gauge.weigh(100);
    assert!(gauge.full);
    gauge.ask(0, at(2));
    gauge.answer(Some(95), 100, at(2));
    gauge.weigh(100);
    assert!(!gauge.full, "95 wait, and nothing has ever reached the bound");
}

/// INV-8: a count that fails is tried again, and what is full by the last one stays so.
#[test]
fn a_count_that_fails_is_asked_again() {
    let mut gauge = told(100, 100);
    gauge.weigh(100);
    gauge.ask(0, at(2));
    assert_eq!(gauge.ask_at(ALONE, 100, PAUSE), None, "one at a time");
    gauge.answer(None, 100, at(3));
    gauge.weigh(100);
    assert!(gauge.full);
    // It took a second, and nineteen twentieths of the time are for others.
    assert_eq!(gauge.ask_at(ALONE, 100, PAUSE), Some(at(23)));
}

/// INV-8: what waits ahead of its cursor comes out by reading alone.
#[test]
fn what_is_ahead_of_its_cursor_does_not_keep_it_from_being_read() {
    let mut gauge = told(100, 100);
    gauge.ahead = 1;
    gauge.doubt_ahead();
    gauge.weigh(100);
    assert!(gauge.full, "not before the store has counted it");
    gauge.ask(0, at(2));
    gauge.answer(Some(100), 100, at(2));
    gauge.weigh(100);
    assert!(!gauge.full);
    gauge.ahead = 0;
    gauge.weigh(100);
    assert!(gauge.full);
}

/// INV-6: what was discarded is not counted, so no more is taken off than was counted and did not come since.
#[test]
fn no_more_is_ahead_than_the_store_counts() {
    let mut gauge = Gauge { ahead: 1_000, ..Gauge::default() };
    gauge.doubt_ahead();
    gauge.ask(0, at(1));
    (gauge.entered, gauge.behind) = (30, 30);
    gauge.answer(Some(70), 100, at(1));
    gauge.weigh(100);
    assert_eq!((gauge.full, gauge.ahead_max), (false, 40));
    gauge.entered = 69;
    gauge.weigh(100);
    assert!(!gauge.full, "70 and 69, of which 40 may be ahead");
    gauge.entered = 70;
    gauge.weigh(100);
    assert!(gauge.full);
}

/// INV-6: of several relays each asks before all of them could have come half of the way that is left; one alone,
/// which knows all that enters, asks nothing.
#[test]
fn a_relay_that_shares_a_destination_asks_before_all_could_have_filled_it() {
    let quarter = Share { owned: 1, partitions: 4 };
    let mut gauge = told(0, 1_000);
    gauge.weigh(1_000);
    assert_eq!(gauge.ask_at(ALONE, 1_000, PAUSE), None);
    assert_eq!(gauge.ask_at(quarter, 1_000, PAUSE), Some(at(1) + FAR_EVERY));
    gauge.entered = 125;
    assert_eq!(gauge.ask_at(quarter, 1_000, PAUSE), Some(at(1) + FAR_EVERY));
    gauge.entered = 126;
    assert_eq!(gauge.ask_at(quarter, 1_000, PAUSE), Some(at(1) + PAUSE));
}

/// INV-6: what a relay takes over with a partition it has not seen enter, and asks for.
#[test]
fn what_is_found_in_a_partition_that_is_taken_over_is_counted() {
    let taken = |gauge: &mut Gauge, found: u32| {
        let loaded = Loaded {
            cursor: Cursor::number(0),
            waiting_keys: vec![(KeyHash(1), found)],
            waiting_ahead: Vec::new(),
            ranges: None,
            replay_through: 0,
        };
        let id = DestinationId::new("a").unwrap();
        gauge.add(&mut Flow::new(PartitionId(0), id, loaded, at(1)));
    };
    let mut gauge = told(0, 1_000);
    assert_eq!(gauge.ask_at(ALONE, 1_000, PAUSE), None);
    // Dead letters that hold no key are not found so.
    taken(&mut gauge, 0);
    assert_eq!(gauge.ask_at(ALONE, 1_000, PAUSE), Some(at(1) + PAUSE));
    gauge.ask(0, at(2));
    gauge.answer(Some(7), 1_000, at(2));
    assert_eq!(gauge.ask_at(ALONE, 1_000, PAUSE), None);
    // Before the store has said anything, what is found is known, and the answer has all of it.
    let mut first = Gauge::default();
    taken(&mut first, 7);
    assert_eq!(first.waiting(), 7);
}
