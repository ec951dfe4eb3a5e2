//! Behind a pooler that hands each transaction to another session: found out, said, and all the same true.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::operate::{Finding, Level, RequestId, RequestState, Submission};
use postrider_core::source::OutboxSource;
use postrider_core::subscription::Receipt;
use postrider_core::{
    BoxFuture, Code, Delivery, Error, ErrorKind, Event, EventId, HandlerName, NewEvent, Operator,
    PartitionId, Result, Timestamp,
};
use postrider_postgres::{Names, Pooler, PostgresStore, Transactional, init};
use postrider_testkit::services;
use postrider_testkit::suite::{OpenTransaction, StoreHarness, skip};
use uuid::Uuid;

use crate::contract::Harness;
use crate::pool::{self, Kind};
use crate::support::{Fresh, connect, destination};
use crate::trouble::relay_bytes;

/// A schema on the server behind the pooler; `None`, with the reason printed, where there is none.
async fn behind(pooler: Pooler, partitions: u16) -> Option<Fresh> {
    let url = match services::url("pgbouncer") {
        Ok(url) => url,
        Err(reason) => {
            skip("what needs a pooler", &reason);
            return None;
        }
    };
    let name = format!("t{}", &Uuid::now_v7().simple().to_string()[4..]);
    let names = Names::new(&name, "outbox", "inbox").expect("a name");
    let mut fresh = Fresh::at(&direct(&url).await, names);
    (fresh.store_url, fresh.pooler) = (url, pooler);
    init(&fresh.store_url, &fresh.setup(partitions))
        .await
        .expect("tables, made through the pooler");
    Some(fresh)
}

/// The server that the pooler speaks to, by what the server says.
pub(crate) async fn direct(url: &str) -> String {
    let client = connect(url).await;
    let row = client.simple_query("select host(inet_server_addr()), inet_server_port()").await;
    let row = row.expect("an answer").into_iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.expect("a row");
    let (host, port) = (row.get(0).expect("over TCP"), row.get(1).expect("a port"));
    format!("postgres://postgres@{host}:{port}/postgres")
}

/// So often it is looked whether statements are lost, each time with one session fewer; the pooler has twenty.
const ROUNDS_MAX: usize = 8;

/// Stores find out by themselves, say so, and work; one that is told that there is no pooler does not.
#[tokio::test]
async fn a_pooler_is_found_out() {
    let Some(mut fresh) = behind(Pooler::Auto, 4).await else { return };
    let store = fresh.store();
    store.open().await.expect("open");
    assert!(!store.capabilities().wakes, "nothing is listened for");
    store.register(&[destination("a")]).await.expect("register");
    assert!(!found_by_statements(&fresh).await, "statements that are not prepared are not lost");
    let found = examined(&store).await.expect("the doctor's finding");
    assert_eq!(
        (found.level, found.code),
        (Level::Warning, Some(Code::SessionsShared)),
        "{found:?}"
    );
    fresh.pooler = Pooler::None;
    // While nobody else is at work, the pooler gives one session to all, and nothing is lost.
    let mut holders = Vec::new();
    for _ in 0..ROUNDS_MAX {
        if found_by_statements(&fresh).await {
            return;
        }
        let client = connect(&fresh.store_url).await;
        client.simple_query("begin").await.expect("a session is kept from the others");
        holders.push(client);
    }
    panic!("prepared ones are");
}

/// Whether the pooler shut its client out, because the server ended the session that it was about to hand over: other
/// tests have theirs ended.
fn is_shut_out(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && error.operator_code().is_none()
}

/// With others at work behind the pooler, so that sessions are not given back in the order in which a store takes them. One
/// that took them for its own would leave its search path in them, and the others would not find their tables.
#[tokio::test]
async fn a_pooler_is_found_out_beside_others() {
    let Some(fresh) = behind(Pooler::Auto, 1).await else { return };
    let other = connect(&fresh.store_url).await;
    let mut at_work = tokio::task::JoinSet::new();
    at_work.spawn(async move {
        while other.simple_query("select 1").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(3)).await; // waits: a program that is at work now and then
        }
    });
    let mut lost = 0;
    for round in 0..200 {
        let store = fresh.store();
        match store.open().await {
            Ok(_) => {
                assert!(
                    !store.capabilities().wakes,
                    "sessions are taken for its own, round {round}"
                );
            }
            Err(error) => {
                assert!(is_shut_out(&error), "{error}");
                lost += 1;
                assert!(lost < ROUNDS_MAX, "again and again: {error}");
            }
        }
    }
}

