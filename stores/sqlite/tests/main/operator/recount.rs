//! The recount finds what the relay's own books do not say, and nothing else.

use std::time::Duration;

use postrider_core::ErrorKind;
use postrider_core::operate::{Difference, Operator, Recounted, RowKey, Status, Submission, Verb};
use postrider_core::source::{OutboxSource, RetireRequest};
use postrider_core::{Start, source::DefinitionChange};
use proptest::prelude::*;

use super::{Act, Play, everything, note, of_type, only};
use crate::support::{acquire, id};

async fn differences(play: &Play, destination: &str) -> Vec<Difference> {
    play.store.recount(&id(destination)).await.expect("a recount").differences
}

async fn assert_whole(play: &Play) {
    for row in play.store.destinations().await.expect("destinations").rows {
        let name = row.definition.id.as_str();
        assert_eq!(differences(play, name).await, [], "{name}");
    }
}

fn run(play: &Play, statement: &str) {
    play.fresh.connect().execute_batch(statement).expect("the statement");
}

/// Events of two types in turn, of 100 keys.
fn commit(play: &Play, count: u32) {
    let events: Vec<_> = (0..count)
        .map(|n| of_type(if n % 2 == 0 { "order.placed" } else { "bill.sent" }, n % 100))
        .collect();
    play.commit(&events);
}

/// Three buckets, settled at two destinations and `unrouted`.
async fn settled() -> Play {
    let play = Play::begin(&[everything("a"), only("b", "order.*")]).await;
    commit(&play, 10_000);
    play.settle_all("a", &[Act::Ack]).await;
    play.settle_all("b", &[Act::Ack, Act::Elsewhere]).await;
    play.settle_all("unrouted", &[Act::Elsewhere]).await;
    play
}

/// R098, R105: a cursor that was moved without a delivery is found, with what it jumped over.
#[tokio::test]
async fn a_cursor_that_jumped_is_found() {
    let play = settled().await;
    commit(&play, 500);
    assert_whole(&play).await;
    run(&play, "update outbox_cursor set position = position + 500 where destination = 'b'");
    assert_eq!(differences(&play, "a").await, [], "the other destination is as it was");
    let found = differences(&play, "b").await;
    assert_eq!(found.len(), 1);
    let first = &found[0];
    assert_eq!((first.first, first.last), (8_192, 10_500));
    assert_eq!((first.settled, first.found), (1_809, 2_309));
    // Of what the cursor leapt over only what is b's: odd numbers.
    let wanted: Vec<u64> = (10_001..=10_500).filter(|seq| seq % 2 == 1).collect();
    assert_eq!(first.requeue, wanted);
}

