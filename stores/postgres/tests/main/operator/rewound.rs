//! A rewind beside transactions that are open for long.

use std::time::{Duration, Instant};

use postrider_core::operate::{Operator, Submission, Verb};
use postrider_core::{NewEvent, Start, Timestamp};
use postrider_postgres::Outbox;

use super::{Act, Play, everything, note, of_type};
use crate::support::id;

/// Other tests' transactions hold the floor back for as long as they take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

fn orders(count: u32) -> Vec<NewEvent> {
    (0..count).map(|n| of_type("order.placed", n)).collect()
}

/// A few events at a time, each after another tick, until the cursor has a floor above 9,000, and no stranger is pending that
/// ran before: it may end, and would be asked for from there on.
async fn at_rest(play: &Play, xid: &str) {
    let rests = format!(
        "select count(*) from {{outbox_cursor}} c where destination = 'a' and floor > 9000 and not exists (
            select from unnest(c.pending_xids, c.pending_floors) p (xid, floor)
            where p.floor < 9000 and p.xid <> {xid})"
    );
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        play.settle_all("a", &[Act::Ack]).await;
        if play.fresh.number(&rests).await > 0 {
            return;
        }
        // waits: for the next tick, which is taken 20 times a second at most.
        tokio::time::sleep(Duration::from_millis(60)).await;
        play.commit(&orders(20)).await;
    }
    panic!("the floor does not rise");
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
    let xid = tx.query_one("select pg_current_xact_id()::text", &[]).await.unwrap();
    play.commit(&orders(9_000)).await;
    at_rest(&play, xid.get(0)).await;
    let first = play.fresh.number("select max(seq) + 1 from {outbox}").await;
    play.commit(&orders(10)).await;
    play.settle_all("a", &[Act::Ack]).await;
    let moment = format!(
        "select (1000000 * extract(epoch from created_at))::bigint from {{outbox}} where seq = {first}"
    );
    let moment = Timestamp::from_micros(play.fresh.number(&moment).await);
    let verb = Verb::Rewind { destination: id("a"), to: Start::At(moment) };
    play.store.submit(&Submission { verb, note: note() }).await.unwrap();
    play.carry_out().await;

    let again = play.fetch("a").await;
    let least = again.iter().map(|row| row.row.seq).min().unwrap();
    let begins = first.cast_unsigned() / 4_096 * 4_096;
    assert_eq!(least, begins, "from the beginning of a bucket on");
    assert_eq!(again.len() as u64, first.cast_unsigned() + 10 - begins);
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, []);
    tx.commit().await.unwrap();
    let late: Vec<_> = play.fetch("a").await.iter().map(|row| row.row.id).collect();
    assert_eq!(late, [open.event().id], "what was open is neither missed nor joined by others");
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, []);
}
