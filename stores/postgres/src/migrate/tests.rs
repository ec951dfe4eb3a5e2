//! From one version of the tables to the next, by the code that will do it: as long as this program knows one version,
//! the second is the tests' own.

#![allow(clippy::print_stderr, reason = "why a test is skipped")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_core::lease::AcquireRequest;
use postrider_core::source::{DueRequest, RenewRequest};
use postrider_core::{
    Destination, DestinationId, Lease, Operator as _, OutboxSource as _, RelayId,
};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use super::*;

const EVENT: &str = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
    values ('order', '42', 'order.placed', '{\"a\": 1}')";

/// A producer may wait so long for a migration, and no longer.
const STALL_MAX: Duration = Duration::from_secs(1);

/// What a second version could be: it alters what producers write to, and what is there. It is said to serve nobody who does
/// not know it.
const SECOND: Migration = Migration {
    name: "remarks",
    serves: 2,
    up: &[
        "alter table {outbox} add column remark text;
         alter table {outbox_waiting} add column remark text;",
        "create table {outbox_remark} (id bigint primary key);
         insert into {outbox_remark} select count(*) from {outbox};",
    ],
    down: "drop table {outbox_remark}; alter table {outbox_waiting} drop column remark;
         alter table {outbox} drop column remark;",
};

/// The same, whose connection dies behind what it has done.
const CUT: Migration = Migration {
    up: &[
        "alter table {outbox} add column remark text;",
        "select pg_terminate_backend(pg_backend_pid());",
    ],
    down: "drop table {outbox_remark}; select pg_terminate_backend(pg_backend_pid());",
    ..SECOND
};

/// The same, said to serve programs of the first version.
const SERVING: Migration = Migration { serves: 1, ..SECOND };

const TWO: &[Migration] = &[MIGRATIONS[0], SECOND];
const TWO_SERVING: &[Migration] = &[MIGRATIONS[0], SERVING];
const TWO_CUT: &[Migration] = &[MIGRATIONS[0], CUT];

/// A schema with tables of the first version, and an event.
struct Place {
    url: String,
    setup: Setup,
}

impl Place {
    async fn new() -> Option<Place> {
        let url = match postrider_testkit::services::postgres() {
            Ok(url) => url,
            Err(reason) => {
                eprintln!("skipped: a second version of the tables: {reason}");
                return None;
            }
        };
        let schema = format!("m{}", &Uuid::now_v7().simple().to_string()[4..]);
        let names = Names::new(&schema, "outbox", "inbox").unwrap();
        let setup = Setup { names, partitions: Some(4), ..Setup::default() };
        init(&url, &setup).await.expect("the first version");
        let place = Place { url, setup };
        place.run(EVENT).await;
        Some(place)
    }

    async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn run(&self, text: &str) {
        let text = self.setup.names.render(text);
        self.connect().await.batch_execute(&text).await.expect("it runs");
    }

    async fn number(&self, text: &str) -> i64 {
        let text = self.setup.names.render(text);
        self.connect().await.query_one(&text, &[]).await.expect("a row").get(0)
    }

    async fn init(&self, list: &[Migration]) -> Result<()> {
        init_by(list, &self.url, &self.setup, TRIES_FOR).await
    }

    async fn revert(&self, list: &[Migration], to: u32) -> Result<()> {
        revert_by(list, &self.url, &self.setup.names, to).await
    }

    /// The version, and whether the second one's column and its table are there.
    async fn stands(&self) -> (u32, bool, bool) {
        let found = migrations_by(TWO, &self.url, &self.setup.names).await.expect("status");
        let is = |rest: &str| format!("select count(*) from {rest}");
        let column = "pg_attribute where attrelid = {text:outbox}::regclass and attname = 'remark'";
        let table = "pg_class where oid = to_regclass({text:outbox_remark})";
        let column = self.number(&is(column)).await > 0;
        (found.version(), column, self.number(&is(table)).await > 0)
    }

    async fn revert_to_first_and_end(self) {
        self.revert(TWO, 1).await.expect("back");
        assert_eq!(self.stands().await, FIRST);
        self.end().await;
    }

    /// A store of a program that knows the first version.
    fn store(&self) -> crate::PostgresStore {
        let names = self.setup.names.clone();
        let options = crate::Options { names, ..crate::Options::default() };
        crate::PostgresStore::with(&self.url, options).unwrap()
    }

    async fn end(self) {
        remove(&self.url, &self.setup.names).await.expect("it is removed");
    }
}

const FIRST: (u32, bool, bool) = (1, false, false);
const BOTH: (u32, bool, bool) = (2, true, true);

/// F30: the next version is made once, whoever and however many make it, beside producers that do not rest: none of them waits
/// for a second, and what they write is kept, also on the way back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_version_is_made_once_beside_producers() {
    let Some(place) = Place::new().await else { return };
    let (done, mut producers) = (Arc::new(AtomicBool::new(false)), Vec::new());
    for _ in 0..3 {
        let (client, done) = (place.connect().await, Arc::clone(&done));
        let insert = place.setup.names.render(EVENT);
        producers.push(tokio::spawn(async move {
            let (mut longest, mut count) = (Duration::ZERO, 0);
            while !done.load(Ordering::Relaxed) {
                let begin = Instant::now();
                client.batch_execute(&insert).await.expect("an insert");
                (longest, count) = (longest.max(begin.elapsed()), count + 1);
                // waits: producers that take the whole server say less of how long one waits
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (longest, count)
        }));
    }
    let place = Arc::new(place);
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let place = Arc::clone(&place);
        all.spawn(async move { place.init(TWO).await });
    }
    while let Some(made) = all.join_next().await {
        made.expect("no panic").expect("it succeeds");
    }
    assert_eq!(place.stands().await, BOTH);
    place.revert(TWO, 1).await.expect("and back");
    assert_eq!(place.stands().await, FIRST);
    place.init(TWO).await.expect("and again");
    assert_eq!(place.stands().await, BOTH);
    done.store(true, Ordering::Relaxed);
    let (mut longest, mut written) = (Duration::ZERO, 1);
    for producer in producers {
        let (took, count) = producer.await.expect("no panic");
        (longest, written) = (longest.max(took), written + count);
    }
    assert!(written > 20 && longest < STALL_MAX, "{longest:?} of {written}");
    assert_eq!(place.number("select count(*) from {outbox}").await, written);
    Arc::into_inner(place).expect("nobody else has it").revert_to_first_and_end().await;
}

