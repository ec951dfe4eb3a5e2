//! Ticks by value, and the token of a crash.

use std::time::Duration;

use postrider_core::Tick;
use postrider_core::snapshot::{
    CrashToken, Incarnation, SequenceTick, SequenceTicks, Snapshot, TICK_PAUSE, Verdict,
};

const A: Incarnation = Incarnation(1);
const B: Incarnation = Incarnation(2);

fn seen(xmax: u64) -> Snapshot {
    Snapshot::with_running(xmax, [])
}

/// A tick serves the snapshots that have its transaction behind them, of the same life of the server,
/// in whatever order answers come.
#[test]
fn a_tick_serves_what_is_behind_it() {
    let mut ticks = SequenceTicks::default();
    assert_eq!(ticks.floor_for(&seen(10), A), None);
    ticks.note(SequenceTick { floor: 5, xid: 10, incarnation: A });
    ticks.note(SequenceTick { floor: 9, xid: 20, incarnation: A });
    ticks.note(SequenceTick { floor: 7, xid: 15, incarnation: A });
    let floors = [10, 11, 20, 21].map(|xmax| ticks.floor_for(&seen(xmax), A));
    assert_eq!(floors, [None, Some(5), Some(5), Some(9)]);
    assert_eq!((ticks.floor_for(&seen(21), B), ticks.highest(A)), (None, Some(9)));
    ticks.note(SequenceTick { floor: 3, xid: 12, incarnation: B });
    assert_eq!((ticks.floor_for(&seen(99), A), ticks.floor_for(&seen(99), B)), (None, Some(3)));
}

/// A tick that says nothing new leaves the older one, which serves more.
#[test]
fn an_idle_sequence_keeps_its_tick() {
    let mut ticks = SequenceTicks::default();
    ticks.note(SequenceTick { floor: 5, xid: 10, incarnation: A });
    ticks.note(SequenceTick { floor: 5, xid: 30, incarnation: A });
    assert_eq!(ticks.floor_for(&seen(11), A), Some(5));
}

/// A tick comes before the first fetch, and then at most 20 times a second.
#[test]
fn ticks_are_paced() {
    let mut ticks = SequenceTicks::default();
    let now = Tick(0) + Duration::from_secs(9);
    assert!(ticks.is_due(now));
    ticks.begin(now);
    assert!(!ticks.is_due(now + TICK_PAUSE - Duration::from_nanos(1)));
    assert!(ticks.is_due(now + TICK_PAUSE));
}

/// INV-6: as many ticks as there may be, and not one more; the newest stay.
#[test]
fn ticks_are_bounded() {
    let mut ticks = SequenceTicks::default();
    (1..=1_000).for_each(|n| ticks.note(SequenceTick { floor: n, xid: n, incarnation: A }));
    assert_eq!(ticks.floor_for(&seen(900), A), None);
    assert_eq!(ticks.floor_for(&seen(1_000), A), Some(999));
}

/// Two relays after a crash: one plants, the other adopts what stands, and neither keeps its memory.
#[test]
fn a_crash_is_noticed_once_by_each() {
    let (mut one, mut other) = (CrashToken::knowing(A), CrashToken::knowing(A));
    let mut table = Some(A);
    assert_eq!([one.judge(table), other.judge(table)], [Verdict::Keep; 2]);
    table = None;
    assert_eq!([one.judge(table), other.judge(table)], [Verdict::Plant; 2]);
    for planted in [B, Incarnation(3)] {
        table.get_or_insert(planted);
    }
    assert_eq!([one.judge(table), other.judge(table)], [Verdict::Forget; 2]);
    one.adopt(B);
    assert_eq!([one.judge(table), other.judge(table)], [Verdict::Keep, Verdict::Forget]);
    other.adopt(B);
    assert_eq!([one.judge(table), other.judge(table)], [Verdict::Keep; 2]);
    assert_eq!((CrashToken::default().judge(table), one.known()), (Verdict::Forget, Some(B)));
}
