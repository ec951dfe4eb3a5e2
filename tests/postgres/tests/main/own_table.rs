//! An application's own table under the engine that everybody uses: every layout, two relays, an owner that is
//! killed, an event that is refused, and how often an idle relay looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_core::operate::{Note, Operator, RowKey, Submission, Verb};
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Destination, DestinationId, ErrorKind, EventId, Fault,
    OutboxSource, Outcome, Outgoing, Result, Route,
};
use postrider_postgres::{Mapping, Names, Options, OwnTable, Setup, init};
use postrider_relay::{Relay, RelayHandle, Settings};
use postrider_testkit::services;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A layout: its name, its table, how a key's event with a type is inserted, and what pending is.
type Layout = (&'static str, &'static str, &'static str, &'static str);

const LAYOUTS: [Layout; 3] = [
    (
        "published_at",
        "create table {t} (seq bigserial unique, id uuid primary key, aggregate_type text not null,
            aggregate_id text not null, event_type text not null, payload jsonb not null,
            created_at timestamptz not null default clock_timestamp(), published_at timestamptz)",
        "insert into {t} (id, aggregate_type, aggregate_id, event_type, payload)
            values ('{id}', 'order', '{key}', '{type}', '{}')",
        "published_at is null",
    ),
    (
        "status",
        "create table {t} (id bigserial primary key, event_id uuid not null unique,
            aggregate_type text not null, aggregate_id text not null, event_type text not null,
            payload jsonb not null, status text not null default 'pending',
            attempts int not null default 0, created_at timestamptz not null default clock_timestamp())",
        "insert into {t} (event_id, aggregate_type, aggregate_id, event_type, payload)
            values ('{id}', 'order', '{key}', '{type}', '{}')",
        "status = 'pending'",
    ),
    (
        "debezium",
        "create table {t} (id uuid primary key, aggregatetype text not null, aggregateid text not null,
            type text not null, payload jsonb)",
        "insert into {t} values ('{id}', 'order', '{key}', '{type}', '{}')",
        "true",
    ),
];

/// A schema with Postrider's tables and a table of the application's; dropped at the end of its test.
struct Shop {
    url: String,
    names: Names,
    layout: Layout,
}

impl Shop {
    async fn new(layout: Layout) -> Option<Shop> {
        let url = match services::postgres() {
            Ok(url) => url,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return None;
            }
        };
        let schema = format!("o{}", &Uuid::now_v7().simple().to_string()[4..]);
        let names = Names::new(&schema, "outbox", "inbox").expect("a name");
        let setup = Setup { names: names.clone(), partitions: Some(1), ..Setup::default() };
        init(&url, &setup).await.expect("the tables");
        let shop = Shop { url, names, layout };
        shop.client().await.batch_execute(&shop.sql(layout.1)).await.expect("the table");
        Some(shop)
    }

    fn sql(&self, statement: &str) -> String {
        statement.replace("{t}", &format!("{}.events", self.names.schema()))
    }

    async fn client(&self) -> Client {
        let (client, connection) =
            tokio_postgres::connect(&self.url, NoTls).await.expect("connect");
        tokio::spawn(connection);
        client
    }

    fn mapping(&self) -> Mapping {
        let table = format!("{}.events", self.names.schema());
        match self.layout.0 {
            "published_at" => Mapping::published_at(table),
            "status" => {
                let mut mapping = Mapping::status(table);
                mapping.id = "event_id".to_owned();
                mapping
            }
            _ => Mapping::debezium(table),
        }
    }

    fn table(&self) -> OwnTable {
        let mut options = Options::default();
        options.names = self.names.clone();
        OwnTable::with(&self.url, options, self.mapping()).expect("a mapping")
    }

    async fn number(&self, statement: &str) -> i64 {
        self.client().await.query_one(&self.sql(statement), &[]).await.expect("a row").get(0)
    }

    async fn pending(&self) -> i64 {
        self.number(&format!("select count(*) from {{t}} where {}", self.layout.3)).await
    }

    /// Commits one event in a transaction of its own, and says which.
    async fn commit(&self, client: &Client, key: &str, event_type: &str) -> EventId {
        let id = EventId::mint();
        let insert = self
            .sql(self.layout.2)
            .replace("{id}", &id.to_string())
            .replace("{key}", key)
            .replace("{type}", event_type);
        client.batch_execute(&insert).await.expect("commit");
        id
    }

    async fn drop(self) {
        let drop = format!("drop schema {} cascade", self.names.schema());
        self.client().await.batch_execute(&drop).await.expect("dropped");
    }
}

/// A broker that refuses one type as long as it is told to, and remembers the others.
struct Recording {
    refuses: AtomicBool,
    seen: Mutex<Vec<(String, EventId)>>,
}

impl Recording {
    fn new() -> Arc<Recording> {
        Arc::new(Recording { refuses: AtomicBool::new(true), seen: Mutex::default() })
    }

    fn seen(&self) -> Vec<(String, EventId)> {
        self.seen.lock().expect("no panic").clone()
    }

    /// The first deliveries of each key, in their order.
    fn firsts(&self) -> BTreeMap<String, Vec<EventId>> {
        let (mut firsts, mut known) = (BTreeMap::<String, Vec<EventId>>::new(), BTreeSet::new());
        for (key, id) in self.seen() {
            if known.insert(id) {
                firsts.entry(key).or_default().push(id);
            }
        }
        firsts
    }
}

