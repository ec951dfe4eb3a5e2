//! Operating what waits and what was sent: lists, requests, and the owner that carries them out.

mod held;

use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::operate::{
    EventView, Filter, Forgotten, InboxFilter, InboxName, InboxState, Marked, Note, PageRequest,
    RowKey, Status, Submission, Verb, WaitingView,
};
use postrider_core::source::{CarryOutRequest, DueRequest, FetchRequest, FetchedRow};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart, WaitingRow,
};
use postrider_core::{
    Claim, ClaimRequest, Destination, DestinationId, ErrorKind, HandlerName, InboxStore, Lease,
    NewEvent, Operator, OutboxSource, PartitionId, RelayId, Route, Tried,
};
use postrider_dynamodb::{DynamoStore, Options};

use crate::fresh::Fresh;

fn note() -> Note {
    Note::new("anna@db1", "a test").unwrap()
}

fn a() -> DestinationId {
    DestinationId::new("a").unwrap()
}

/// A filter, as it is asked for. The type can only be changed, not made, from here.
fn filter(ask: impl FnOnce(&mut Filter)) -> Filter {
    let mut filter = Filter::default();
    ask(&mut filter);
    filter
}

/// The n-th event of an order.
fn event(order: &str, n: u32) -> NewEvent {
    NewEvent::new("order", order, format!("order.changed.{n}")).json(&n).unwrap()
}

/// A store whose partitions one relay owns.
struct Owned {
    _fresh: Fresh,
    store: DynamoStore,
    leases: Vec<Lease>,
}

impl Owned {
    async fn start() -> Option<Owned> {
        let fresh = Fresh::new(2).await?;
        let mut options = Options::default();
        options.stream = false;
        let store = DynamoStore::with(fresh.connection.clone(), options);
        let route = Route::all("orders".parse().unwrap());
        store.register(&[Destination::new(a(), "local", vec![route])]).await.unwrap();
        let request = AcquireRequest {
            owner: RelayId::mint(),
            lease_duration: Duration::from_secs(600),
            wanted: 2,
            free_for: Duration::ZERO,
            presence: None,
            current: true,
            dead: None,
        };
        let acquired = store.acquire(&request).await.unwrap();
        let leases = acquired.granted.into_iter().map(|granted| granted.lease).collect();
        Some(Owned { _fresh: fresh, store, leases })
    }

    /// Hands everything that is pending to a closure that says what becomes of each row.
    async fn settle(&self, outcome: impl Fn(&FetchedRow) -> Option<Placement>) {
        for lease in &self.leases {
            let loaded = self.store.load(lease, &a()).await.unwrap();
            let request = FetchRequest {
                lease: lease.clone(),
                destinations: vec![a()],
                after: loaded.cursor.clone(),
                until: None,
                rows_max: 1_000,
                bytes_max: u64::MAX,
            };
            let page = self.store.fetch(&request).await.unwrap();
            let mut part = SettlementPart::new(a());
            part.cursor = Some((loaded.cursor, page.end));
            for row in &page.rows {
                match outcome(row) {
                    None => part.passed.push((row.row, Passed::Acked)),
                    Some(placement) => {
                        part.passed.push((row.row, Passed::Waiting));
                        part.waiting.push(NewWaiting {
                            row: row.row,
                            key_hash: row.key_hash,
                            event: row.event.clone().ok(),
                            placement,
                        });
                    }
                }
            }
            let settlement = Settlement { lease: lease.clone(), parts: vec![part] };
            self.store.settle(&settlement).await.unwrap();
        }
    }

    async fn carry(&self) -> postrider_core::source::CarriedOut {
        let request = CarryOutRequest { leases: self.leases.clone(), rows_max: 1_000 };
        self.store.carry_out(&request).await.unwrap()
    }

