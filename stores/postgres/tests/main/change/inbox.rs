//! The inbox as an operator sees it: lists, forgetting, marking by hand.

use std::time::Duration;

use postrider_core::inbox::Accepted;
use postrider_core::operate::{
    Forgotten, InboxFilter, InboxName, InboxState, InboxView, Marked, Operator, PageRequest,
};
use postrider_core::{
    Claim, ClaimLease, ClaimRequest, Code, ErrorKind, Event, EventId, Glob, HandlerName,
    InboxStore, Tried,
};
use postrider_postgres::{Inbox, PostgresStore};
use proptest::prelude::*;

use crate::operator::{Play, everything, joined, later, note, of_type, page};
use crate::support::{Fresh, LONG};

fn handler(name: &str) -> HandlerName {
    HandlerName::new(name).expect("a name")
}

fn incoming(number: u128, source: &str) -> Event {
    let mut event = Event::new(EventId::from_u128(number), "order", "42", "order.placed");
    event.source = source.into();
    event
}

fn name(number: u128, source: Option<&str>) -> InboxName {
    InboxName {
        source: source.map(str::to_owned),
        event_id: EventId::from_u128(number),
        handler: handler("mail"),
    }
}

async fn claim(store: &PostgresStore, event: &Event, lease: Duration) -> Claim {
    let request = ClaimRequest::new(event, &handler("mail"), lease).expect("a request");
    store.claim(&request).await.expect("claim")
}

async fn claimed(store: &PostgresStore, event: &Event, lease: Duration) -> ClaimLease {
    match claim(store, event, lease).await {
        Claim::Claimed(lease) => lease,
        other => panic!("{other:?}"),
    }
}

async fn take(fresh: &Fresh, event: &Event, who: &str) -> postrider_core::Result<Accepted> {
    let mut client = fresh.connect().await;
    let tx = client.transaction().await.expect("begin");
    let accepted = Inbox::named(&fresh.names).accept(&tx, event, &handler(who)).await?;
    tx.commit().await.expect("commit");
    Ok(accepted)
}

async fn rows(store: &PostgresStore, change: impl Fn(&mut InboxFilter)) -> Vec<InboxView> {
    let mut filter = InboxFilter::default();
    change(&mut filter);
    store.inbox(&filter, &page(100, None)).await.expect("a page").rows
}

/// One row in each state, oldest first: processed, forgotten, expired, leased.
async fn one_of_each() -> Option<(Fresh, PostgresStore)> {
    let fresh = Fresh::new(1).await?;
    let store = fresh.store();
    let done = claimed(&store, &incoming(1, "/shop"), LONG).await;
    store.complete_step(&done, "send", b"sent").await.expect("a step");
    store.complete(&done, b"result").await.expect("complete");
    let _ = take(&fresh, &incoming(2, "/shop"), "mail").await.expect("accept");
    store.forget(&name(2, None), &note()).await.expect("forget");
    let expired = claimed(&store, &incoming(3, "/shop"), LONG).await;
    store.release(&expired, Tried::Failed).await.expect("release");
    claimed(&store, &incoming(4, "/bank"), LONG).await;
    Some((fresh, store))
}

#[tokio::test]
async fn each_row_says_where_it_stands() {
    let Some((_fresh, store)) = one_of_each().await else { return };
    let seen = rows(&store, |_| {}).await;
    let told = |state| seen.iter().find(|row| row.state == state).expect("one of each");
    assert_eq!(seen.len(), 4);
    let done = told(InboxState::Processed);
    assert_eq!((done.steps.as_slice(), done.result_bytes), (&["send".to_owned()][..], 6));
    assert!(done.ended_at.is_some() && done.lease_left.is_none());
    let leased = told(InboxState::Leased);
    assert!(leased.lease_left.is_some_and(|left| left <= LONG) && leased.ended_at.is_none());
    assert_eq!((leased.source.as_str(), leased.attempts), ("/bank", 1));
    assert!(told(InboxState::Expired).lease_left.is_none());
    let forgotten = told(InboxState::Forgotten);
    assert_eq!(forgotten.forgotten_by.as_deref(), Some("anna@db1: a test"));
    assert_eq!(forgotten.event_id, EventId::from_u128(2));
}