/// R105: a page of the log that is gone is found, and so is one that says something else.
#[tokio::test]
async fn exactly_the_damaged_buckets_are_found() {
    let play = settled().await;
    run(&play, "delete from outbox_settled where destination = 'a' and bucket = 1");
    run(
        &play,
        "update outbox_settled set id_sum = id_sum + 1 where destination = 'b' and bucket = 0",
    );
    let a = differences(&play, "a").await;
    assert_eq!(a.iter().map(|d| (d.first, d.last)).collect::<Vec<_>>(), [(4_096, 8_191)]);
    assert_eq!((a[0].settled, a[0].found, a[0].requeue.len()), (0, 4_096, 4_096));
    let b = differences(&play, "b").await;
    assert_eq!(b.iter().map(|d| (d.first, d.last)).collect::<Vec<_>>(), [(1, 4_095)]);
    assert_eq!((b[0].settled, b[0].found), (4_095, 4_095), "the sum alone tells");
    assert_eq!(differences(&play, "unrouted").await, []);
    let refused = play.store.recount(&id("nobody")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
}

/// What waits, was let go, or was erased is not sent again.
#[tokio::test]
async fn only_what_is_missing_is_sent_again() {
    let mut play = Play::begin(&[everything("a")]).await;
    commit(&play, 8);
    play.settle("a", &[Act::Ack, Act::Dead, Act::Retry, Act::Ack, Act::Dead, Act::Ack]).await;
    let rows = vec![RowKey { destination: id("a"), seq: 5 }];
    play.store.submit(&Submission { verb: Verb::Discard(rows), note: note() }).await.unwrap();
    play.carry_out().await;
    play.store.erase("order/3", &note()).await.unwrap();
    assert_whole(&play).await;
    run(&play, "delete from outbox_settled where destination = 'a'");
    let found = differences(&play, "a").await;
    assert_eq!(found[0].requeue, [1, 6]);
    let rows = found[0].requeue.iter().map(|seq| RowKey { destination: id("a"), seq: *seq });
    let verb = Verb::Requeue(rows.collect());
    play.store.submit(&Submission { verb, note: note() }).await.unwrap();
    play.carry_out().await;
    assert_eq!(play.store.counts(&id("a")).await.unwrap().retrying, 3, "2 and the one that was");
    assert_whole(&play).await;
}

/// R105: once all that was missing is asked for again the books agree, and until it has come out
/// nothing of it is called published. A part of it corrects nothing.
#[tokio::test]
async fn what_is_sent_again_is_booked_once() {
    let mut play = settled().await;
    run(&play, "delete from outbox_settled where destination = 'b' and bucket < 2");
    let found = differences(&play, "b").await;
    let row = |seq: &u64| RowKey { destination: id("b"), seq: *seq };
    let rows: Vec<RowKey> = found.iter().flat_map(|d| d.requeue.iter().map(row)).collect();
    let submit = async |rows: &[RowKey]| {
        let submission = Submission { verb: Verb::Requeue(rows.to_vec()), note: note() };
        play.store.submit(&submission).await.expect("a request");
    };
    submit(&rows[..1]).await;
    assert_eq!(differences(&play, "b").await.len(), 2, "a part of a bucket");
    submit(&rows[1..rows.len() - 1]).await;
    assert_eq!(differences(&play, "b").await.len(), 1, "the rest of the first bucket");
    submit(&rows[rows.len() - 1..]).await;
    assert_whole(&play).await;
    let mut filter = super::all();
    filter.key = Some("order/0".to_owned());
    filter.destination = Some(id("b"));
    filter.status = vec![Status::Published];
    let published = async |play: &Play| {
        let page = super::page(10_000, None);
        play.store.events(&filter, &page).await.expect("events").rows.len()
    };
    assert_eq!(published(&play).await, 18, "those of the last bucket");
    play.carry_out().await;
    assert_eq!(published(&play).await, 18);
    assert_whole(&play).await;
}

/// R105: the log of a bucket is corrected also where events flow meanwhile: a cursor that moves on in
/// another bucket changes nothing of it. Else each recount would have the bucket sent again.
#[tokio::test]
async fn what_is_missing_is_sent_again_once_though_the_cursor_moves() {
    let mut play = settled().await;
    run(&play, "delete from outbox_settled where destination = 'b' and bucket = 0");
    let found = differences(&play, "b").await;
    // A settlement commits between the look at the bucket and the request.
    run(
        &play,
        "create trigger settles after insert on outbox_request begin
            update outbox_cursor set position = position + 1 where destination = 'b';
        end",
    );
    let rows = found[0].requeue.iter().map(|seq| RowKey { destination: id("b"), seq: *seq });
    let verb = Verb::Requeue(rows.collect());
    play.store.submit(&Submission { verb, note: note() }).await.unwrap();
    play.carry_out().await;
    assert_eq!(differences(&play, "b").await, []);
}

/// R105: what is missing of the bucket that is being filled is booked though events of it flow meanwhile: nothing
/// is sent a second time, and what else was published stays so.
#[tokio::test]
async fn what_is_missing_of_a_bucket_that_fills_is_sent_again_once() {
    let mut play = settled().await;
    commit(&play, 500);
    run(&play, "update outbox_cursor set position = position + 500 where destination = 'b'");
    let found = differences(&play, "b").await;
    commit(&play, 10);
    play.settle_all("b", &[Act::Ack, Act::Elsewhere]).await;
    let rows = found[0].requeue.iter().map(|seq| RowKey { destination: id("b"), seq: *seq });
    let rows: Vec<RowKey> = rows.collect();
    let submit = async |play: &Play| {
        let submission = Submission { verb: Verb::Requeue(rows.clone()), note: note() };
        play.store.submit(&submission).await.expect("a request");
    };
    submit(&play).await;
    assert_whole(&play).await;
    let of = |column: &str| -> i64 {
        let one =
            format!("select {column} from outbox_settled where destination = 'b' and bucket = 2");
        play.fresh.connect().query_one(&one, (), |row| row.get(0)).unwrap()
    };
    assert_eq!((of("acked"), of("waiting")), (904 + 5, 250));
    play.carry_out().await;
    assert_eq!(play.store.counts(&id("b")).await.unwrap().retrying, 250);
    assert_whole(&play).await;
    // The same again is not booked again.
    submit(&play).await;
    assert_whole(&play).await;
}

/// What cannot be judged is counted: what was not passed yet, and what shares a bucket with what is gone.
#[tokio::test]
async fn what_cannot_be_judged_is_counted() {
    let play = Play::begin(&[everything("a")]).await;
    commit(&play, 5_000);
    let recounted = play.store.recount(&id("a")).await.unwrap();
    assert_eq!((recounted.not_passed, recounted.at_beginning), (5_000, 0));
    play.settle_all("a", &[Act::Ack]).await;
    let recounted = play.store.recount(&id("a")).await.unwrap();
    assert_eq!(recounted, Recounted::default());
    let gone = "delete from outbox where seq < 10;
        update outbox_meta set value = '10' where key = 'history_start'";
    run(&play, gone);
    let recounted = play.store.recount(&id("a")).await.unwrap();
    assert_eq!((recounted.differences.len(), recounted.at_beginning), (0, 4_095 - 9));
}

/// What nobody takes is `unrouted`'s to send again, and nobody else's.
#[tokio::test]
async fn unrouted_misses_only_what_nobody_takes() {
    let play = Play::begin(&[only("b", "order.*")]).await;
    commit(&play, 4);
    run(&play, "update outbox_cursor set position = 4");
    assert_eq!(differences(&play, "b").await[0].requeue, [1, 3]);
    assert_eq!(differences(&play, "unrouted").await[0].requeue, [2, 4]);
}

/// Purged, rewound, redriven, added in the middle: none of it is damage.
#[tokio::test]
async fn what_operators_do_is_no_damage() {
    let mut play = settled().await;
    let change = DefinitionChange {
        expected: None,
        put: vec![(everything("late"), Start::Now)],
        remove: Vec::new(),
    };
    OutboxSource::apply(&play.store, &change).await.unwrap();
    commit(&play, 3_000);
    for name in ["a", "b", "late"] {
        let cycle: &[Act] = if name == "b" { &[Act::Ack, Act::Elsewhere] } else { &[Act::Ack] };
        play.settle_all(name, cycle).await;
    }
    play.settle_all("unrouted", &[Act::Elsewhere]).await;
    assert_whole(&play).await;
    let rewind =
        |to| Submission { verb: Verb::Rewind { destination: id("late"), to }, note: note() };
    play.store.submit(&rewind(Start::Beginning)).await.unwrap();
    play.carry_out().await;
    assert_whole(&play).await;
    play.settle_all("late", &[Act::Ack, Act::Drop]).await;
    assert_whole(&play).await;
    for rows_max in [100, 5_000, 3_000] {
        let retire = RetireRequest {
            lease: play.lease.clone(),
            older_than: Duration::ZERO,
            rows_max,
            only: None,
        };
        assert!(play.store.retire(&retire).await.unwrap().rows > 0);
        assert_whole(&play).await;
    }
    play.store.submit(&rewind(Start::Beginning)).await.unwrap();
    play.carry_out().await;
    assert_whole(&play).await;
    play.settle_all("late", &[Act::Ack]).await;
    assert_whole(&play).await;
    commit(&play, 2_000);
    play.settle_all("late", &[Act::Ack]).await;
    run(&play, "delete from outbox_settled where destination = 'late' and bucket = 3");
    let found = differences(&play, "late").await;
    assert_eq!(found.len(), 1, "and damage is still found");
    play.store.release(std::slice::from_ref(&play.lease)).await.unwrap();
    assert!(acquire(&play.store, Duration::from_secs(1)).await.is_some());
}

/// What is named at once is what one request takes; the next recount names the rest.
#[tokio::test]
async fn a_recount_names_what_one_request_takes() {
    let play = Play::begin(&[everything("a")]).await;
    play.fresh
        .connect()
        .execute(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
            with recursive n (i) as (select 1 union all select i + 1 from n where i < 120000)
            select 'order', i, 'order.placed', '{}' from n",
            (),
        )
        .unwrap();
    run(&play, "update outbox_cursor set position = 120000 where destination = 'a'");
    let found = differences(&play, "a").await;
    let named: usize = found.iter().map(|difference| difference.requeue.len()).sum();
    assert!(named <= Submission::ROWS_MAX && named > Submission::ROWS_MAX - 4_096, "{named}");
}

fn some_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Ack),
        Just(Act::Elsewhere),
        Just(Act::Drop),
        Just(Act::Erased),
        Just(Act::Retry),
        Just(Act::Dead)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// Whatever became of events, the books of an undamaged store agree; and whichever bucket loses
    /// its page, that one is found.
    #[test]
    fn the_books_agree_until_a_page_is_lost(
        cycle in proptest::collection::vec(some_act(), 1..7),
        steps in proptest::collection::vec(1usize..6_000, 1..4),
        lost in 0u64..3,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let play = Play::begin(&[everything("a")]).await;
            commit(&play, 9_000);
            for step in steps {
                let left = play.fetch("a").await.len();
                let acts: Vec<Act> =
                    cycle.iter().copied().cycle().take(step.min(left)).collect();
                play.settle("a", &acts).await;
                assert_eq!(differences(&play, "a").await, []);
            }
            let lose = format!(
                "delete from outbox_settled where destination = 'a' and bucket = {lost}"
            );
            let there = play.fresh.connect().execute(&lose, ()).expect("the statement");
            let found: Vec<u64> =
                differences(&play, "a").await.iter().map(|d| d.first / 4_096).collect();
            assert_eq!(found, if there > 0 { vec![lost] } else { vec![] });
        });
    }
}
