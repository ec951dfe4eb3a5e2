//! Erasure reaches every copy, changes no checksum, and lets the key flow.

use postrider_core::operate::{Erasure, Operator, Status};
use postrider_core::source::{DueRequest, OutboxSource};
use postrider_core::waiting::{Settlement, SettlementPart, WaitingChange};
use postrider_core::{Claim, ClaimRequest, HandlerName, InboxStore, NewEvent, Payload};

use crate::operator::{Act, Play, all, everything, later, note, of_type, page};
use crate::support::{LONG, id};

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
        bytes_max: 1 << 30,
    };
    let rows = play.store.due(&request).await.expect("due").rows;
    rows.iter().map(|row| (row.row.seq, row.event.payload.clone())).collect()
}

/// A store in which the key has events delivered, dead, parked, pending, scheduled, and consumed.
async fn everywhere() -> Option<Play> {
    let play = Play::begin(&[everything("a")]).await?;
    play.commit(&[
        about_anna("customer.moved"),
        of_type("order.placed", 1),
        about_anna("customer.moved"),
        about_anna("customer.moved"),
        about_anna("customer.moved"),
    ])
    .await;
    play.commit(&[about_anna("customer.reminder").deliver_after(later())]).await;
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
    Some(play)
}

/// Whether something of the person stands in any row that is visible.
async fn occurs(play: &Play) -> bool {
    let mut rows = 0;
    for table in ["outbox", "outbox_waiting", "outbox_scheduled"] {
        let of = format!("select count(*) from {{{table}}} o where o::text like '%{SECRET}%'");
        rows += play.fresh.number(&of).await;
    }
    for table in ["inbox_result", "inbox_step"] {
        let of = format!(
            "select count(*) from {{{table}}} where convert_from(result, 'utf8') like '%{SECRET}%'"
        );
        rows += play.fresh.number(&of).await;
    }
    rows > 0
}

/// After an erasure nothing of the payload, the headers, or the results is in any table.
#[tokio::test]
async fn nothing_of_the_key_is_left_in_the_tables() {
    let Some(mut play) = everywhere().await else { return };
    assert!(occurs(&play).await, "the search finds what is there");
    let reach = play.store.erasable("customer/7").await.unwrap();
    assert_eq!(reach, Erasure { outbox: 4, waiting: 2, scheduled: 1, inbox: 2 });
    assert_eq!(play.store.erase("customer/7", &note()).await.unwrap(), reach);
    assert!(!occurs(&play).await);
    assert_eq!(play.store.erasable("customer/7").await.unwrap(), Erasure::default());
    assert_eq!(play.store.erase("customer/7", &note()).await.unwrap().total(), 0);
    let kept = "select count(*) from {outbox} where payload is not null";
    assert_eq!(play.fresh.number(kept).await, 1, "another key is left alone");
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
    let Some(play) = everywhere().await else { return };
    play.store.erase("customer/7", &note()).await.unwrap();
    let rows = play.store.events(&all(), &page(10, None)).await.unwrap().rows;
    assert_eq!(rows.len(), 5);
    let detail = play.store.event(rows[4].id).await.unwrap();
    assert_eq!(detail.event.payload, Payload::Erased);
    assert!(detail.event.headers.is_empty());
    // The log does not tell whether the erased one of a bucket was the one that waited.
    assert_eq!(detail.deliveries[0].status, Status::Settled);
    let done = "select count(*) from {inbox} i
        join {inbox_step} s using (source, event_id, handler)
        left join {inbox_result} r using (source, event_id, handler)
        where i.status = 'processed' and r.result is null and s.result = ''";
    assert_eq!(play.fresh.number(done).await, 1);
    play.fresh.run("update {outbox_scheduled} set due_at = '2001-01-01T00:00:00Z'").await;
    play.store.admit(&play.lease, 10).await.unwrap();
    let row = play.fetch("a").await.pop().expect("it has entered");
    assert_eq!(row.event.expect("an event").payload, Payload::Erased);
}

/// More than one batch, and an unknown key.
#[tokio::test]
async fn a_key_with_many_events_is_erased_in_batches() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    play.fresh
        .run(
            "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
            select 'customer', 7, 'customer.moved', '{}' from generate_series(1, 12000)",
        )
        .await;
    let erased = play.store.erase("customer/7", &note()).await.unwrap();
    assert_eq!(erased, Erasure { outbox: 12_000, ..Erasure::default() });
    assert_eq!(play.audited().await.len(), 1);
    assert_eq!(play.store.erase("customer/8", &note()).await.unwrap(), Erasure::default());
    let refused = play.store.erase("", &note()).await.unwrap_err();
    assert_eq!(refused.kind(), postrider_core::ErrorKind::Invalid);
}