/// F36: a pooler that is put in between just after a store has looked takes its prepared statements away. What is asked
/// is answered all the same, and the next look cannot unsay it.
#[tokio::test]
async fn what_a_pooler_lost_is_asked_once_more() {
    let Some(mut fresh) = behind(Pooler::Auto, 1).await else { return };
    let pooler = fresh.store_url.clone();
    let server = Arc::new(Mutex::new(fresh.url.clone()));
    let (port, _cut) = relay_bytes(Arc::clone(&server)).await;
    fresh.store_url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let store = fresh.store();
    store.open().await.expect("open");
    assert!(store.capabilities().wakes, "its own sessions at first");
    *server.lock().expect("an address") = pooler.clone();
    let (mut holders, mut lost) = (Vec::new(), 0);
    while store.capabilities().wakes {
        match store.longest_horizon().await {
            Err(error) if is_shut_out(&error) && lost < ROUNDS_MAX => {
                lost += 1;
                continue;
            }
            answer => answer.expect("an answer, whoever has the session of the last one"),
        };
        let client = connect(&pooler).await;
        client.simple_query("begin").await.expect("a session is kept from the others");
        holders.push(client);
        assert!(holders.len() <= ROUNDS_MAX, "nothing is lost");
    }
}

/// What the doctor says of the way to the server, if it could look.
async fn examined(store: &PostgresStore) -> Option<Finding> {
    let findings = store.doctor(Timestamp::now()).await.ok()?;
    findings.into_iter().find(|finding| finding.subject == "pooler")
}

/// R074: handlers of two consumers, in transactions that the pooler gives to whichever session is free: each event is
/// done once, and no statement is somebody else's.
#[tokio::test]
async fn handlers_act_once_behind_a_pooler() {
    let Some(fresh) = behind(Pooler::Auto, 1).await else { return };
    let mut options = fresh.options();
    options.transactions_max = 4;
    let receivers = [1, 2].map(|_| {
        let name = HandlerName::new("billing").expect("a name");
        Transactional::with(&fresh.store_url, &options, name, |_, _| {
            Box::pin(async { Ok(Verdict::Done) })
        })
        .expect("a receiver")
    });
    let deliveries = (0..120u128).map(|number| {
        let mut event = Event::new(EventId::from_u128(number / 2), "order", "42", "order.placed");
        event.source = Arc::from("/shop");
        let (event, receiver) = (Arc::new(event), &receivers[usize::from(number % 2 == 1)]);
        async move {
            let receipt = Receipt { message: 1, token: 1 };
            let delivery = Delivery::new(Ok(Arc::clone(&event)), Arc::from("orders"), receipt);
            let mut unheard = 0;
            loop {
                match receiver.receive(&event, &delivery).await {
                    Err(error) if is_shut_out(&error) && unheard < ROUNDS_MAX => unheard += 1,
                    answer => return (answer.expect("a verdict"), unheard),
                }
            }
        }
    });
    let verdicts = futures_util::future::join_all(deliveries).await;
    let count = |verdict| verdicts.iter().filter(|(one, _)| *one == verdict).count();
    let (done, duplicates) = (count(Verdict::Done), count(Verdict::Duplicate));
    // What was done unheard is a duplicate when it comes again.
    let unheard: usize = verdicts.iter().map(|(_, unheard)| unheard).sum();
    assert_eq!(done + duplicates, 120);
    assert!(done <= 60 && done + unheard >= 60, "{done} done, {unheard} unheard");
    assert_eq!(fresh.number("select count(*) from {inbox}").await, 60);
}

/// Notifications that do not come through are noticed by one of our own, and said.
#[tokio::test]
async fn a_store_that_hears_nothing_knows() {
    let Some(fresh) = behind(Pooler::None, 1).await else { return };
    let store = fresh.store();
    let found = async {
        loop {
            // The first resolves because the session is new.
            _ = tokio::time::timeout(Duration::from_millis(200), store.wake()).await;
            let found = examined(&store).await.filter(|found| found.level == Level::Warning);
            if let Some(found) = found.filter(|found| found.message.contains("not heard")) {
                return found;
            }
        }
    };
    // Where the first look of our own fails, or comes through because the pooler happens to have both sessions at one
    // moment, the store looks again after a minute, and then with a new session.
    let found = tokio::time::timeout(Duration::from_secs(200), found).await.expect("it is noticed");
    assert_eq!(found.code, Some(Code::SessionsShared));
}