    async fn due(&self) -> Vec<WaitingRow> {
        let mut rows = Vec::new();
        for lease in &self.leases {
            let request = DueRequest {
                lease: lease.clone(),
                destination: a(),
                except: Vec::new(),
                rows_max: 1_000,
                bytes_max: u64::MAX,
            };
            rows.extend(self.store.due(&request).await.unwrap().rows);
        }
        rows
    }

    /// All pages of a list of events.
    async fn events(&self, filter: &Filter, limit: u32) -> Vec<EventView> {
        let (mut rows, mut page) = (Vec::new(), PageRequest { after: None, limit });
        loop {
            let listed = self.store.events(filter, &page).await.unwrap();
            assert!(listed.rows.len() <= limit as usize);
            rows.extend(listed.rows);
            page.after = listed.next;
            if page.after.is_none() {
                return rows;
            }
        }
    }

    async fn waiting(&self, filter: &Filter, limit: u32) -> Vec<WaitingView> {
        let (mut rows, mut page) = (Vec::new(), PageRequest { after: None, limit });
        loop {
            let listed = self.store.waiting(filter, &page).await.unwrap();
            rows.extend(listed.rows);
            page.after = listed.next;
            if page.after.is_none() {
                return rows;
            }
        }
    }
}

fn dead(holds_key: bool) -> Placement {
    let detail = "422 No such currency".to_owned();
    let attempted = Attempted { attempts: 3, reason: Reason::Rejected, detail };
    Placement::Dead { attempted, holds_key }
}

/// R095: what waits is listed with its reason, its attempts, and who holds it up; filters meet each of them;
/// pages are whole and in order, and end.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_listed_page_by_page() {
    let Some(owned) = Owned::start().await else { return };
    let events: Vec<NewEvent> = (0..12).map(|n| event(&(n / 3).to_string(), n)).collect();
    owned.store.stage(&events).await.unwrap();
    owned
        .settle(|row| {
            let first = row.event.as_ref().is_ok_and(|event| {
                event
                    .event_type
                    .rsplit('.')
                    .next()
                    .is_some_and(|n| n.parse::<u32>().unwrap() % 3 == 0)
            });
            Some(if first { dead(true) } else { Placement::Behind(Reason::Behind) })
        })
        .await;
    let all = owned.waiting(&Filter::default(), 5).await;
    assert_eq!(all.len(), 12);
    assert!(all.is_sorted_by_key(|row| row.seq) && all.is_sorted_by_key(|row| row.partition));
    assert!(all.iter().any(|row| row.partition == PartitionId(1)), "both partitions");
    let mut asked = filter(|ask| ask.status = vec![Status::Dead]);
    let dead = owned.waiting(&asked, 3).await;
    assert_eq!(dead.len(), 4);
    let one = &dead[0];
    assert_eq!((&*one.reason, one.attempts, one.holds_key), ("rejected", 3, true));
    assert!(one.created_at.is_some() && one.event_type.is_some() && !one.late);
    asked.error = Some("CURRENCY".to_owned());
    asked.key = Some("order/2".to_owned());
    assert_eq!(owned.waiting(&asked, 50).await.len(), 1);
    asked.attempts_min = Some(4);
    assert_eq!(owned.waiting(&asked, 50).await.len(), 0);
    let parked = filter(|ask| ask.status = vec![Status::Parked]);
    assert_eq!(owned.waiting(&parked, 50).await.len(), 8);
    let last = events[2].event().id;
    let detail = owned.store.event(last).await.unwrap();
    assert_eq!(detail.deliveries[0].status, Status::Parked);
    assert_eq!(detail.behind.len(), 2, "who holds it up, oldest first");
    assert_eq!(detail.behind[0].id, Some(events[0].event().id));
    let overview = owned.store.overview().await.unwrap();
    let view = &overview.destinations[0];
    assert_eq!((view.waiting.dead, view.waiting.parked), (4, 8));
    assert!(view.dead_since.is_some() && view.waiting_since.is_some());
    assert_eq!(view.errors[0].count, 4);
    assert!(overview.partitions.iter().all(|partition| partition.owner.is_some()));
    let wrong = PageRequest { after: Some("nowhere".to_owned()), limit: 5 };
    let refused = owned.store.waiting(&Filter::default(), &wrong).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

