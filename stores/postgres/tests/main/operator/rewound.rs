//! A rewind beside transactions that are open for long.

use postrider_core::operate::{Operator, Submission, Verb};
use postrider_core::{NewEvent, Start, Timestamp};
use postrider_postgres::Outbox;

use super::{Act, Play, everything, note, of_type};
use crate::support::id;

fn orders(count: u32) -> Vec<NewEvent> {
    (0..count).map(|n| of_type("order.placed", n)).collect()
}

/// INV-1: a rewind goes back to where it was asked to, not to the oldest transaction that is open on the server; and what such a
/// transaction has written far below comes when it commits.
#[tokio::test]
async fn a_rewind_does_not_go_back_to_the_oldest_open_transaction() {
    let Some(mut play) = Play::begin(&[everything("a")]).await else { return };
    let mut client = play.fresh.connect().await;
    let tx = client.transaction().await.unwrap();
    let open = of_type("order.open", 1);
    let outbox = Outbox::named(play.fresh.names.clone());
    outbox.enqueue(&tx, &open).await.expect("staged");
    // A fetch after the first ticks again, and so the floors rise to what was given.
    for events in [5_000, 4_000, 1] {
        play.commit(&orders(events)).await;
        play.settle_all("a", &[Act::Ack]).await;
    }
    play.commit(&orders(10)).await;
    play.settle_all("a", &[Act::Ack]).await;
    let first =
        "select (1000000 * extract(epoch from created_at))::bigint from {outbox} where seq = 9003";
    let moment = Timestamp::from_micros(play.fresh.number(first).await);
    let verb = Verb::Rewind { destination: id("a"), to: Start::At(moment) };
    play.store.submit(&Submission { verb, note: note() }).await.unwrap();
    play.carry_out().await;

    let again = play.fetch("a").await;
    let least = again.iter().map(|row| row.row.seq).min().unwrap();
    assert_eq!((least, again.len()), (8_192, 9_012 - 8_191), "from the beginning of a bucket on");
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, []);
    tx.commit().await.unwrap();
    let late: Vec<_> = play.fetch("a").await.iter().map(|row| row.row.id).collect();
    assert_eq!(late, [open.event().id], "what was open is neither missed nor joined by others");
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, []);
}
