//! Erasure reaches every copy, changes no checksum, and lets the key flow.

use std::fs;

use postrider_core::operate::{Erasure, Operator, Status};
use postrider_core::source::{DueRequest, OutboxSource};
use postrider_core::waiting::{Settlement, SettlementPart, WaitingChange};
use postrider_core::{Claim, ClaimRequest, HandlerName, InboxStore, NewEvent, Payload};

use super::{Act, Play, all, everything, later, note, of_type, page};
use crate::support::{LONG, id, number};

/// What stands in every payload, header, and result of the person who wants to be forgotten.
const SECRET: &str = "Anna-Long-Lane-5";

fn about_anna(event_type: &str) -> NewEvent {
    NewEvent::new("customer", "7", event_type)
        .json(&vec![SECRET; 200])
        .expect("JSON")
        .header("note", SECRET)
}

async fn due(play: &Play) -> Vec<(u64, Payload)> {
    let request = DueRequest {
        lease: play.lease.clone(),
        destination: id("a"),
        except: Vec::new(),
        rows_max: 100,
        bytes_max: u64::MAX,
    };
    let rows = play.store.due(&request).await.expect("due").rows;
    rows.iter().map(|row| (row.row.seq, row.event.payload.clone())).collect()
}

/// A store in which the key has events delivered, dead, parked, pending, scheduled, and consumed.
async fn everywhere() -> Play {
    let play = Play::begin(&[everything("a")]).await;
    play.commit(&[
        about_anna("customer.moved"),
        of_type("order.placed", 1),
        about_anna("customer.moved"),
        about_anna("customer.moved"),
        about_anna("customer.moved"),
    ]);
    play.commit(&[about_anna("customer.reminder").deliver_after(later())]);
    play.settle("a", &[Act::Ack, Act::Ack, Act::Dead, Act::Park]).await;
    let rows = play.fetch("unrouted").await;
    let event = rows[0].event.clone().expect("an event");
    let handler = HandlerName::new("mail").expect("a name");
    let claim = ClaimRequest::new(&event, &handler, LONG).expect("a claim");
    let Claim::Claimed(lease) = play.store.claim(&claim).await.expect("claim") else {
        panic!("it is free");
    };
    play.store.complete_step(&lease, "send", SECRET.as_bytes()).await.expect("a step");
    play.store.complete(&lease, SECRET.as_bytes()).await.expect("complete");
    play
}

/// After an erasure no byte of the payload, the headers, or the results is in the database or its log.
#[tokio::test]
async fn nothing_of_the_key_is_left_in_the_files() {
    let mut play = everywhere().await;
    let connection = play.fresh.connect();
    connection.execute_batch("pragma wal_checkpoint(truncate)").unwrap();
    let occurs = |play: &Play| {
        ["", "-wal"].into_iter().any(|suffix| {
            let path = format!("{}{suffix}", play.fresh.path().display());
            let bytes = fs::read(path).unwrap_or_default();
            bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
        })
    };
    assert!(occurs(&play), "the search finds what is there");
    let reach = play.store.erasable("customer/7").await.unwrap();
    assert_eq!(reach, Erasure { outbox: 4, waiting: 2, scheduled: 1, inbox: 2 });
    assert_eq!(play.store.erase("customer/7", &note()).await.unwrap(), reach);
    assert!(!occurs(&play));
    assert_eq!(play.store.erasable("customer/7").await.unwrap(), Erasure::default());
    assert_eq!(play.store.erase("customer/7", &note()).await.unwrap().total(), 0);
    let kept = "select count(*) from outbox where payload is not null";
    assert_eq!(number(&connection, kept), 1, "another key is left alone");
    let audit = play.audited().await;
    let told: Vec<&str> = audit.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(told, ["dead redrive", "erase", "dead redrive", "erase"]);
    assert_eq!(audit[3].1, "key customer/7: 4 events, 1 scheduled");
    // What is dead goes to the owner, who finds nothing to send; then the key flows.
    play.carry_out().await;
    assert_eq!(due(&play).await, [(3, Payload::Erased), (4, Payload::Erased)]);
    let mut part = SettlementPart::new(id("a"));
    part.changes = play.fetch("unrouted").await[2..4]
        .iter()
        .map(|row| WaitingChange::Erased(row.row))
        .collect();
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.unwrap();
    assert_eq!(play.store.counts(&id("a")).await.unwrap().total(), 0);
    play.settle("a", &[Act::Erased]).await;
    assert_eq!(
        play.store.recount(&id("a")).await.unwrap().differences,
        [],
        "the sums are of ids alone"
    );
}

/// What was done stays done, and a scheduled event enters with nothing in it.
#[tokio::test]
async fn an_erased_event_is_still_known() {
    let play = everywhere().await;
    play.store.erase("customer/7", &note()).await.unwrap();
    let rows = play.store.events(&all(), &page(10, None)).await.unwrap().rows;
    assert_eq!(rows.len(), 5);
    let detail = play.store.event(rows[4].id).await.unwrap();
    assert_eq!(detail.event.payload, Payload::Erased);
    assert!(detail.event.headers.is_empty());
    // The log does not tell whether the erased one of a bucket was the one that waited.
    assert_eq!(detail.deliveries[0].status, Status::Settled);
    let connection = play.fresh.connect();
    let results = "select count(*) from inbox i join inbox_step s using (source, event_id, handler)
        where i.status = 'processed' and i.result is null and s.result = x''";
    assert_eq!(number(&connection, results), 1);
    connection.execute("update outbox_scheduled set due_at = '2001-01-01T00:00:00Z'", ()).unwrap();
    play.store.admit(&play.lease, 10).await.unwrap();
    let row = play.fetch("a").await.pop().expect("it has entered");
    assert_eq!(row.event.expect("an event").payload, Payload::Erased);
}

/// More than one batch, an application that holds the same database, and an unknown key.
#[tokio::test]
async fn a_key_with_many_events_is_erased_in_batches() {
    let play = Play::begin(&[everything("a")]).await;
    play.fresh
        .connect()
        .execute(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
            with recursive n (i) as (select 1 union all select i + 1 from n where i < 12000)
            select 'customer', 7, 'customer.moved', '{}' from n",
            (),
        )
        .unwrap();
    let erased = play.store.erase("customer/7", &note()).await.unwrap();
    assert_eq!(erased, Erasure { outbox: 12_000, ..Erasure::default() });
    assert_eq!(play.audited().await.len(), 1);
    assert_eq!(play.store.erase("customer/8", &note()).await.unwrap(), Erasure::default());
    let refused = play.store.erase("", &note()).await.unwrap_err();
    assert_eq!(refused.kind(), postrider_core::ErrorKind::Invalid);
}