/// Events are listed newest first as far as anything orders them, each once, with what became of them.
#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_with_what_became_of_them() {
    let Some(owned) = Owned::start().await else { return };
    owned.store.stage(&(0..6).map(|n| event("1", n)).collect::<Vec<_>>()).await.unwrap();
    owned.settle(|_| None).await;
    let pending: Vec<NewEvent> = (6..9).map(|n| event("1", n)).collect();
    owned.store.stage(&pending).await.unwrap();
    owned.store.stage(&[event("2", 9)]).await.unwrap();
    let key = filter(|ask| ask.key = Some("order/1".to_owned()));
    let of_key = owned.events(&key, 4).await;
    let types: Vec<String> = of_key.iter().map(|row| row.event_type.to_string()).collect();
    let expected: Vec<String> = (0..9).rev().map(|n| format!("order.changed.{n}")).collect();
    assert_eq!(types, expected, "newest first");
    let status = |row: &EventView| row.deliveries[0].status;
    assert!(of_key[..3].iter().all(|row| status(row) == Status::Pending));
    assert!(of_key[3..].iter().all(|row| status(row) == Status::Published));
    assert!(of_key[5].deliveries[0].settled_at.is_some());
    for limit in [1, 3, 50] {
        let all = owned.events(&Filter::default(), limit).await;
        let ids: std::collections::BTreeSet<_> = all.iter().map(|row| row.id).collect();
        assert_eq!((all.len(), ids.len()), (10, 10), "each once, {limit} at a time");
        assert_eq!(all[0].event_type, "order.changed.9", "the newest pending one");
        let only = filter(|ask| ask.status = vec![Status::Pending]);
        assert_eq!(owned.events(&only, limit).await.len(), 4);
        let sent = filter(|ask| ask.status = vec![Status::Published]);
        assert_eq!(owned.events(&sent, limit).await.len(), 6);
    }
    let found = filter(|ask| ask.id = Some(pending[0].event().id));
    assert_eq!(owned.events(&found, 5).await.len(), 1);
    let absent = postrider_core::EventId::from_u128(7);
    assert_eq!(owned.store.event(absent).await.unwrap_err().kind(), ErrorKind::NotFound);
    let backlog = owned.store.backlog(&a(), 100).await.unwrap();
    assert_eq!(backlog.iter().map(|group| group.count).sum::<u64>(), 4);
    assert_eq!(owned.store.backlog(&a(), 2).await.unwrap().len(), 2, "as many as are asked for");
}

/// R098: what was published is sent once more, late, after it was listed; it does not expire while it waits;
/// what was not listed is refused, and what is pending or waits is let be.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_listed_is_requeued() {
    let Some(owned) = Owned::start().await else { return };
    let sent = event("1", 1);
    owned.store.stage(std::slice::from_ref(&sent)).await.unwrap();
    owned.settle(|_| None).await;
    owned.store.stage(&[event("1", 2)]).await.unwrap();
    let rows = owned.events(&Filter::default(), 50).await;
    let rows: Vec<RowKey> =
        rows.iter().map(|row| RowKey { destination: a(), seq: row.seq }).collect();
    let submission = Submission { verb: Verb::Requeue(rows), note: note() };
    let other = owned.store.beside();
    let refused = other.submit(&submission).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "another handle has shown nothing");
    let id = owned.store.submit(&submission).await.unwrap();
    assert_eq!(owned.store.open_requests().await.unwrap().len(), 1);
    assert_eq!(owned.store.overview().await.unwrap().requests, 1);
    assert_eq!(owned.due().await, [], "asked for, and not carried out");
    assert_eq!(owned.carry().await.rows, 2);
    let state = Operator::request(&owned.store, id).await.unwrap();
    assert_eq!((state.done, state.skipped, state.finished), (1, 1, true));
    assert_eq!(owned.store.open_requests().await.unwrap(), []);
    let due = owned.due().await;
    assert_eq!(due.len(), 1);
    assert!(due[0].late && due[0].row.id == sent.event().id);
    let again = owned.store.events(&Filter::default(), &PageRequest::default()).await.unwrap();
    let status = again.rows.iter().find(|row| row.id == sent.event().id).unwrap();
    assert_eq!(status.deliveries[0].status, Status::Retrying);
    let idle = owned.carry().await;
    assert_eq!((idle.rows, idle.more), (0, false));
}