#[tokio::test]
async fn the_inbox_is_filtered() {
    let Some((_fresh, store)) = one_of_each().await else { return };
    for state in
        [InboxState::Leased, InboxState::Expired, InboxState::Processed, InboxState::Forgotten]
    {
        let seen = rows(&store, |f| f.state = Some(state)).await;
        assert_eq!(seen.iter().map(|row| row.state).collect::<Vec<_>>(), [state]);
    }
    assert_eq!(rows(&store, |f| f.source = Some("/shop".into())).await.len(), 3);
    assert_eq!(rows(&store, |f| f.handler = Some(handler("nobody"))).await.len(), 0);
    assert_eq!(rows(&store, |f| f.event_type = Some(Glob::new("order.*"))).await.len(), 4);
    assert_eq!(rows(&store, |f| f.event_id = Some(EventId::from_u128(4))).await.len(), 1);
    assert_eq!(rows(&store, |f| f.event_id = Some(EventId::from_u128(2))).await.len(), 1);
    assert_eq!(rows(&store, |f| f.since = Some(later())).await.len(), 0);
    assert_eq!(rows(&store, |f| f.until = Some(later())).await.len(), 4);
    let request = page(10, Some("[1,9,\"\",\"\",\"\",0]"));
    let refused = store.inbox(&InboxFilter::default(), &request).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    for hostile in ["'; drop table inbox; --", "\0", "[]", "[1,1]", "{}"] {
        let request = page(10, Some(hostile));
        let refused = store.inbox(&InboxFilter::default(), &request).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(rows(&store, |f| f.source = Some(hostile.to_owned())).await.len(), 0);
    }
}

/// R097, F34: after `forget` the next delivery acts again, and everybody can see why: the tombstone
/// stays beside the new row.
#[tokio::test]
async fn forgetting_leaves_a_tombstone() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let event = incoming(1, "/shop");
    let lease = claimed(&store, &event, LONG).await;
    let left = store.forget(&name(1, None), &note()).await.unwrap();
    assert!(matches!(left, Forgotten::Leased { left } if left <= LONG), "{left:?}");
    store.complete_step(&lease, "charge", b"paid").await.unwrap();
    store.complete(&lease, b"done").await.unwrap();
    assert_eq!(store.forget(&name(1, Some("/bank")), &note()).await.unwrap(), Forgotten::Unknown);
    assert_eq!(store.forget(&name(1, None), &note()).await.unwrap(), Forgotten::Forgotten);
    assert_eq!(store.forget(&name(1, None), &note()).await.unwrap(), Forgotten::Unknown);
    let again = claimed(&store, &event, LONG).await;
    let step = store.step(&again, "charge").await.unwrap();
    assert_eq!(step.as_deref(), Some(&b"paid"[..]), "the charge is not made twice");
    store.complete(&again, b"done again").await.unwrap();
    let states: Vec<InboxState> =
        rows(&store, |f| f.event_id = Some(event.id)).await.iter().map(|row| row.state).collect();
    assert_eq!(states, [InboxState::Processed, InboxState::Forgotten]);
    let audit = store.audit(&page(10, None)).await.unwrap().rows;
    assert_eq!(audit.len(), 1);
    let subject = format!("event {} of /shop for mail (was processed)", event.id);
    assert_eq!((audit[0].what.as_str(), &audit[0].subject), ("inbox forget", &subject));
}

#[tokio::test]
async fn one_id_of_two_sources_needs_a_name() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    for source in ["/shop", "/bank"] {
        let _ = take(&fresh, &incoming(1, source), "mail").await.unwrap();
    }
    for refused in [
        store.forget(&name(1, None), &note()).await.map(drop),
        store.mark_processed(&name(1, None), &note()).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("/bank, /shop"), "{refused}");
    }
    assert_eq!(store.forget(&name(1, Some("/bank")), &note()).await.unwrap(), Forgotten::Forgotten);
    assert_eq!(store.forget(&name(1, None), &note()).await.unwrap(), Forgotten::Forgotten);
}

/// R106: work that a person did by hand is recorded, and no delivery of the event acts on it,
/// whatever its payload.
#[tokio::test]
async fn what_was_done_by_hand_is_not_done_again() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let event = incoming(1, "/shop");
    let unknown = store.mark_processed(&name(1, None), &note()).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Invalid, "{unknown}");
    let mark = async |source| store.mark_processed(&name(1, source), &note()).await.unwrap();
    assert_eq!(mark(Some("/shop")).await, Marked::Marked);
    assert_eq!(mark(Some("/shop")).await, Marked::Already);
    assert_eq!(mark(None).await, Marked::Already, "one source has it");
    assert_eq!(take(&fresh, &event, "mail").await.unwrap(), Accepted::Duplicate);
    assert!(matches!(claim(&store, &event, LONG).await, Claim::Processed { .. }));
    // The control: another event is still told from one with another payload.
    let _ = take(&fresh, &incoming(2, "/shop"), "mail").await.unwrap();
    let mut other = incoming(2, "/shop");
    other.payload = postrider_core::Payload::bytes("other");
    let refused = take(&fresh, &other, "mail").await.unwrap_err();
    assert_eq!(refused.operator_code(), Some(Code::PayloadMismatch));
    assert_eq!(claim(&store, &other, LONG).await, Claim::Mismatch);
}

