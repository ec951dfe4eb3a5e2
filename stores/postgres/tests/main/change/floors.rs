//! Where destinations begin anew after a repair: each where it stood, as far as that is known.

use std::time::{Duration, Instant};

use postrider_core::operate::Operator;
use postrider_core::source::DefinitionChange;
use postrider_core::{NewEvent, OutboxSource, Start};

use crate::operator::{Act, Play, everything, note, of_type};
use crate::support::id;

/// Other tests' transactions hold the grounds back for as long as they take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

fn orders(count: u32) -> Vec<NewEvent> {
    (0..count).map(|n| of_type("order.placed", n)).collect()
}

async fn let_go(play: &Play) {
    play.store.release(&play.leases).await.expect("release");
}

/// So many rounds of a thousand events, settled by the destinations.
async fn settled(play: &Play, rounds: usize, by: &[(&str, Act)]) {
    for _ in 0..rounds {
        play.commit(&orders(1_000)).await;
        for (destination, act) in by {
            play.settle_all(destination, &[*act]).await;
        }
    }
}

/// A few events at a time, each after another tick, until destinations have passed everything up to a number:
/// strangers' transactions hold the grounds back.
pub(crate) async fn at_rest(play: &Play, destinations: &[&str], least: i64) {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let grounds = destinations.iter().map(|of| ground(play, of));
        let grounds = futures_util::future::join_all(grounds).await;
        if grounds.into_iter().all(|ground| ground >= least) {
            return;
        }
        // waits: for the next tick, which is taken 20 times a second at most.
        tokio::time::sleep(Duration::from_millis(60)).await;
        play.commit(&orders(20)).await;
        for destination in destinations {
            play.settle_all(destination, &[Act::Ack]).await;
        }
    }
    panic!("the grounds do not rise");
}

/// Up to where a destination has passed everything for good, in every partition.
async fn ground(play: &Play, destination: &str) -> i64 {
    let of =
        format!("select min(ground) from {{outbox_cursor}} where destination = '{destination}'");
    play.fresh.number(&of).await
}

async fn all(play: &Play) -> usize {
    play.fresh.number("select count(*) from {outbox}").await as usize
}

/// The last number of the last bucket that a destination has passed whole, in every partition.
async fn whole(play: &Play, destination: &str) -> usize {
    ((ground(play, destination).await + 1) / 4_096 * 4_096 - 1) as usize
}

/// A destination that is far behind does not have the others deliver again what they had; and what each has
/// delivered below its own floor stays proved.
#[tokio::test]
async fn each_destination_has_a_floor_of_its_own_when_keys_move() {
    let Some(mut play) = Play::wide(4, &[everything("a"), everything("b")]).await else { return };
    settled(&play, 10, &[("a", Act::Ack), ("unrouted", Act::Elsewhere)]).await;
    at_rest(&play, &["a", "unrouted"], 8_192).await;
    // As if another server had sent the keys elsewhere.
    play.fresh
        .run(
            "set postrider.repair = 'on';
            update {outbox} set partition = (partition + 1) % 4;
            update {outbox_settled} set partition = 10 + (partition + 1) % 4;
            update {outbox_settled} set partition = partition - 10;
            update {outbox_cursor} set partition = 10 + (partition + 1) % 4;
            update {outbox_cursor} set partition = partition - 10;
            update {outbox_meta} set value = '1' where key = 'hash'",
        )
        .await;
    assert_eq!(
        play.store.recount(&id("a")).await.unwrap().differences,
        [],
        "the control: all is counted"
    );
    let acked =
        "select sum(acked)::bigint from {outbox_settled} where destination = 'a' and bucket < 2";
    let before = play.fresh.number(acked).await;
    let_go(&play).await;
    let (whole, all) = (whole(&play, "a").await, all(&play).await);
    assert!(whole >= 8_191, "the control: {whole}");
    assert_eq!(play.store.repair_partitions(&note()).await.unwrap(), all as u64);
    assert_eq!(play.fresh.number(acked).await, before, "what became of them is still known");
    play.store.open().await.unwrap();
    play.take_leases().await;
    let again = play.fetch_all("a").await.len();
    assert_eq!(again, all - whole, "what lies above the last whole bucket");
    assert_eq!(play.fetch_all("b").await.len(), all, "which has had none");
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, []);
    for destination in ["a", "b"] {
        play.settle_all(destination, &[Act::Ack]).await;
        assert_eq!(
            play.store.recount(&id(destination)).await.unwrap().differences,
            [],
            "{destination}"
        );
    }
    let audit = play.audited().await;
    assert!(audit[0].1.contains(&format!("{whole} (a), 0 (b)")), "{audit:?}");
}