/// R096: a person asks, and the audit log says so; a rewind and what no store could mean here are refused,
/// with what to do instead.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_audited_and_what_means_nothing_is_refused() {
    let Some(owned) = Owned::start().await else { return };
    owned.store.stage(&[event("1", 1)]).await.unwrap();
    owned.settle(|_| Some(dead(false))).await;
    let rows = owned.waiting(&Filter::default(), 50).await;
    let rows = rows.iter().map(|row| RowKey { destination: a(), seq: row.seq }).collect();
    let ask = |verb| Submission { verb, note: note() };
    owned.store.submit(&ask(Verb::Discard(rows))).await.unwrap();
    assert_eq!(owned.carry().await.rows, 1);
    let all = owned.events(&Filter::default(), 50).await;
    assert_eq!(all[0].deliveries[0].status, Status::Discarded);
    let log = owned.store.audit(&PageRequest::default()).await.unwrap().rows;
    assert_eq!((&*log[0].what, &*log[0].subject), ("dead discard", "request 1: 1 rows (a 1)"));
    let rewind = Verb::Rewind { destination: a(), to: postrider_core::Start::Beginning };
    let refused = owned.store.submit(&ask(rewind)).await.unwrap_err();
    assert!(refused.to_string().contains("requeue"), "{refused}");
    let none = owned.store.submit(&ask(Verb::Redrive(Vec::new()))).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Invalid);
    let row = RowKey { destination: DestinationId::new("b").unwrap(), seq: 1 };
    let absent = owned.store.submit(&ask(Verb::Redrive(vec![row]))).await.unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::NotFound);
    for error in [
        owned.store.recount(&a()).await.unwrap_err(),
        owned.store.adopt(&note()).await.unwrap_err(),
        owned.store.repair_sequence(&note()).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("nothing was changed"), "{error}");
    }
}

/// What was said goes, and that it was said stays: payloads of what is pending, of what waits, and of what was
/// published, and a handler's result; a dead letter's key flows again.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_reaches_all_of_a_key() {
    let Some(owned) = Owned::start().await else { return };
    let store = &owned.store;
    let sent = event("1", 1);
    store.stage(std::slice::from_ref(&sent)).await.unwrap();
    owned.settle(|_| None).await;
    store.stage(&[event("1", 2)]).await.unwrap();
    owned.settle(|_| Some(dead(true))).await;
    store.stage(&[event("1", 3), event("2", 4)]).await.unwrap();
    let said = store.event(sent.event().id).await.unwrap().event;
    let handler = HandlerName::new("billing").unwrap();
    let asked = ClaimRequest::new(&said, &handler, Duration::from_secs(30)).unwrap();
    let Claim::Claimed(lease) = store.claim(&asked).await.unwrap() else { panic!("a new event") };
    store.complete(&lease, b"charged 42 to anna").await.unwrap();
    let left = store.erasable("order/1").await.unwrap();
    assert_eq!((left.outbox, left.inbox), (3, 1));
    assert_eq!(store.erase("order/1", &note()).await.unwrap(), left);
    assert_eq!(store.erasable("order/1").await.unwrap().total(), 0, "nothing is left");
    let of_key = filter(|ask| ask.key = Some("order/1".to_owned()));
    let rows = owned.events(&of_key, 50).await;
    assert_eq!(rows.len(), 3, "ids and order stay");
    assert!(rows.iter().all(|row| row.payload_bytes == 0));
    let status = rows.iter().find(|row| row.id == sent.event().id).unwrap();
    assert_eq!(status.deliveries[0].status, Status::Published, "it was, before");
    let other = filter(|ask| ask.key = Some("order/2".to_owned()));
    assert!(owned.events(&other, 50).await[0].payload_bytes > 0);
    assert!(
        matches!(store.claim(&asked).await.unwrap(), Claim::Processed { result } if result.is_empty())
    );
    assert_eq!(owned.carry().await.rows, 1, "the dead letter is asked for");
    let due = owned.due().await;
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].event.payload, postrider_core::Payload::Erased);
    assert_eq!(store.erase("", &note()).await.unwrap_err().kind(), ErrorKind::Invalid);
}

