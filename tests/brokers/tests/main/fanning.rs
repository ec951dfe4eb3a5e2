//! One outbox of PostgreSQL to Kafka and to NATS: each destination has cursors of its own, so one that stands still or comes later
//! neither holds another nor loses anything.

use std::collections::BTreeSet;

use postrider_core::{Destination, EventId, NewEvent, Route};
use postrider_history::{Commit, History, Record, check};

use crate::kafka::Kafka;
use crate::nats::Nats;
use crate::outbox::Store;
use crate::server::Server;
use crate::shop::{Shop, id, stop};

const KEYS: u32 = 20;
/// Events of one step: more than one batch.
const STEP: u32 = 1_000;

fn definition(name: &str, subject: &str) -> Destination {
    Destination::new(id(name), name, vec![Route::all(subject.parse().unwrap())])
}

/// What was committed, in its order, and where it has to arrive.
struct Ledger {
    history: History,
    written: u32,
}

impl Ledger {
    async fn commit(&mut self, shop: &Shop) {
        let numbers = self.written..self.written + STEP;
        let event =
            |n: u32| NewEvent::new("order", (n % KEYS).to_string(), "order.changed").json(&n);
        let events: Vec<NewEvent> = numbers.map(|n| event(n).unwrap()).collect();
        for (n, id) in shop.commit(&events).await.into_iter().enumerate() {
            let n = self.written + u32::try_from(n).unwrap();
            let destinations = Some(["kafka", "nats", "audit"].map(str::to_owned).into());
            self.history.push(Record::Commit(Commit {
                id,
                source: String::new(),
                key: (n % KEYS).to_string(),
                order: u64::from(n) + 1,
                destinations,
                unserialised: false,
            }));
        }
        self.written += STEP;
    }

    fn deliver(&mut self, destination: &str, arrived: Vec<EventId>) {
        let different: BTreeSet<EventId> = arrived.iter().copied().collect();
        assert_eq!(different.len(), self.written as usize, "{destination}");
        for id in arrived {
            self.history.deliver(destination, id);
        }
    }
}

/// R003, R037, INV-5: while one server stands still the other gets everything, and the first has all of it when it
/// goes on; a destination that is added later begins with the first event, also in a stream that has the events already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_and_nats_do_not_wait_for_each_other() {
    let (Some(kafka), Some(nats)) = (Kafka::start().await, Nats::start().await) else { return };
    let Some(shop) = Shop::open(Store::Postgres).await else { return };
    let mut ledger = Ledger { history: History::new(), written: 0 };
    let both = || {
        [
            (definition("kafka", "orders"), kafka.broker()),
            (definition("nats", "orders"), nats.broker()),
        ]
    };
    let relay = shop.relay(both()).await;
    ledger.commit(&shop).await;
    kafka.holds(1_000).await;
    nats.holds(1_000).await;
    nats.signal("-STOP");
    ledger.commit(&shop).await;
    kafka.holds(2_000).await;
    nats.signal("-CONT");
    nats.holds(2_000).await;
    kafka.signal("-STOP");
    ledger.commit(&shop).await;
    nats.holds(3_000).await;
    kafka.signal("-CONT");
    kafka.holds(3_000).await;
    stop(relay).await;
    shop.add(definition("audit", "audit")).await;
    let audit = (definition("audit", "audit"), nats.broker());
    let relay = shop.relay(both().into_iter().chain([audit])).await;
    ledger.commit(&shop).await;
    kafka.holds(4_000).await;
    nats.holds(8_000).await;
    shop.waiting(|rows| rows.is_empty()).await;
    stop(relay).await;
    ledger.deliver("kafka", kafka.arrived().await);
    ledger.deliver("nats", nats.arrived().await);
    ledger.deliver("audit", nats.arrived_at("audit").await);
    let verdict = check(&ledger.history);
    assert!(verdict.holds(), "{verdict}");
}
