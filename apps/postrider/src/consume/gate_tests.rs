//! The gate, stepped through by hand: who shuts it, who opens it, and who may try.

use super::*;

const GOOD: Reply = Reply::Status { status: 204, after: None };
const BROKEN: Reply = Reply::Status { status: 500, after: None };
const MISSING: Reply = Reply::Status { status: 404, after: None };

fn id(number: u128) -> EventId {
    EventId::from_u128(number)
}

/// A call by a fresh permit, if one can be had at once.
async fn call(gate: &Arc<Gate>, number: u128, reply: Reply) -> Option<Ruling> {
    let permit = tokio::time::timeout(Duration::ZERO, gate.pass()).await.ok()?;
    Some(permit.learn(id(number), gate.sent(), reply, "it said so"))
}

fn is_shut(gate: &Gate) -> bool {
    gate.lock().door != Door::Open
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_shuts_it_at_once_and_the_pauses_grow() {
    let gate = Gate::new(1);
    let mut pauses = Vec::new();
    for number in 0..12 {
        let begun = Instant::now();
        gate.pass().await.learn(id(number), 0, Reply::NotConnected, "connection refused");
        pauses.push(begun.elapsed());
        assert!(is_shut(&gate));
    }
    assert!(pauses[1] >= PAUSES.delay_min / 2 && pauses[11] >= PAUSES.delay_max / 2, "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= PAUSES.delay_max + Duration::from_millis(2)));
    let trouble = gate.trouble().unwrap();
    assert_eq!((trouble.fault.as_str(), trouble.in_a_row), ("connection refused", 12));
    gate.pass().await.learn(id(99), 0, GOOD, "");
    assert!(!is_shut(&gate) && gate.trouble().is_none());
}

#[tokio::test(start_paused = true)]
async fn while_it_is_shut_there_is_one_probe_and_a_lost_one_makes_room() {
    let gate = Gate::new(1);
    call(&gate, 1, Reply::NotConnected).await;
    assert!(call(&gate, 2, GOOD).await.is_none(), "it pauses");
    let probe = gate.pass().await;
    assert!(call(&gate, 2, GOOD).await.is_none(), "one at a time");
    drop(probe);
    assert!(call(&gate, 2, GOOD).await.is_some());
}

/// INV-5: however often one event fails alone, the others pass.
#[tokio::test(start_paused = true)]
async fn one_poison_event_never_shuts_it() {
    for reply in [BROKEN, MISSING, Reply::TimedOut, Reply::BrokenOff] {
        let gate = Gate::new(1);
        for _ in 0..50 {
            assert!(call(&gate, 1, reply).await.is_some(), "{reply:?}");
        }
        assert!(!is_shut(&gate), "{reply:?}");
        assert_eq!(gate.trouble().unwrap().in_a_row, 50, "but it is told");
    }
}

#[tokio::test(start_paused = true)]
async fn three_different_events_in_a_row_shut_it_and_a_success_between_does_not() {
    let gate = Gate::new(1);
    for number in [1, 2] {
        call(&gate, number, BROKEN).await;
    }
    call(&gate, 3, GOOD).await;
    for number in [4, 5] {
        call(&gate, number, MISSING).await;
    }
    assert!(!is_shut(&gate));
    call(&gate, 6, BROKEN).await;
    assert!(is_shut(&gate));
}

#[tokio::test(start_paused = true)]
async fn calls_that_began_before_it_shut_say_nothing_new() {
    let gate = Gate::new(1);
    let mut burst = Vec::new();
    for _ in 0..16 {
        burst.push(gate.pass().await);
    }
    for (number, permit) in burst.into_iter().enumerate() {
        permit.learn(id(number as u128), 0, Reply::NotConnected, "connection refused");
    }
    assert_eq!(gate.lock().streak, SHUTS_AT, "one outage, one step");
    assert_eq!(gate.trouble().unwrap().in_a_row, 16);
}

#[tokio::test(start_paused = true)]
async fn what_fails_while_others_are_taken_counts_and_waits_its_turn() {
    let gate = Gate::new(1);
    let first = call(&gate, 1, BROKEN).await.unwrap();
    assert_eq!(first.judgement, Judgement::Waits { after: None, sign: Sign::Bad });
    call(&gate, 2, GOOD).await;
    let second = call(&gate, 1, BROKEN).await.unwrap();
    assert_eq!(second.judgement, Judgement::Counts { after: None });
    let missing = call(&gate, 3, MISSING).await.unwrap();
    assert!(missing.pause > Duration::ZERO, "uncounted, but not at once");
}

/// INV-1, INV-5: what is not found counts only for the event that alone is not found.
#[tokio::test(start_paused = true)]
async fn a_missing_page_counts_while_others_are_taken_and_never_while_none_is() {
    let gate = Gate::new(1);
    for round in 0..50 {
        let permit = gate.pass().await;
        let ruling = permit.learn(id(round % 5), gate.sent(), MISSING, "404");
        assert!(matches!(ruling.judgement, Judgement::Waits { sign: Sign::Bad, .. }), "{ruling:?}");
    }
    for round in 0..5 {
        gate.pass().await.learn(id(100 + round), gate.sent(), GOOD, "");
        let ruling = call(&gate, 1, MISSING).await.unwrap();
        assert_eq!(ruling.judgement, Judgement::Counts { after: None });
        assert!(!is_shut(&gate) && gate.trouble().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_wish_is_obeyed_up_to_the_longest() {
    let gate = Gate::new(1);
    let busy = |secs| Reply::Status { status: 503, after: Some(Duration::from_secs(secs)) };
    assert_eq!(call(&gate, 1, busy(30)).await.unwrap().pause, Duration::from_secs(30));
    assert_eq!(call(&gate, 1, busy(86_400)).await.unwrap().pause, AFTER_MAX);
}

/// A process that dies takes all its calls with it: for each of them it is the first time.
#[tokio::test(start_paused = true)]
async fn the_first_connection_that_breaks_off_never_counts() {
    let gate = Gate::new(1);
    let sent = gate.sent();
    let innocent = gate.pass().await;
    call(&gate, 2, GOOD).await;
    let waits = Judgement::Waits { after: None, sign: Sign::Bad };
    assert_eq!(innocent.learn(id(1), sent, Reply::BrokenOff, "").judgement, waits);
    call(&gate, 3, GOOD).await;
    let again = call(&gate, 1, Reply::BrokenOff).await.unwrap();
    assert_eq!(again.judgement, Judgement::Counts { after: None });
}