/// R100, R112: what was done is forgotten by name, with a tombstone and an entry of the audit log; not while
/// somebody is at it. The next delivery acts again, under a greater token.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_is_forgotten_or_marked_by_hand() {
    let Some(owned) = Owned::start().await else { return };
    let store = &owned.store;
    let handler = HandlerName::new("billing").unwrap();
    let mut said = event("1", 1).event().clone();
    said.source = "/shop".into();
    let lease_time = Duration::from_secs(30);
    let asked = ClaimRequest::new(&said, &handler, lease_time).unwrap();
    let Claim::Claimed(lease) = store.claim(&asked).await.unwrap() else { panic!("a new event") };
    let mut name = InboxName { source: None, event_id: said.id, handler: handler.clone() };
    let busy = store.forget(&name, &note()).await.unwrap();
    assert!(matches!(busy, Forgotten::Leased { left } if left > Duration::ZERO), "{busy:?}");
    assert!(matches!(store.mark_processed(&name, &note()).await.unwrap(), Marked::Leased { .. }));
    store.complete(&lease, b"done").await.unwrap();
    assert_eq!(store.mark_processed(&name, &note()).await.unwrap(), Marked::Already);
    assert_eq!(store.forget(&name, &note()).await.unwrap(), Forgotten::Forgotten);
    assert_eq!(store.complete(&lease, b"late").await.unwrap_err().kind(), ErrorKind::Fenced);
    let Claim::Claimed(second) = store.claim(&asked).await.unwrap() else { panic!("acts again") };
    assert!(second.token > lease.token);
    InboxStore::release(store, &second, Tried::Failed).await.unwrap();
    assert_eq!(store.mark_processed(&name, &note()).await.unwrap(), Marked::Marked);
    assert!(matches!(store.claim(&asked).await.unwrap(), Claim::Processed { .. }));
    let rows = store.inbox(&InboxFilter::default(), &PageRequest::default()).await.unwrap().rows;
    let states: std::collections::BTreeSet<&str> =
        rows.iter().map(|row| row.state.as_str()).collect();
    assert_eq!(states.into_iter().collect::<Vec<_>>(), ["forgotten", "processed"]);
    let stone = rows.iter().find(|row| row.state == InboxState::Forgotten).unwrap();
    assert_eq!(stone.forgotten_by.as_deref(), Some("anna@db1: a test"));
    name.event_id = postrider_core::EventId::from_u128(9);
    assert_eq!(store.forget(&name, &note()).await.unwrap(), Forgotten::Unknown);
    let unnamed = store.mark_processed(&name, &note()).await.unwrap_err();
    assert_eq!(unnamed.kind(), ErrorKind::Invalid, "{unnamed}");
    name.source = Some("/shop".to_owned());
    assert_eq!(store.mark_processed(&name, &note()).await.unwrap(), Marked::Marked);
    assert_eq!(store.forget(&name, &note()).await.unwrap(), Forgotten::Forgotten);
    assert_eq!(store.forget(&name, &note()).await.unwrap(), Forgotten::Unknown, "it is gone");
    let log = store.audit(&PageRequest::default()).await.unwrap().rows;
    assert_eq!(log.len(), 4);
    assert!(log[3].subject.contains("was processed"), "{}", log[3].subject);
}
