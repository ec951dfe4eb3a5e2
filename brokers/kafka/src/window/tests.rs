//! What a window hands out, and in which order.

use std::sync::Arc;

use super::*;
use postrider_core::{Event, EventId, Marks};
use std::collections::BTreeMap;

const VISIBILITY: Duration = Duration::from_secs(30);

fn record(offset: i64, key: u64) -> Record {
    let id = EventId::from_u128(u128::try_from(offset).unwrap());
    let event = Event::new(id, "order", &key.to_string(), "changed");
    let marks = Marks::default();
    Record {
        offset,
        event: Ok(Arc::new(event)),
        marks,
        key: None,
        value: None,
        is_cut: false,
        headers: None,
    }
}

/// F19: what a process that ended may have had at work is known as that, also when it comes again.
#[test]
fn the_head_of_a_partition_may_have_been_begun_before() {
    let (now, mut next) = (Instant::now(), 0);
    let mut window = Window::behind(Aside::default());
    let last = i64::try_from(HEAD).unwrap() + 1;
    for offset in 0..=last {
        window.push(record(offset, 1 + offset.unsigned_abs()));
    }
    let mut begun_before = |now| {
        let mut out = Vec::new();
        let token = || {
            next += 1;
            next
        };
        window.hand_out(now, VISIBILITY, usize::MAX, token, &mut out);
        assert_eq!(out.len(), HEAD + 2);
        out.iter().filter(|(_, it)| it.begun_before).map(|(_, it)| it.record.offset).max()
    };
    assert_eq!(begun_before(now), Some(last - 2));
    assert_eq!(begun_before(now + VISIBILITY), Some(last - 2));
}

fn take(window: &mut Window, now: Instant, max: usize, next: &mut u64) -> Vec<(u64, i64, u32)> {
    let mut out = Vec::new();
    let token = || {
        *next += 1;
        *next
    };
    window.hand_out(now, VISIBILITY, max, token, &mut out);
    out.into_iter().map(|(token, it)| (token, it.record.offset, it.count)).collect()
}

/// INV-1: a log that was cut off behind what is not settled yet takes nothing of that away.
#[test]
fn what_lies_before_a_cut_stays() {
    let (mut window, now, mut next) = (Window::behind(Aside::default()), Instant::now(), 0);
    (10..20).for_each(|offset| _ = window.push(record(offset, offset.unsigned_abs())));
    let out = take(&mut window, now, 20, &mut next);
    assert!(window.settle(10, out[0].0, now));
    assert!(window.push(record(15, 1)), "read again");
    assert_eq!((window.len(), window.settled), (5, Some(11)));
    assert!(!window.settle(16, out[6].0, now), "it is gone");
    let again = take(&mut window, now, 20, &mut next);
    assert_eq!(again.iter().map(|it| it.1).collect::<Vec<_>>(), [15]);
    assert!(window.settle(15, again[0].0, now));
    assert_eq!(window.settled, Some(11), "11 to 14 are not settled");
    (1..5).for_each(|at| assert!(window.settle(10 + at as i64, out[at].0, now)));
    assert_eq!(window.settled, Some(16));
}

#[test]
fn only_a_settled_beginning_is_settled() {
    let (mut window, now, mut next) = (Window::behind(Aside::default()), Instant::now(), 0);
    for offset in 0..3 {
        window.push(record(offset, offset.unsigned_abs()));
    }
    let out = take(&mut window, now, 10, &mut next);
    assert_eq!(out.len(), 3);
    assert!(window.settle(1, out[1].0, now));
    assert_eq!(window.settled, None);
    assert!(window.settle(0, out[0].0, now));
    assert_eq!(window.settled, Some(2));
    assert!(!window.settle(0, out[0].0, now), "it is gone");
    assert!(window.give_back(2, out[2].0, now, VISIBILITY, true));
    assert_eq!(take(&mut window, now, 10, &mut next), []);
    assert_eq!(window.next_due(), Some(now + VISIBILITY));
    let later = now + VISIBILITY;
    assert_eq!(take(&mut window, later, 10, &mut next), [(next, 2, 2)]);
    assert!(!window.settle(2, out[2].0, later), "the first token is stale");
}

/// A partition that was made anew begins again, and old receipts settle nothing in it.
#[test]
fn offsets_that_go_back_begin_anew() {
    let (mut window, now, mut next) = (Window::behind(Aside::default()), Instant::now(), 0);
    window.push(record(7, 1));
    let out = take(&mut window, now, 1, &mut next);
    assert!(window.push(record(0, 1)));
    assert!(!window.settle(7, out[0].0, now));
    assert_eq!(take(&mut window, now, 1, &mut next)[0].1, 0);
    assert_eq!(window.settled, None);
}

