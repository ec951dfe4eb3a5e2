//! Numbers that were set back while producers are at work: whoever has drawn one is waited for, and is never passed.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::operate::{Level, Operator};
use postrider_core::snapshot::TICK_PAUSE;
use postrider_core::{Code, ErrorKind, EventId, NewEvent, OutboxSource, Timestamp};
use postrider_postgres::Outbox;
use tokio_postgres::Transaction;

use super::{Act, Play, everything, note, of_type};

fn orders(count: u32) -> Vec<NewEvent> {
    (0..count).map(|n| of_type("order.placed", n)).collect()
}

/// A store with a cursor above 100, whose sequence began again at 1.
async fn set_back() -> Option<Play> {
    let play = Play::wide(1, &[everything("a")]).await?;
    for _ in 0..3 {
        // A fetch after the first ticks again, and so the floors rise to what was given.
        play.commit(&orders(60)).await;
        play.settle_all("a", &[Act::Ack]).await;
        play.settle_all("unrouted", &[Act::Elsewhere]).await;
        // waits: for the next tick to be due
        tokio::time::sleep(TICK_PAUSE).await;
    }
    play.fresh.run("select setval({text:outbox_seq}, 1, false)").await;
    Some(play)
}

async fn enqueue(play: &Play, tx: &Transaction<'_>) -> EventId {
    let event = of_type("order.open", 1);
    Outbox::named(play.fresh.names.clone()).enqueue(tx, &event).await.expect("staged");
    event.event().id
}

async fn let_go(play: &Play) {
    play.store.release(&play.leases).await.expect("release");
}

async fn delivered(play: &mut Play) -> BTreeSet<EventId> {
    play.take_leases().await;
    play.fetch_all("a").await.iter().map(|row| row.row.id).collect()
}

/// Until somebody waits for the producers, or two seconds where nobody does.
async fn somebody_waits(play: &Play) {
    let waits = "select count(*) from pg_locks where not granted and mode = 'ShareLock'
        and relation = {text:outbox}::regclass";
    for _ in 0..200 {
        if play.fresh.number(waits).await > 0 {
            return;
        }
        // waits: for the other side to come to its lock.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// INV-1, F13: a producer has drawn a number that a cursor has passed, and is open while the sequence is repaired: he is
/// waited for, and his event gets a new number as others do.
#[tokio::test]
async fn a_repair_waits_for_who_has_drawn_a_number() {
    let Some(mut play) = set_back().await else { return };
    let mut client = play.fresh.connect().await;
    let tx = client.transaction().await.unwrap();
    let open = enqueue(&play, &tx).await;
    let committed = orders(1);
    play.commit(&committed).await;
    let_go(&play).await;
    let ends = async {
        somebody_waits(&play).await;
        tx.commit().await.unwrap();
    };
    let by = note();
    let (done, ()) = tokio::join!(play.store.repair_numbers(&by), ends);
    let done = done.unwrap();
    let delivered = delivered(&mut play).await;
    assert!(delivered.contains(&committed[0].event().id));
    assert!(delivered.contains(&open), "an event of an open transaction was passed");
    assert_eq!((done.before, done.renumbered, done.cursors), (2, 2, 2));
}

/// INV-1, F13: the same for a copy that is adopted, beside a transaction that is prepared: while it is, nothing is changed, and
/// it is named.
#[tokio::test]
async fn an_adoption_waits_for_who_has_drawn_a_number() {
    let Some(mut play) = set_back().await else { return };
    play.fresh
        .run("update {outbox_meta} set value = '1' where key in ('cluster', 'database')")
        .await;
    let name = format!("open in {}", play.fresh.names.schema());
    let mut client = play.fresh.connect().await;
    let tx = client.transaction().await.unwrap();
    let open = enqueue(&play, &tx).await;
    tx.batch_execute(&format!("prepare transaction '{name}'")).await.unwrap();
    _ = tx.rollback().await;
    let_go(&play).await;
    let refused = play.store.adopt(&note()).await;
    client.batch_execute(&format!("commit prepared '{name}'")).await.unwrap();
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert!(
        refused.to_string().contains(&format!("the prepared transaction {name}, for ")),
        "{refused}"
    );
    assert_eq!(play.audited().await, []);
    play.store.adopt(&note()).await.unwrap();
    assert!(
        delivered(&mut play).await.contains(&open),
        "an event of an open transaction was passed"
    );
}

/// F13: a sequence that was carried past every cursor before anybody looked: `doctor` finds what a relay stops at, and the
/// repair says what it did though it raised nothing.
#[tokio::test]
async fn numbers_that_were_carried_past_again_are_found_and_counted() {
    let Some(play) = set_back().await else { return };
    for part in orders(400).chunks(40) {
        play.commit(part).await;
    }
    let numbers = async || {
        let found = play.store.doctor(Timestamp::now()).await.unwrap();
        found.into_iter().find(|finding| finding.subject == "numbers").unwrap()
    };
    let found = numbers().await;
    assert_eq!((found.level, found.code), (Level::Critical, Some(Code::Rewound)), "{found:?}");
    let_go(&play).await;
    let done = play.store.repair_numbers(&note()).await.unwrap();
    assert_eq!((done.before, done.after, done.cursors), (400, 400, 2));
    assert!(done.renumbered > 100, "{done:?}");
    assert_eq!(numbers().await.level, Level::Good);
    let again = play.store.repair_numbers(&note()).await.unwrap();
    assert_eq!((again.renumbered, again.cursors), (0, 0));
}