/// A bucket that had lost an event before stays one that the recount sends again, whole.
#[tokio::test]
async fn what_was_lost_before_keys_moved_is_still_found() {
    let Some(play) = Play::wide(2, &[everything("a"), everything("b")]).await else { return };
    settled(&play, 9, &[("a", Act::Ack)]).await;
    at_rest(&play, &["a"], 8_192).await;
    play.fresh
        .run(
            "update {outbox_settled} set count = count - 1, acked = acked - 1
                where destination = 'a' and bucket = 1 and partition = 0;
            update {outbox_meta} set value = '1' where key = 'hash'",
        )
        .await;
    let_go(&play).await;
    play.store.repair_partitions(&note()).await.unwrap();
    let differences = play.store.recount(&id("a")).await.unwrap().differences;
    let found: usize = differences.iter().map(|of| of.requeue.len()).sum();
    assert_eq!(found, 4_096, "{differences:?}");
}

/// After `adopt` a destination goes on where it stood: nothing that it had delivered comes again, and nothing
/// that a destination which began at `now` is not owed.
#[tokio::test]
async fn nothing_below_a_floor_comes_again() {
    let Some(mut play) = Play::begin(&[everything("a")]).await else { return };
    settled(&play, 5, &[("a", Act::Ack), ("unrouted", Act::Elsewhere)]).await;
    let change = DefinitionChange {
        put: vec![(everything("new"), Start::Now)],
        ..DefinitionChange::default()
    };
    OutboxSource::apply(&play.store, &change).await.expect("apply");
    let destinations = ["a", "new", "unrouted"];
    at_rest(&play, &destinations, 4_200).await;
    play.commit(&orders(7)).await;
    let mut due = Vec::new();
    for destination in destinations {
        let ground = ground(&play, destination).await as usize;
        assert_ne!((ground + 1) % 4_096, 0, "the control: it stands within a bucket");
        due.push((destination, all(&play).await - ground));
    }
    let_go(&play).await;
    play.fresh
        .run("update {outbox_meta} set value = '1' where key in ('cluster', 'database')")
        .await;
    play.store.adopt(&note()).await.unwrap();
    play.take_leases().await;
    for (destination, due) in due {
        let found = play.fetch_all(destination).await.len();
        assert_eq!(found, due, "{destination}: what lies above its ground, and no bucket more");
        play.settle_all(destination, &[Act::Ack]).await;
        assert_eq!(
            play.store.recount(&id(destination)).await.unwrap().differences,
            [],
            "{destination}"
        );
    }
}

/// Where log and outbox do not agree, a cursor begins a bucket further back, as nobody knows what was lost.
#[tokio::test]
async fn a_bucket_that_is_not_counted_comes_again() {
    let Some(mut play) = Play::begin(&[everything("a")]).await else { return };
    settled(&play, 5, &[("a", Act::Ack)]).await;
    at_rest(&play, &["a"], 4_200).await;
    let (whole, all) = (whole(&play, "a").await, all(&play).await);
    play.fresh
        .run(
            "update {outbox_settled} set count = count - 1, acked = acked - 1
                where destination = 'a' and acked > 0;
            update {outbox_meta} set value = '1' where key in ('cluster', 'database')",
        )
        .await;
    let_go(&play).await;
    play.store.adopt(&note()).await.unwrap();
    play.take_leases().await;
    assert_eq!(play.fetch("a").await.len(), all - whole);
}
