//! Rows that are vouched for and name another partition than their key's. There nothing is known of the key's other
//! events, so they are no event of that partition's.

use postrider_core::source::{DefinitionChange, FetchedRow};
use postrider_core::waiting::Reason;
use postrider_core::{NewEvent, OutboxSource, Payload, Start};
use postrider_postgres::{Names, init};
use uuid::Uuid;

use crate::change::floors::at_rest;
use crate::operator::{Act, Play, everything, note, of_type, only};
use crate::support::{Fresh, connect, url};

/// How many are refused.
fn strange(rows: &[FetchedRow]) -> usize {
    rows.iter().filter(|row| row.event.is_err()).count()
}

/// A vouched row of a key, so many partitions away from the key's own.
async fn stray(fresh: &Fresh, key: &str, by: u16, n: u32) {
    fresh
        .run(&format!(
            "insert into {{outbox}} (vouched, partition, aggregate_type, aggregate_id, event_type, payload)
             select true, ({{outbox_partition_of}}('order/' || {key}) + {by}) % 4, 'order', {key}, 'order.placed', '{n}'"
        ))
        .await;
}

/// INV-3: what a role with `vouched` puts into another partition is not published there, but refused with the reason,
/// and with the event, for whoever wants it sent all the same. What it puts into the right one is an event.
#[tokio::test]
async fn a_row_in_another_partition_than_its_keys_is_refused_with_its_event() {
    let Some(play) = Play::wide(4, &[everything("a")]).await else { return };
    play.commit(&[of_type("order.placed", 42)]).await;
    for (key, by) in [("'42'", 1), ("'42'", 0), ("'ä🐎'", 0), ("'ä🐎'", 3), ("repeat('x', 240)", 2)]
    {
        stray(&play.fresh, key, by, u32::from(by)).await;
    }
    let rows = play.fetch_all("a").await;
    assert_eq!(rows.len(), 6);
    let (mut taken, mut refused) = (0, 0);
    for row in rows {
        match row.event {
            Ok(event) => {
                taken += 1;
                assert!(
                    matches!(&event.payload, Payload::Json(text) if **text != *b"1"),
                    "{event:?}"
                );
            }
            Err(malformed) => {
                refused += 1;
                assert_eq!(malformed.reason, Reason::Malformed);
                for word in ["vouched", "redrive", "late"] {
                    assert!(malformed.detail.contains(word), "{malformed:?}");
                }
                let event = malformed.event.expect("it can be read");
                assert_eq!(event.key_hash(), row.key_hash);
                assert_eq!(event.id, row.row.id);
            }
        }
    }
    assert_eq!((taken, refused), (3, 3));
}

/// After `repair partitions` older events stay in the partitions that they had: a destination that begins with them
/// gets them as events.
#[tokio::test]
async fn what_a_repair_left_where_it_was_is_no_stranger() {
    let Some(mut play) = Play::wide(4, &[everything("a")]).await else { return };
    let older = "insert into {outbox} (vouched, partition, aggregate_type, aggregate_id, event_type, payload)
        select true, ({outbox_partition_of}('order/' || n) + 1) % 4, 'order', n, 'order.placed', '1'
        from generate_series(1, 4200) n";
    play.fresh.run(older).await;
    assert_eq!(strange(&play.fetch_all("a").await), 4_200, "the control");
    play.settle_all("a", &[Act::Ack]).await;
    play.settle_all("unrouted", &[Act::Elsewhere]).await;
    at_rest(&play, &["a", "unrouted"], 4_200).await;
    play.store.release(&play.leases).await.expect("release");
    play.fresh.run("update {outbox_meta} set value = '1' where key = 'hash'").await;
    let moved = play.store.repair_partitions(&note()).await.unwrap();
    assert!(moved < 200, "most is below the floor: {moved}");
    let put = vec![(only("b", "order.*"), Start::Beginning)];
    let change = DefinitionChange { put, ..DefinitionChange::default() };
    play.store.apply(&change).await.expect("apply");
    play.take_leases().await;
    let rows = play.fetch_all("b").await;
    assert!(rows.len() > 4_200);
    assert_eq!(strange(&rows), 0);
    // What comes after the repair is judged again.
    stray(&play.fresh, "'7'", 2, 7).await;
    assert_eq!(strange(&play.fetch_all("b").await), 1);
}

/// A database whose encoding is another hashes other bytes than this program reads. Its own word decides: its events
/// are events, and strangers are strangers.
#[tokio::test]
async fn another_encoding_makes_no_event_a_stranger() {
    let Some(server) = url() else { return };
    let name = format!("t{}", &Uuid::now_v7().simple().to_string()[4..]);
    let make = format!("create database {name} encoding 'LATIN1' locale 'C' template template0");
    let client = connect(&server).await;
    client.batch_execute(&make).await.expect("a database");
    let fresh = Fresh::at(
        &format!("{}/{name}", server.rsplit_once('/').expect("a path").0),
        Names::default(),
    );
    init(&fresh.url, &fresh.setup(4)).await.expect("the tables");
    let play = Play::on(fresh, 4, &[everything("a")]).await.expect("a store");
    let named = |n: u32| NewEvent::new("order", format!("ä{n}"), "order.placed").json(&n).unwrap();
    play.commit(&(0..40).map(named).collect::<Vec<_>>()).await;
    stray(&play.fresh, "'ä7'", 1, 1).await;
    let rows = play.fetch_all("a").await;
    assert_eq!((rows.len(), strange(&rows)), (41, 1));
    drop(play);
    let drop = format!("drop database {name} with (force)");
    client.batch_execute(&drop).await.expect("dropped");
}
