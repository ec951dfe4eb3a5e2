//! A store, a broker, and a record of what happened between them: where small relays, sound and
//! broken, are run and judged.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::source::{FetchRequest, FetchedRow};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart, WaitingState,
};
use postrider_core::{
    Broker, Clock, Destination, DestinationId, Error, Event, EventId, Format, Lease, Marks,
    NewEvent, OutboxSource, Outcome, Outgoing, RelayId, Route, Timestamp,
};
use postrider_history::{Delay, History, Progress, Standing, Verdict, check};
use postrider_testkit::fault::FaultyBroker;
use postrider_testkit::memory::{MemoryBroker, MemoryClock, MemoryStore};

/// What an unafflicted event may take.
const BOUND: Duration = Duration::from_secs(1);
/// The window of these relays, in rows.
pub(crate) const WINDOW_ROWS_MAX: u64 = 16;

pub(crate) const DESTINATION: &str = "memory";
pub(crate) const TOPIC: &str = "orders";

pub(crate) struct World {
    pub(crate) clock: MemoryClock,
    pub(crate) store: MemoryStore,
    pub(crate) broker: MemoryBroker,
    pub(crate) faulty: Arc<FaultyBroker>,
    pub(crate) history: History,
    /// Keys with a fault of their own.
    pub(crate) afflicted: BTreeSet<String>,
    lease: Lease,
    origin: Timestamp,
    acks_noted: usize,
    claims_noted: usize,
}

pub(crate) fn destination() -> DestinationId {
    DestinationId::new(DESTINATION).unwrap()
}

pub(crate) fn event(key: u32, n: u32) -> NewEvent {
    NewEvent::new("order", key.to_string(), format!("order.changed.{n}"))
}