/// R070: whatever happens, a key's events come one after the other, and the settled offset passes nothing.
#[test]
fn a_key_is_in_order_whatever_happens() {
    for seed in 1..200u64 {
        let mut state = seed;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (mut window, mut now, mut next) = (Window::behind(Aside::default()), Instant::now(), 0);
        let (mut read, mut away, mut done) = (0i64, Vec::new(), BTreeMap::new());
        for _ in 0..300 {
            now += Duration::from_secs(random(5));
            match random(5) {
                0 => {
                    window.push(record(read, random(4)));
                    read += 1;
                }
                1 => {
                    let limit = usize::try_from(random(4)).unwrap();
                    for (token, offset, _) in take(&mut window, now, limit, &mut next) {
                        let event = window.find(offset, token, now).unwrap().event.clone();
                        let key = event.unwrap().key();
                        let last = done.get(&key).copied().unwrap_or(-1);
                        assert!(offset > last, "seed {seed}: {offset} after {last}");
                        away.push((token, offset, key));
                    }
                }
                choice if !away.is_empty() => {
                    let at = usize::try_from(random(away.len() as u64)).unwrap();
                    let (token, offset, key) = away.swap_remove(at);
                    if choice == 2 {
                        window.give_back(offset, token, now, Duration::from_secs(3), true);
                    } else if window.settle(offset, token, now) {
                        let last = done.insert(key, offset).unwrap_or(-1);
                        assert!(last < offset, "seed {seed}: settled in order");
                    }
                }
                _ => {}
            }
            let first = window.entries.front().map_or(read, |entry| entry.record.offset);
            assert!(window.settled.is_none_or(|settled| settled <= first));
        }
    }
}

/// INV-3: what was put aside behind a record that is not settled is written down beside the offset, and passed over by the next
/// member, which hands out what lies before it; another record at that place is handed out.
#[test]
fn what_was_put_aside_is_passed_over_by_the_next_member() {
    let now = Instant::now();
    let mut window = Window::behind(Aside::default());
    for (offset, key) in [(10, 1), (11, 2), (12, 2)] {
        window.push(record(offset, key));
    }
    let mut out = Vec::new();
    let mut token = 0..;
    window.hand_out(now, VISIBILITY, 9, || token.next().unwrap(), &mut out);
    assert_eq!(window.mark(), None, "nothing is settled");
    assert!(window.put_aside(11, out[1].0, now));
    let (offset, beside) = window.mark().unwrap();
    assert_eq!(offset, 10, "it begins where it began");
    let mut next = Window::behind(Aside::read(&beside));
    for (offset, key) in [(10, 1), (11, 2), (12, 2)] {
        next.push(record(offset, key));
    }
    let mut out = Vec::new();
    next.hand_out(now, VISIBILITY, 9, || token.next().unwrap(), &mut out);
    let offsets: Vec<i64> = out.iter().map(|(_, out)| out.record.offset).collect();
    assert_eq!(offsets, [10, 12]);
    assert!(next.settle(10, out[0].0, now));
    assert_eq!(next.mark(), Some((12, String::new())), "and nothing is left of it");
    let mut other = Window::behind(Aside::read(&beside));
    let mut replaced = record(11, 2);
    replaced.event = record(99, 2).event;
    other.push(record(10, 1));
    other.push(replaced);
    let mut out = Vec::new();
    other.hand_out(now, VISIBILITY, 9, || token.next().unwrap(), &mut out);
    assert_eq!(out.len(), 2, "another record stands there now");
}

/// INV-1: what is no record is settled with the last record before it, and never one that is at work; nor is anything settled by
/// where reading stood when the partition was ours before.
#[test]
fn what_is_no_record_is_settled_with_what_stands_before_it() {
    let (now, mut next) = (Instant::now(), 0);
    let mut window = Window::behind(Aside::default());
    window.stand_at(Some(90));
    window.pass(Some(90));
    assert_eq!(window.mark(), None, "that is of another time");
    window.push(record(5, 1));
    window.pass(Some(9));
    assert_eq!(window.mark(), None, "it is not done");
    let (token, offset, _) = take(&mut window, now, 1, &mut next)[0];
    assert!(window.settle(offset, token, now));
    assert_eq!(window.mark().unwrap().0, 6);
    window.pass(Some(9));
    assert_eq!(window.mark().unwrap().0, 9);
    assert!(
        window.push(record(7, 1)),
        "the partition was cut off before, and has another record there"
    );
    assert_eq!(window.mark(), None);
    window.pass(Some(8));
    let (token, offset, _) = take(&mut window, now, 1, &mut next)[0];
    assert!(window.settle(offset, token, now));
    assert_eq!(window.mark().unwrap().0, 8);
    let mut empty = Window::behind(Aside::default());
    empty.stand_at(Some(90));
    empty.pass(None);
    empty.pass(Some(90));
    assert_eq!(empty.mark().unwrap().0, 90, "it was read in this time");
}
