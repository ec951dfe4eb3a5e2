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
use postrider_sqlite::{SqliteStore, accept};
use proptest::prelude::*;

use super::{joined, note, page, plan};
use crate::support::{Fresh, LONG, event, number};

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

async fn claim(store: &SqliteStore, event: &Event, lease: Duration) -> Claim {
    let request = ClaimRequest::new(event, &handler("mail"), lease).expect("a request");
    store.claim(&request).await.expect("claim")
}

async fn claimed(store: &SqliteStore, event: &Event, lease: Duration) -> ClaimLease {
    match claim(store, event, lease).await {
        Claim::Claimed(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn take(fresh: &Fresh, event: &Event, who: &str) -> postrider_core::Result<Accepted> {
    let mut connection = fresh.connect();
    let tx = connection.transaction().expect("begin");
    let accepted = accept(&tx, event, &handler(who))?;
    tx.commit().expect("commit");
    Ok(accepted)
}

async fn rows(store: &SqliteStore, change: impl Fn(&mut InboxFilter)) -> Vec<InboxView> {
    let mut filter = InboxFilter::default();
    change(&mut filter);
    store.inbox(&filter, &page(100, None)).await.expect("a page").rows
}

/// One row in each state, oldest first: processed, forgotten, expired, leased.
async fn one_of_each() -> (Fresh, SqliteStore) {
    let fresh = Fresh::new();
    let store = fresh.store();
    let done = claimed(&store, &incoming(1, "/shop"), LONG).await;
    store.complete_step(&done, "send", b"sent").await.expect("a step");
    store.complete(&done, b"result").await.expect("complete");
    let _ = take(&fresh, &incoming(2, "/shop"), "mail").expect("accept");
    store.forget(&name(2, None), &note()).await.expect("forget");
    let expired = claimed(&store, &incoming(3, "/shop"), LONG).await;
    store.release(&expired, Tried::Failed).await.expect("release");
    claimed(&store, &incoming(4, "/bank"), LONG).await;
    (fresh, store)
}

#[tokio::test]
async fn each_row_says_where_it_stands() {
    let (_fresh, store) = one_of_each().await;
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
    let (_fresh, store) = one_of_each().await;
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
    assert_eq!(rows(&store, |f| f.since = Some(super::later())).await.len(), 0);
    assert_eq!(rows(&store, |f| f.until = Some(super::later())).await.len(), 4);
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
    let fresh = Fresh::new();
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

/// F34: a worker slept from before its claim was forgotten until after the next one, twice. Its token is not
/// the next one's, so it writes nothing.
#[tokio::test]
async fn tokens_go_on_where_a_forgotten_row_ended() {
    let fresh = Fresh::new();
    let store = fresh.store();
    let event = incoming(1, "/shop");
    let mut slept = Vec::new();
    for _ in 0..3 {
        let lease = claimed(&store, &event, LONG).await;
        assert!(
            slept.iter().all(|old: &ClaimLease| old.token < lease.token),
            "{lease:?} {slept:?}"
        );
        for old in &slept {
            let refused = store.complete(old, b"late").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
        }
        slept.push(lease);
        fresh.connect().execute("update inbox set expires_at = 5", ()).unwrap();
        assert_eq!(store.forget(&name(1, None), &note()).await.unwrap(), Forgotten::Forgotten);
    }
}

#[tokio::test]
async fn one_id_of_two_sources_needs_a_name() {
    let fresh = Fresh::new();
    let store = fresh.store();
    for source in ["/shop", "/bank"] {
        let _ = take(&fresh, &incoming(1, source), "mail").unwrap();
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
    let fresh = Fresh::new();
    let store = fresh.store();
    let event = incoming(1, "/shop");
    let unknown = store.mark_processed(&name(1, None), &note()).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Invalid, "{unknown}");
    let mark = async |source| store.mark_processed(&name(1, source), &note()).await.unwrap();
    assert_eq!(mark(Some("/shop")).await, Marked::Marked);
    assert_eq!(mark(Some("/shop")).await, Marked::Already);
    assert_eq!(mark(None).await, Marked::Already, "one source has it");
    assert_eq!(take(&fresh, &event, "mail").unwrap(), Accepted::Duplicate);
    assert!(matches!(claim(&store, &event, LONG).await, Claim::Processed { .. }));
    // The control: another event is still told from one with another payload.
    let _ = take(&fresh, &incoming(2, "/shop"), "mail").unwrap();
    let mut other = incoming(2, "/shop");
    other.payload = postrider_core::Payload::bytes("other");
    let refused = take(&fresh, &other, "mail").unwrap_err();
    assert_eq!(refused.operator_code(), Some(Code::PayloadMismatch));
    assert_eq!(claim(&store, &other, LONG).await, Claim::Mismatch);
}

/// A claim that runs is left to its worker; one that ended is taken over, and its worker refused.
#[tokio::test]
async fn marking_respects_a_claim_that_runs() {
    let fresh = Fresh::new();
    let store = fresh.store();
    let lease = claimed(&store, &incoming(1, "/shop"), LONG).await;
    let marked = store.mark_processed(&name(1, None), &note()).await.unwrap();
    assert!(matches!(marked, Marked::Leased { left } if left <= LONG), "{marked:?}");
    fresh.connect().execute("update inbox set expires_at = 5", ()).unwrap();
    assert_eq!(store.mark_processed(&name(1, None), &note()).await.unwrap(), Marked::Marked);
    let late = store.complete(&lease, b"late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Fenced);
    assert_eq!(rows(&store, |_| {}).await[0].attempts, 1);
}

/// The event of the same store is known by its id, with its source and type.
#[tokio::test]
async fn an_event_of_this_outbox_is_known_by_its_id() {
    let fresh = Fresh::new();
    let store = fresh.store();
    let event = event(1);
    fresh.commit(std::slice::from_ref(&event));
    let name = InboxName { source: None, event_id: event.event().id, handler: handler("mail") };
    assert_eq!(store.mark_processed(&name, &note()).await.unwrap(), Marked::Marked);
    let row = rows(&store, |_| {}).await.remove(0);
    assert_eq!((row.source.as_str(), row.event_type.as_str()), ("/shop", "order.placed"));
    assert_eq!(row.attempts, 0, "no handler had it");
    let hash = "select count(*) from inbox where payload_hash = zeroblob(32)";
    assert_eq!(number(&fresh.connect(), hash), 1);
}

#[test]
fn lists_follow_their_indexes() {
    let fresh = Fresh::new();
    for (statement, index) in [
        (include_str!("../../../sql/operator/inbox_processed.sql"), "inbox_processed"),
        (include_str!("../../../sql/operator/inbox_claimed.sql"), "inbox_claimed"),
        (include_str!("../../../sql/operator/doctor_stuck.sql"), "inbox_claimed"),
    ] {
        let plan = plan(&fresh, statement);
        assert!(plan.contains(&format!("INDEX {index}")), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Pages of any size, joined, are the whole inbox, also where many rows are of one moment.
    #[test]
    fn pages_joined_are_the_whole_inbox(
        moments in proptest::collection::vec((0i64..4, 0u8..3, 0u8..2), 0..30),
        limit in 1u32..8,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let fresh = Fresh::new();
            let connection = fresh.connect();
            for (index, (moment, kind, source)) in moments.iter().enumerate() {
                let id = EventId::from_u128(index as u128).to_string();
                let statement = match kind {
                    0 => "insert into inbox_tombstone (source, event_id, handler, event_type, was,
                            attempts, received_at, forgotten_at, who, why)
                        values (?1, ?2, 'mail', 't', 'processed', 1, 0, ?3, 'w', 'y')",
                    1 => "insert into inbox (source, event_id, handler, event_type, status,
                            payload_hash, received_at, processed_at)
                        values (?1, ?2, 'mail', 't', 'processed', zeroblob(32), 0, ?3)",
                    _ => "insert into inbox (source, event_id, handler, event_type, status,
                            payload_hash, received_at, expires_at)
                        values (?1, ?2, 'mail', 't', 'claimed', zeroblob(32), ?3, 1)",
                };
                let source = if *source == 0 { "/a" } else { "/b" };
                connection.execute(statement, (source, id, moment)).expect("a row");
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