/// F36: a pooler that is put in between while the store runs is found out, without a restart.
#[tokio::test]
async fn a_pooler_that_comes_later_is_found_out() {
    let Some(mut fresh) = behind(Pooler::Auto, 1).await else { return };
    let pooler = fresh.store_url.clone();
    let server = Arc::new(Mutex::new(fresh.url.clone()));
    let (port, _cut) = relay_bytes(Arc::clone(&server)).await;
    let name = format!("later-{}", fresh.names.schema());
    fresh.store_url =
        format!("postgres://postgres@127.0.0.1:{port}/postgres?application_name={name}");
    let store = fresh.store();
    store.open().await.expect("open");
    assert!(store.capabilities().wakes, "its own sessions at first");
    *server.lock().expect("an address") = pooler;
    let kill = format!(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = '{name}'"
    );
    let found = async {
        while store.capabilities().wakes {
            fresh.number(&kill).await;
            _ = store.destinations().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.expect("it is found out");
    while store.destinations().await.is_err() {}
}

/// A server without a pooler is not taken for one.
#[tokio::test]
async fn sessions_of_ones_own_are_found_out() {
    let Some(fresh) = Fresh::new(4).await else { return };
    for _ in 0..3 {
        let store = fresh.store();
        store.open().await.expect("open");
        assert!(store.capabilities().wakes);
        let found = examined(&store).await.expect("the doctor's finding");
        assert_eq!(found.level, Level::Good, "{found:?}");
    }
}

/// Whether a statement fails because a session is somebody else's, when many stores ask at once.
async fn found_by_statements(fresh: &Fresh) -> bool {
    let ask = |_| async {
        let store = fresh.store();
        for _ in 0..20 {
            match store.destinations().await {
                Ok(_) => {}
                Err(error) if is_shut_out(&error) => {}
                Err(error) => {
                    assert_eq!(error.operator_code(), Some(Code::SessionsShared), "{error:?}");
                    return true;
                }
            }
        }
        false
    };
    let found = futures_util::future::join_all((0..20).map(ask)).await;
    found.into_iter().any(|found| found)
}

/// The contract's harness, with the store behind the pooler. Applications and clocks go past it.
struct Behind(Harness<4, true>);

impl StoreHarness for Behind {
    fn unavailable() -> Option<String> {
        services::url("pgbouncer").err()
    }

    async fn start() -> Self {
        let pooler = services::url("pgbouncer").expect("a pooler: asked before");
        let kind = Kind { url: direct(&pooler).await, partitions: 4, pooled: true, beside: "" };
        let mut fresh = Fresh::lent(kind).await;
        (fresh.store_url, fresh.pooler) = (pool::named(&pooler, &fresh.names), Pooler::Transaction);
        Behind(Harness(Arc::new(fresh)))
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        self.0.source()
    }

    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        self.0.commit(events)
    }

    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        self.0.roll_back(events)
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn OpenTransaction>>> {
        self.0.begin()
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.0.pass(span)
    }

    fn now(&self) -> BoxFuture<'_, Timestamp> {
        self.0.now()
    }

    fn unit(&self) -> Duration {
        self.0.unit()
    }

    fn insert_malformed(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.0.insert_malformed()
    }

    fn submit<'a>(
        &'a self,
        submission: &'a Submission,
    ) -> Option<BoxFuture<'a, Result<RequestId>>> {
        self.0.submit(submission)
    }

    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<RequestState>> {
        self.0.request(id)
    }

    fn set_partition(
        &self,
        partition: PartitionId,
        paused: bool,
    ) -> Option<BoxFuture<'_, Result<()>>> {
        self.0.set_partition(partition, paused)
    }

    fn erase<'a>(&'a self, key: &'a str) -> Option<BoxFuture<'a, Result<()>>> {
        self.0.erase(key)
    }

    fn rewind(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.0.rewind()
    }
}

mod suite {
    use super::Behind;

    postrider_testkit::store_suite!(Behind);
    postrider_testkit::source_suite!(Behind);
}