impl World {
    /// A store of one partition with one destination, owned by one relay.
    pub(crate) async fn start() -> World {
        let clock = MemoryClock::new();
        let store = MemoryStore::new(1, clock.clone());
        let broker = MemoryBroker::new(clock.clone());
        let faulty = Arc::new(FaultyBroker::new(Arc::new(broker.clone())));
        let route = Route::all(TOPIC.parse().unwrap());
        let definition = Destination::new(destination(), "memory", vec![route]);
        store.register(&[definition]).await.unwrap();
        let request = AcquireRequest {
            owner: RelayId::mint(),
            lease_duration: Duration::from_secs(3_600),
            wanted: 1,
            free_for: Duration::ZERO,
            presence: None,
            current: true,
            dead: None,
        };
        let acquired = store.acquire(&request).await.unwrap();
        World {
            origin: clock.now(),
            lease: acquired.granted[0].lease.clone(),
            clock,
            store,
            broker,
            faulty,
            history: History::new(),
            afflicted: BTreeSet::new(),
            acks_noted: 0,
            claims_noted: 0,
        }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn commit(&self, events: impl IntoIterator<Item = NewEvent>) {
        self.store.commit(events.into_iter().collect()).unwrap();
    }

    pub(crate) fn roll_back(&mut self, event: NewEvent) {
        self.history.roll_back(event.event().id);
        let mut transaction = self.store.begin();
        transaction.enqueue(event).unwrap();
        transaction.roll_back();
    }

    /// What is behind the saved cursor, up to so many rows.
    pub(crate) async fn page(&self, rows_max: u64) -> Vec<FetchedRow> {
        let loaded = self.store.load(&self.lease, &destination()).await.unwrap();
        let request = FetchRequest {
            lease: self.lease.clone(),
            destinations: vec![destination()],
            after: loaded.cursor,
            until: None,
            rows_max: u32::try_from(rows_max).unwrap(),
            bytes_max: 1 << 30,
        };
        self.store.fetch(&request).await.unwrap().rows
    }

    /// Sends one event, and notes what came of it.
    pub(crate) async fn publish(&mut self, row: &FetchedRow) -> Result<Outcome, Error> {
        let out = outgoing(row.event.as_ref().unwrap());
        let answer = self.faulty.publish(&[out]).await;
        self.note();
        answer.map(|outcomes| outcomes[0].clone())
    }

    /// Moves the cursor past the rows, each with its outcome; waiting ones enter `waiting`.
    pub(crate) async fn settle(&mut self, rows: &[(FetchedRow, Passed)], waiting: Vec<NewWaiting>) {
        let loaded = self.store.load(&self.lease, &destination()).await.unwrap();
        let mut part = SettlementPart::new(destination());
        part.cursor = rows.last().map(|(row, _)| (loaded.cursor, row.cursor.clone()));
        part.passed = rows.iter().map(|(row, passed)| (row.row, *passed)).collect();
        part.waiting = waiting;
        let settlement = Settlement { lease: self.lease.clone(), parts: vec![part] };
        self.store.settle(&settlement).await.unwrap();
        self.note();
    }

    /// Records what the broker acknowledged and what the store claims since the last look. Called
    /// after each step, so that the order between the two is known.
    pub(crate) fn note(&mut self) {
        let published = self.broker.published();
        for sent in published.iter().skip(self.acks_noted).filter(|sent| sent.is_acked()) {
            let event = &sent.event;
            self.history.ack(DESTINATION, event.id);
            self.history.deliver_as(DESTINATION, event.id, sent.marks.late);
            let took = self.origin.plus(sent.at).since(event.created_at);
            self.history.delay(Delay {
                destination: DESTINATION.to_owned(),
                id: event.id,
                delay_ms: u64::try_from(took.as_millis()).unwrap(),
                bound_ms: u64::try_from(BOUND.as_millis()).unwrap(),
                afflicted: self.afflicted.contains(&event.key()),
            });
        }
        self.acks_noted = published.len();
        let settled = self.store.settled(&destination());
        for (row, passed) in settled.iter().skip(self.claims_noted) {
            if *passed == Passed::Acked {
                self.history.published(DESTINATION, row.id);
            }
        }
        self.claims_noted = settled.len();
    }

    /// How many events the cursor has not passed.
    pub(crate) async fn backlog(&self) -> u64 {
        self.page(u64::from(u32::MAX)).await.len() as u64
    }

    /// Looks at progress: events are there, the broker is well, did the cursor move since?
    pub(crate) async fn look(&mut self, backlog_before: u64, blocker: Option<&str>) {
        let backlog = self.backlog().await;
        self.history.progress(Progress {
            destination: DESTINATION.to_owned(),
            backlog: backlog_before,
            moved: backlog < backlog_before,
            broker_healthy: true,
            blocker: blocker.map(str::to_owned),
        });
    }

    pub(crate) fn window(&mut self, rows: usize) {
        self.history.gauge("window_rows", rows as u64, WINDOW_ROWS_MAX);
    }

    /// Judges the run: commits from the store, what waits, and what is still before the cursor.
    pub(crate) async fn judge(mut self) -> (Verdict, History) {
        self.note();
        for row in self.store.committed() {
            self.history.commit_for(row.row.id, &row.key, &[DESTINATION]);
        }
        for waiting in self.store.waiting(&destination()) {
            let state = Standing::from(waiting.state);
            let holds = waiting.holds_key && waiting.state != WaitingState::Discarded;
            self.history.wait(DESTINATION, waiting.row.id, state, holds);
        }
        for row in self.page(u64::from(u32::MAX)).await {
            self.history.wait(DESTINATION, row.row.id, Standing::Pending, true);
        }
        (check(&self.history), self.history)
    }
}

pub(crate) fn outgoing(event: &Arc<Event>) -> Outgoing {
    Outgoing {
        event: Arc::clone(event),
        topic: Arc::from(TOPIC),
        format: Format::Structured,
        layout: None,
        marks: Marks::default(),
        attempt: 1,
    }
}

pub(crate) fn waits(row: &FetchedRow, placement: Placement) -> NewWaiting {
    NewWaiting {
        row: row.row,
        key_hash: row.key_hash,
        event: row.event.as_ref().ok().cloned(),
        placement,
    }
}

pub(crate) fn dead() -> Placement {
    Placement::Dead {
        attempted: Attempted {
            attempts: 3,
            reason: Reason::Rejected,
            detail: "refused".to_owned(),
        },
        holds_key: true,
    }
}

/// The id of a row, for sets.
pub(crate) fn id_of(row: &FetchedRow) -> EventId {
    row.row.id
}
