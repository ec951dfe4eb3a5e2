//! After the server's numbers were set back: the sequence is raised, cursors begin anew, and another place is
//! adopted.

use std::collections::BTreeSet;

use postrider_core::operate::Operator;
use postrider_core::source::{FetchRequest, Page};
use postrider_core::{ErrorKind, Lease, NewEvent, OutboxSource, Result};

use super::told;
use crate::operator::{Act, Play, everything, note, of_type};
use crate::support::id;

fn orders(count: u32) -> Vec<NewEvent> {
    (0..count).map(|n| of_type("order.placed", n)).collect()
}

/// The page behind a destination's cursor.
async fn page(play: &Play, lease: &Lease, destination: &str) -> Result<Page> {
    let loaded = play.store.load(lease, &id(destination)).await.unwrap();
    let request = FetchRequest {
        lease: lease.clone(),
        destinations: vec![id(destination)],
        after: loaded.cursor,
        until: None,
        rows_max: 1_000,
        bytes_max: 1 << 20,
    };
    play.store.fetch(&request).await
}

async fn let_go(play: &Play) {
    play.store.release(&play.leases).await.expect("release");
}

/// After a restore the sequence may lie behind what was passed: it is raised above all of it, and
/// never while a relay may have read further.
#[tokio::test]
async fn the_sequence_is_raised_above_what_was_passed() {
    let Some(mut play) = Play::begin(&[everything("a")]).await else { return };
    play.commit(&orders(5)).await;
    play.settle("a", &[Act::Ack, Act::Ack, Act::Ack, Act::Dead]).await;
    let (before, after) = {
        let refused = play.store.repair_sequence(&note()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy);
        assert!(refused.to_string().contains(play.lease.owner.as_str()), "{refused}");
        let_go(&play).await;
        assert_eq!(play.store.repair_sequence(&note()).await.unwrap(), (5, 5), "nothing is wrong");
        play.fresh.run("delete from {outbox} where seq > 2").await;
        play.fresh.run("select setval({text:outbox_seq}, 2)").await;
        play.store.repair_sequence(&note()).await.unwrap()
    };
    assert_eq!(before, 2);
    assert!(after >= 4, "{after}");
    assert_eq!(play.store.repair_sequence(&note()).await.unwrap(), (after, after));
    play.commit(&orders(1)).await;
    let newest = play.fresh.number("select max(seq) from {outbox}").await;
    assert_eq!(newest.cast_unsigned(), after + 1);
    assert_eq!(told(&play.audited().await), [("repair sequence", &*format!("from 2 to {after}"))]);
    play.take_leases().await;
    let seqs: Vec<i64> =
        play.fetch("a").await.iter().map(|row| row.row.seq.cast_signed()).collect();
    assert_eq!(seqs, [1, 2, newest], "what was passed comes again, from a bucket's beginning");
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, []);
}

/// INV-1: events that a sequence which began again at 1 gave the numbers of others are not lost: they get new
/// ones, and each is delivered.
#[tokio::test]
async fn events_of_a_sequence_that_began_again_are_not_lost() {
    let Some(mut play) = Play::wide(4, &[everything("a"), everything("b")]).await else { return };
    play.commit(&orders(60)).await;
    play.settle_all("a", &[Act::Ack]).await;
    play.settle_all("unrouted", &[Act::Elsewhere]).await;
    // A fetch after the first ticks again, and so the floors rise to what was given.
    play.commit(&orders(60)).await;
    play.settle_all("a", &[Act::Ack]).await;
    let_go(&play).await;
    play.fresh.run("select setval({text:outbox_seq}, 1, false)").await;
    let again: Vec<NewEvent> = (0..40).map(|n| of_type("order.again", n)).collect();
    play.commit(&again).await;
    assert_eq!(play.fresh.number("select max(seq) from {outbox}").await, 120);
    let (before, _) = play.store.repair_sequence(&note()).await.unwrap();
    assert_eq!(before, 40);
    let twice = "select count(*) - count(distinct seq) from {outbox}";
    assert_eq!(play.fresh.number(twice).await, 0);
    play.take_leases().await;
    for destination in ["a", "b"] {
        let mut delivered = Vec::new();
        for row in play.fetch_all(destination).await {
            delivered.push(row.row.id);
        }
        for event in &again {
            assert!(delivered.contains(&event.event().id), "{destination}");
        }
        play.settle_all(destination, &[Act::Ack]).await;
        assert_eq!(play.store.recount(&id(destination)).await.unwrap().differences, []);
    }
}