/// A claim that runs is left to its worker; one that ended is taken over, and its worker refused.
#[tokio::test]
async fn marking_respects_a_claim_that_runs() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let lease = claimed(&store, &incoming(1, "/shop"), LONG).await;
    let marked = store.mark_processed(&name(1, None), &note()).await.unwrap();
    assert!(matches!(marked, Marked::Leased { left } if left <= LONG), "{marked:?}");
    fresh.run("update {inbox} set expires_at = 'epoch'").await;
    assert_eq!(store.mark_processed(&name(1, None), &note()).await.unwrap(), Marked::Marked);
    let late = store.complete(&lease, b"late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Fenced);
    assert_eq!(rows(&store, |_| {}).await[0].attempts, 1);
}

/// The event of the same store is known by its id, with its source and type.
#[tokio::test]
async fn an_event_of_this_outbox_is_known_by_its_id() {
    let Some(play) = Play::wide(4, &[everything("a")]).await else { return };
    let event = of_type("order.placed", 1);
    play.commit(std::slice::from_ref(&event)).await;
    let name = InboxName { source: None, event_id: event.event().id, handler: handler("mail") };
    assert_eq!(play.store.mark_processed(&name, &note()).await.unwrap(), Marked::Marked);
    let row = rows(&play.store, |_| {}).await.remove(0);
    assert_eq!((row.source.as_str(), row.event_type.as_str()), ("/postgres", "order.placed"));
    assert_eq!(row.attempts, 0, "no handler had it");
    let hash = "select count(*) from {inbox} where payload_hash = decode(repeat('00', 32), 'hex')";
    assert_eq!(play.fresh.number(hash).await, 1);
}

/// F34: the token grows over a row that was forgotten, so that a worker from before is refused by the row
/// that came after it.
#[tokio::test]
async fn the_token_goes_on_behind_a_tombstone() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let event = incoming(1, "/shop");
    let early = claimed(&store, &event, LONG).await;
    fresh.run("update {inbox} set expires_at = 'epoch'").await;
    assert_eq!(store.forget(&name(1, None), &note()).await.unwrap(), Forgotten::Forgotten);
    let later = claimed(&store, &event, LONG).await;
    assert!(later.token > early.token, "{later:?} {early:?}");
    assert_eq!(store.complete(&early, b"").await.unwrap_err().kind(), ErrorKind::Fenced);
    fresh.run("update {inbox} set expires_at = 'epoch'").await;
    assert_eq!(store.forget(&name(1, None), &note()).await.unwrap(), Forgotten::Forgotten);
    let mark = store.mark_processed(&name(1, Some("/shop")), &note()).await.unwrap();
    assert_eq!(mark, Marked::Marked);
    assert_eq!(store.complete(&later, b"").await.unwrap_err().kind(), ErrorKind::Fenced);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// Pages of any size, joined, are the whole inbox, also where many rows are of one moment.
    #[test]
    fn pages_joined_are_the_whole_inbox(
        moments in proptest::collection::vec((0i64..4, 0u8..3, 0u8..2), 0..30),
        limit in 1u32..8,
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let Some(fresh) = Fresh::new(1).await else { return };
            let client = fresh.connect().await;
            for (index, (moment, kind, source)) in moments.iter().enumerate() {
                let id = EventId::from_u128(index as u128).to_string();
                let (rest, values) = match kind {
                    0 => (
                        "{inbox_tombstone} (was, token, attempts, received_at, who, why, forgotten_at,",
                        "'processed', 1, 1, 'epoch', 'w', 'y', ",
                    ),
                    1 => (
                        "{inbox} (status, payload_hash, received_at, processed_at,",
                        "'processed', decode(repeat('00', 32), 'hex'), 'epoch', ",
                    ),
                    _ => (
                        "{inbox} (status, payload_hash, expires_at, received_at,",
                        "'claimed', decode(repeat('00', 32), 'hex'), 'epoch', ",
                    ),
                };
                // The order of letters is not the bytes' own in every database.
                let source = if *source == 0 { "/a" } else { "/B" };
                let statement = format!(
                    "insert into {rest} source, event_id, handler, event_type)
                    values ({values} to_timestamp({moment}), '{source}', '{id}', 'mail', 't')"
                );
                client.batch_execute(&fresh.sql(&statement)).await.expect("a row");
            }
            let store = fresh.store();
            let filter = InboxFilter::default();
            let whole = store.inbox(&filter, &page(10_000, None)).await.expect("a page");
            assert_eq!((whole.rows.len(), whole.next), (moments.len(), None));
            let read = async |request: &PageRequest| store.inbox(&filter, request).await;
            assert_eq!(joined(limit, read).await, whole.rows);
        });
    }
}