/// F30: of a migration that is cut off in its middle nothing is there, forwards and back, and the next one does it whole.
#[tokio::test]
async fn what_is_cut_off_in_the_middle_is_done_again() {
    let Some(place) = Place::new().await else { return };
    place.init(TWO_CUT).await.expect_err("the connection dies");
    assert_eq!(place.stands().await, FIRST);
    place.init(TWO).await.expect("the next one");
    assert_eq!(place.stands().await, BOTH);
    place.revert(TWO_CUT, 1).await.expect_err("the connection dies");
    assert_eq!(place.stands().await, BOTH);
    place.revert_to_first_and_end().await;
}

/// F29, F30: a program of the version before refuses the tables with both versions, and cannot take them back; once the newer
/// one has, it goes on with them.
#[tokio::test]
async fn an_older_program_refuses_the_next_version() {
    let Some(place) = Place::new().await else { return };
    place.init(TWO).await.expect("the next version");
    let store = place.store();
    let opened = store.open().await.map(|_| ());
    let older = [opened, place.init(MIGRATIONS).await, place.revert(MIGRATIONS, 0).await];
    for refused in older.map(Result::unwrap_err) {
        assert_eq!(refused.kind(), ErrorKind::SchemaTooNew, "{refused}");
        let text = refused.to_string();
        assert!(text.contains("version 2") && text.contains("knows 1"), "{text}");
    }
    assert_eq!(place.stands().await, BOTH);
    place.revert(TWO, 1).await.expect("the newer program");
    store.open().await.expect("it is at home again");
    assert_eq!(place.number("select count(*) from {outbox}").await, 1, "no event went");
    place.end().await;
}

/// F29, F41, R108: tables that serve the version before are opened and left as they are by its programs, whose `init` has
/// nothing to do, and which cannot take them back.
#[tokio::test]
async fn an_older_program_works_with_a_version_that_serves_it() {
    let Some(place) = Place::new().await else { return };
    place.init(TWO_SERVING).await.expect("the next version");
    let store = place.store();
    assert_eq!(store.open().await.expect("it serves").schema, 2);
    assert_eq!(store.overview().await.expect("it may look").facts.schema, 2);
    place.init(MIGRATIONS).await.expect("nothing to do");
    assert_eq!(place.stands().await, BOTH);
    let refused = place.revert(MIGRATIONS, 0).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SchemaTooNew, "{refused}");
    assert_eq!(place.stands().await, BOTH);
    place.revert_to_first_and_end().await;
}

/// F29, F41: an older program at work goes on through a migration that serves it, with the leases that it has; one that does
/// not serve it takes them from it, and gives it none until it is taken back.
#[tokio::test]
async fn an_older_program_at_work_lets_go_where_it_is_not_served() {
    let Some(place) = Place::new().await else { return };
    let store = place.store();
    store.open().await.expect("it is at home");
    let owner = RelayId::mint();
    let lease_duration = Duration::from_secs(60);
    let asks = AcquireRequest {
        owner: owner.clone(),
        lease_duration,
        wanted: u16::MAX,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    };
    let granted = store.acquire(&asks).await.expect("its own").granted;
    let leases: Vec<Lease> = granted.into_iter().map(|granted| granted.lease).collect();
    let renews = RenewRequest { owner, leases: leases.clone(), lease_duration, current: true };
    let destination = DestinationId::new(Destination::UNROUTED).expect("a name");
    let due = || DueRequest {
        lease: leases[0].clone(),
        destination: destination.clone(),
        except: Vec::new(),
        rows_max: 10,
        bytes_max: 1_000,
    };
    for serves in [true, false] {
        store.due(&due()).await.expect("an answer");
        place.init(if serves { TWO_SERVING } else { TWO }).await.expect("the next version");
        store.due(&due()).await.expect("an answer in the same session");
        assert_eq!(store.renew(&renews).await.expect("an answer").kept.is_empty(), !serves);
        let acquired = store.acquire(&asks).await;
        match acquired {
            Ok(acquired) => assert!(serves && acquired.granted.is_empty(), "{acquired:?}"),
            Err(refused) => {
                assert!(!serves && refused.kind() == ErrorKind::SchemaTooNew, "{refused}");
            }
        }
        place.revert(TWO, 1).await.expect("back");
        assert_eq!(store.renew(&renews).await.expect("an answer").kept, leases);
    }
    let owned = "select count(*) from {outbox_lease} where owner is not null and token = 1";
    assert_eq!(place.number(owned).await, leases.len() as i64, "nothing was granted anew");
    place.end().await;
}

/// What is printed takes the tables back as `revert` does.
#[tokio::test]
async fn what_is_printed_takes_the_tables_back() {
    let Some(place) = Place::new().await else { return };
    let names = &place.setup.names;
    assert_eq!(print_revert(names, VERSION), "", "nothing to take back");
    let text = print_revert(names, 0);
    place.connect().await.batch_execute(&text).await.expect("it runs");
    let left = "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = '{}'";
    assert_eq!(place.number(&left.replace("{}", names.schema())).await, 0);
    place.end().await;
}