/// INV-1: a sequence that began again while no relay ran, and was carried past every cursor before the next
/// one did, is found by the rows: nothing is read, the way out is told, and behind it each event is delivered.
/// Without the look (the control is the fetch after a look that found nothing) they are passed unread.
#[tokio::test]
async fn a_sequence_that_was_set_back_and_carried_past_again_is_found() {
    let Some(mut play) = Play::wide(2, &[everything("a")]).await else { return };
    for _ in 0..3 {
        // A fetch after the first ticks again, and so the floors rise to what was given.
        play.commit(&orders(60)).await;
        play.settle_all("a", &[Act::Ack]).await;
        play.settle_all("unrouted", &[Act::Elsewhere]).await;
    }
    assert_eq!(play.fetch_all("a").await.len(), 0);
    play.fresh.run("select setval({text:outbox_seq}, 1, false)").await;
    let again: Vec<NewEvent> = (0..400).map(|n| of_type("order.again", n)).collect();
    for part in again.chunks(40) {
        play.commit(part).await;
    }
    assert_eq!(play.fresh.number("select last_value from {outbox_seq}").await, 400);
    let unread = play.fetch_all("a").await.len();
    assert!(unread < 350, "the control: whoever has looked already reads only {unread}");
    let_go(&play).await;
    play.take_leases().await;
    let mut refused = 0;
    for lease in &play.leases {
        for _ in 0..2 {
            let error = page(&play, lease, "a").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Rewound);
            assert!(error.to_string().contains("postrider repair sequence"), "{error}");
            refused += 1;
        }
    }
    assert_eq!(refused, 4);
    let_go(&play).await;
    let before = play.fresh.number("select count(*) from {outbox}").await;
    assert_eq!(play.store.repair_sequence(&note()).await.unwrap().0, 400);
    assert!(told(&play.audited().await)[0].1.contains("events got new numbers"));
    assert_eq!(play.fresh.number("select count(*) from {outbox}").await, before);
    play.take_leases().await;
    let delivered: BTreeSet<_> = play.fetch_all("a").await.iter().map(|row| row.row.id).collect();
    for event in &again {
        assert!(delivered.contains(&event.event().id), "{:?}", event.event().id);
    }
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, []);
    let_go(&play).await;
    let (stands, after) = play.store.repair_sequence(&note()).await.unwrap();
    assert_eq!(stands, after, "nothing is wrong any more");
    play.take_leases().await;
    assert_eq!(play.fetch_all("a").await.len(), 0);
}

/// INV-1: one look is for all destinations of a partition, whoever asks first: what one of them would pass is found
/// when another begins to read.
#[tokio::test]
async fn what_one_destination_would_pass_is_found_when_another_reads() {
    let Some(mut play) = Play::wide(1, &[everything("a"), everything("b")]).await else { return };
    for _ in 0..3 {
        // A fetch after the first ticks again, and so the floors rise to what was given.
        play.commit(&orders(60)).await;
        play.settle_all("a", &[Act::Ack]).await;
    }
    play.fresh.run("select setval({text:outbox_seq}, 1, false)").await;
    for part in orders(400).chunks(40) {
        play.commit(part).await;
    }
    let_go(&play).await;
    play.take_leases().await;
    for destination in ["b", "a"] {
        let error = page(&play, &play.leases[0], destination).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rewound, "{destination}");
    }
    let_go(&play).await;
    play.store.repair_sequence(&note()).await.unwrap();
    play.take_leases().await;
    for destination in ["b", "a"] {
        page(&play, &play.leases[0], destination)
            .await
            .expect("nothing is below a cursor any more");
    }
}