impl Broker for Recording {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut capabilities = BrokerCapabilities::least();
        capabilities.keeps_key_order = true;
        capabilities
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let refuses = self.refuses.load(Ordering::SeqCst);
            let mut seen = self.seen.lock().expect("no panic");
            let outcome = |one: &Outgoing| {
                if refuses && &*one.event.event_type == "order.poison" {
                    return Outcome::Rejected(Fault::new(ErrorKind::Invalid, "no such order"));
                }
                seen.push((one.event.key(), one.event.id));
                Outcome::Acked
            };
            Ok(batch.iter().map(outcome).collect())
        })
    }
}

fn definition() -> Destination {
    let topic = "orders".parse().expect("a template");
    Destination::new(DestinationId::new("a").expect("a name"), "record", vec![Route::all(topic)])
}

async fn relay(shop: &Shop, broker: &Arc<Recording>) -> RelayHandle {
    let settings = Settings::with_lease(Duration::from_secs(3));
    let relay = Relay::builder(Arc::new(shop.table()))
        .destination(definition(), Arc::clone(broker) as Arc<dyn Broker>)
        .settings(settings);
    relay.start().await.expect("it starts")
}

/// Waits until something is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        // waits: for relays, who tell nobody.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writers side by side; returns what each key was given, in order. The key `p` has a poisoned event first.
async fn write(shop: &Shop) -> BTreeMap<String, Vec<EventId>> {
    let writer = async |key: &str| {
        let (client, mut ids) = (shop.client().await, Vec::new());
        for _ in 0..40 {
            ids.push(shop.commit(&client, key, "order.placed").await);
        }
        (format!("order/{key}"), ids)
    };
    let poisoned = async {
        let client = shop.client().await;
        let mut ids = vec![shop.commit(&client, "p", "order.poison").await];
        for _ in 0..3 {
            ids.push(shop.commit(&client, "p", "order.placed").await);
        }
        ids
    };
    let (poisoned, a, b, c) = tokio::join!(poisoned, writer("a"), writer("b"), writer("c"));
    [a, b, c, ("order/p".to_owned(), poisoned)].into_iter().collect()
}

/// R031, R036, F1: in every layout two relays share the table: one works, the other takes over when it is
/// killed. Everything is delivered, each key in its order; what is refused is a dead letter, what follows of
/// its key waits behind it, and neither is marked before it was delivered. The index is offered, not made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_layout_is_served_by_two_relays_one_of_which_dies() {
    for layout in LAYOUTS {
        let Some(shop) = Shop::new(layout).await else { return };
        let indexes =
            "select count(*) from pg_indexes where tablename = 'events' and schemaname = '";
        let indexes = format!("{indexes}{}'", shop.names.schema());
        let before = shop.number(&indexes).await;
        let broker = Recording::new();
        let (first, second) = (relay(&shop, &broker).await, relay(&shop, &broker).await);
        assert_eq!(shop.number(&indexes).await, before, "{}: nothing is imposed", layout.0);
        if let Some(offer) = OwnTable::index(&shop.mapping()) {
            shop.client().await.batch_execute(&offer).await.expect("what is offered can be run");
        }
        let killer = async {
            until("the first deliveries", async || broker.seen().len() > 20).await;
            let owner = "select count(*) from {t2} where owner = '"
                .replace("{t2}", &format!("{}.outbox_lease", shop.names.schema()));
            let owner = format!("{owner}{}'", first.owner());
            let (owns, other) = match shop.number(&owner).await {
                1 => (first, second),
                _ => (second, first),
            };
            owns.abort();
            other
        };
        let (written, left) = tokio::join!(write(&shop), killer);
        let others: usize = written.values().map(Vec::len).sum::<usize>() - 4;
        until("what can be delivered is marked", async || shop.pending().await == 4).await;
        let ids: BTreeSet<EventId> = broker.seen().into_iter().map(|(_, id)| id).collect();
        assert_eq!(ids.len(), others, "{}: nothing of the poisoned key", layout.0);
        let counts = shop.table().counts(&definition().id).await.expect("counts");
        assert_eq!((counts.dead, counts.parked), (1, 3), "{}: {counts:?}", layout.0);
        // The reason is mended, and an operator asks for it again.
        broker.refuses.store(false, Ordering::SeqCst);
        let dead =
            format!("select seq from {}.outbox_waiting where state = 'dead'", shop.names.schema());
        let seq = shop.number(&dead).await.cast_unsigned();
        let verb = Verb::Redrive(vec![RowKey { destination: definition().id, seq }]);
        let note = Note::new("anna", "mended").expect("a note");
        let store = shop.table();
        store.store().submit(&Submission { verb, note }).await.expect("submit");
        until("all is marked", async || shop.pending().await == 0).await;
        assert_eq!(broker.firsts(), written, "{}: each key in its order", layout.0);
        left.drain();
        left.stopped().await;
        shop.drop().await;
    }
}

/// R035: an idle relay looks at the table a few times a second, however fast it looks when there is something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_relay_looks_seldom() {
    let Some(shop) = Shop::new(LAYOUTS[0]).await else { return };
    let broker = Recording::new();
    let handle = relay(&shop, &broker).await;
    shop.commit(&shop.client().await, "k", "order.placed").await;
    until("it is delivered", async || shop.pending().await == 0).await;
    let looked = format!(
        "select (seq_scan + coalesce(idx_scan, 0))::bigint from pg_stat_all_tables
        where schemaname = '{}' and relname = 'events'",
        shop.names.schema()
    );
    // waits: until it has slowed down, and for the server to publish what it counted.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = shop.number(&looked).await;
    // waits: the span that is measured.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let looks = shop.number(&looked).await - before;
    // Two polls a second, each for the destination and for what no route matches; with 5 ms it would be 1600.
    assert!((4..=64).contains(&looks), "{looks} scans in 8 s");
    handle.drain();
    handle.stopped().await;
    shop.drop().await;
}