/// INV-1: a page is not handed out before the look has succeeded, since a cursor that moved on hides what it is about.
#[tokio::test]
async fn a_look_that_fails_refuses_the_page() {
    let Some(play) = Play::wide(1, &[everything("a")]).await else { return };
    play.commit(&orders(3)).await;
    let client = play.fresh.session().await;
    let name = play.fresh.sql("{outbox_gone_back}(smallint[], bigint[], bigint[])");
    let definition = format!("select pg_get_functiondef('{name}'::regprocedure)");
    let definition: String = client.query_one(&definition, &[]).await.unwrap().get(0);
    let broken = definition.replacen("\nbegin", "\nbegin raise 'no look';", 1);
    client.batch_execute(&broken).await.unwrap();
    let error = page(&play, &play.leases[0], "a").await.unwrap_err();
    assert!(error.to_string().contains("no look"), "{error}");
    client.batch_execute(&definition).await.unwrap();
    assert_eq!(page(&play, &play.leases[0], "a").await.expect("it looks again").rows.len(), 3);
}

/// F13: on another server nothing is published before it is adopted; then cursors begin anew at their floors,
/// transactions of the old count that lie beyond the new one's are found, and nothing is lost.
#[tokio::test]
async fn another_place_is_adopted_and_its_cursors_begin_anew() {
    let Some(mut play) = Play::wide(2, &[everything("a")]).await else { return };
    play.commit(&orders(30)).await;
    play.settle_all("a", &[Act::Ack]).await;
    play.commit(&orders(10)).await;
    let_go(&play).await;
    // As a dump brings them: numbers of transactions from a server that had given more, the cursors' too.
    play.fresh
        .run(
            "set postrider.repair = 'on';
            update {outbox} set xid = xid + 1000000000;
            update {outbox_meta} set value = '1' where key in ('cluster', 'database')",
        )
        .await;
    play.store.adopt(&note()).await.unwrap();
    play.take_leases().await;
    let found = play.fetch_all("a").await.len();
    assert!(found >= 10, "{found}: what was pending comes");
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, []);
    play.commit(&orders(3)).await;
    assert_eq!(play.fetch_all("a").await.len(), 3);
    let audit = play.audited().await;
    assert_eq!(audit[0].0, "adopt");
    assert!(audit[0].1.contains("was: database 1 of cluster 1"), "{audit:?}");
    // In its own place there is nothing to begin anew.
    play.store.adopt(&note()).await.unwrap();
    assert_eq!(play.fetch_all("a").await.len(), 3);
}

/// After a move to a server with another hash each key goes where that one sends it, with what waits and what
/// is scheduled, and nothing is lost.
#[tokio::test]
async fn keys_go_where_another_server_sends_them() {
    let Some(mut play) = Play::wide(4, &[everything("a")]).await else { return };
    play.commit(&orders(40)).await;
    play.settle_all("a", &[Act::Ack, Act::Retry]).await;
    play.commit(&orders(40)).await;
    let reminder = of_type("order.reminder", 1).deliver_after(crate::operator::later());
    play.commit(&[reminder]).await;
    let waiting = play.store.counts(&id("a")).await.unwrap().retrying;
    play.fresh
        .run(
            "set postrider.repair = 'on';
            update {outbox} set partition = (partition + 1) % 4;
            update {outbox_waiting} set partition = (partition + 1) % 4;
            update {outbox_scheduled} set partition = (partition + 1) % 4;
            update {outbox_meta} set value = '1' where key = 'hash'",
        )
        .await;
    let refused = play.store.repair_partitions(&note()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    let_go(&play).await;
    assert!(play.store.open().await.is_err(), "no relay opens the store before");
    let moved = play.store.repair_partitions(&note()).await.unwrap();
    assert_eq!(moved, 80 + waiting + 1);
    play.store.open().await.unwrap();
    assert_eq!(play.store.repair_partitions(&note()).await.unwrap(), 0);
    for (table, key) in [
        ("outbox", "coalesce(key, aggregate_type || '/' || aggregate_id)"),
        ("outbox_waiting", "key"),
    ] {
        let wrong = format!(
            "select count(*) from {{{table}}} where partition <> {{outbox_partition_of}}({key})"
        );
        assert_eq!(play.fresh.number(&wrong).await, 0, "{table}");
    }
    play.take_leases().await;
    assert_eq!(play.fetch_all("a").await.len(), 80, "what was passed comes again");
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(play.store.recount(&id("a")).await.unwrap().differences, []);
    let audit = play.audited().await;
    assert_eq!(audit[0].0, "repair partitions");
}
