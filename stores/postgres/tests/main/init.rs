//! `init` beside producers: it alters hot tables, and nobody waits for it long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider_core::{Code, ErrorKind};
use postrider_postgres::{Names, Setup, init, init_within, migrations};
use tokio::task::JoinHandle;

use crate::database::Database;
use crate::support::Fresh;
use crate::undisturbed::Undisturbed;

const EVENT: &str = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
    values ('order', '42', 'order.placed', '{\"a\": 1}')";

const SCHEDULED: &str =
    "insert into {outbox_scheduled} (aggregate_type, aggregate_id, event_type, payload, due_at)
    values ('order', '42', 'order.placed', '{\"a\": 1}', now() + interval '1 hour')";

/// A producer may wait so long for `init`, and no longer; what the machine takes for itself comes on top.
const STALL_MAX: Duration = Duration::from_secs(1);

/// Producers that commit one event after another until they are told to stop.
struct Producers {
    done: Arc<AtomicBool>,
    all: Vec<JoinHandle<(Duration, u32)>>,
    control: Undisturbed,
}

impl Producers {
    async fn start(fresh: &Fresh) -> Producers {
        let done = Arc::new(AtomicBool::new(false));
        let mut all = Vec::new();
        for _ in 0..3 {
            let (client, insert) = (fresh.connect().await, fresh.sql(EVENT));
            let done = Arc::clone(&done);
            all.push(tokio::spawn(async move {
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
        Producers { done, all, control: Undisturbed::start(fresh).await }
    }

    /// Insists that there were some, and that none took longer than it may.
    async fn stop(self) {
        self.done.store(true, Ordering::Relaxed);
        let (mut longest, mut count) = (Duration::ZERO, 0);
        for producer in self.all {
            let (took, inserts) = producer.await.expect("no panic");
            (longest, count) = (longest.max(took), count + inserts);
        }
        let control = self.control.end().await;
        assert!(
            count > 20 && longest < STALL_MAX + control,
            "{longest:?} of {count}, and {control:?} without `init`"
        );
    }
}

/// With another source than the tables have, so that `init` has to lock what producers write to.
fn renamed(fresh: &Fresh) -> Setup {
    Setup { source: Some("/renamed".to_owned()), ..fresh.setup(1) }
}

/// F30: beside producers that do not rest `init` finishes: where nothing is to be altered, and where something may
/// not be, of which it says so. Nobody waits for it for a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_finishes_beside_producers_that_do_not_rest() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let producers = Producers::start(&fresh).await;
    for _ in 0..5 {
        init(&fresh.url, &fresh.setup(1)).await.expect("nothing to do");
        let refused = init(&fresh.url, &renamed(&fresh)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        assert!(refused.to_string().contains("under another source"), "{refused}");
    }
    producers.stop().await;
}

/// F30: beside a transaction that a producer leaves open `init` gives up, says that the store is busy and what to look
/// for, and has changed nothing. When the transaction has ended it finishes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_says_what_is_in_its_way() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let open = fresh.connect().await;
    // Nothing is written: the tables stay as if there had never been an event.
    let lock = fresh.sql("begin; lock table {outbox} in row exclusive mode");
    open.batch_execute(&lock).await.unwrap();
    let busy = init_within(&fresh.url, &renamed(&fresh), Duration::from_secs(2)).await.unwrap_err();
    assert_eq!((busy.kind(), busy.operator_code()), (ErrorKind::Busy, Some(Code::Busy)), "{busy}");
    assert!(Code::Busy.advice().contains("Look for a transaction that stays open"));
    let source = async || {
        let found = migrations(&fresh.url, &fresh.names).await.expect("status");
        found.setup.expect("tables").source
    };
    assert_ne!(source().await.as_deref(), Some("/renamed"), "nothing was changed");
    open.batch_execute("rollback").await.unwrap();
    init_within(&fresh.url, &renamed(&fresh), Duration::from_secs(30)).await.expect("it is free");
    assert_eq!(source().await.as_deref(), Some("/renamed"));
}

/// F30: it locks two tables, and the waits for both together are what producers wait: here the first is free when the
/// wait for it is nearly over, and the second is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_both_tables_of_init() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (events, scheduled) = (fresh.connect().await, fresh.connect().await);
    scheduled.batch_execute(&fresh.sql(&format!("begin; {SCHEDULED}"))).await.unwrap();
    let producers = Producers::start(&fresh).await;
    let (url, setup) = (fresh.url.clone(), renamed(&fresh));
    let trying = tokio::spawn(async move { init_within(&url, &setup, STALL_MAX * 5).await });
    for hold in [300, 350, 600, 700, 800] {
        events.batch_execute(&fresh.sql(&format!("begin; {EVENT}"))).await.unwrap();
        // waits: as a producer's transaction that does something else for so long.
        tokio::time::sleep(Duration::from_millis(hold)).await;
        events.batch_execute("rollback").await.unwrap();
    }
    let gave_up = trying.await.expect("no panic").unwrap_err();
    assert_eq!(gave_up.kind(), ErrorKind::Busy, "{gave_up}");
    producers.stop().await;
}

/// What a database or a role is set to for its own programs does not end what is ours: neither the wait for another
/// migrator, nor (from PostgreSQL 17 on) a transaction that takes longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_database_do_not_end_init() {
    let Some(fresh) = Fresh::empty() else { return };
    let other = fresh.connect().await;
    let (number, schema) =
        ("select current_setting('server_version_num')::bigint", fresh.names.schema());
    let since = match fresh.number(number).await {
        170_000.. => "%20-c%20transaction_timeout%3D50ms",
        _ => "",
    };
    let url = fresh.url_with(&format!("options=-c%20lock_timeout%3D10ms{since}"));
    let lock =
        format!("select pg_advisory_xact_lock(hashtextextended('postrider migrate {schema}', 0))");
    other.batch_execute(&format!("begin; {lock}")).await.unwrap();
    let setup = fresh.setup(1);
    let trying = tokio::spawn(async move { init(&url, &setup).await });
    let waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted
        and database = (select oid from pg_database where datname = current_database())
        and clock_timestamp() - waitstart > interval '100 ms'";
    while !trying.is_finished() && fresh.number(waits).await == 0 {
        tokio::task::yield_now().await;
    }
    other.batch_execute("commit").await.unwrap();
    trying.await.expect("no panic").expect("it waits for the other one, and makes the tables");
}

/// Where a database lets nobody execute a new function by itself, producers insert and enqueue with what the page grants.
#[tokio::test]
async fn producers_insert_where_no_function_is_open_to_all() {
    let Some(database) = Database::new(&Setup::default()).await else { return };
    database.run("alter default privileges revoke execute on functions from public").await;
    let names = Names::new("other", "events", "seen").expect("names");
    init(&database.url, &Setup { names: names.clone(), ..Setup::default() }).await.expect("init");
    let role = format!("producer_{}", database.name);
    let text = "create role ROLE; grant usage on schema {schema} to ROLE;
        grant usage on sequence {outbox_seq} to ROLE;
        grant insert (id, source, aggregate_type, aggregate_id, key, event_type, event_version, payload, payload_bytes,
            content_type, encoding, headers, tenant, occurred_at) on {outbox} to ROLE;
        set role ROLE;
        select {enqueue}('order', '42', 'order.placed', '{}', serialize => true,
            headers => '{\"trace\": \"a \\\\ b\"}')";
    database.run(&names.render(text).replace("ROLE", &role)).await;
    database
        .run(&names.render(EVENT).replacen("insert", &format!("set role {role}; insert"), 1))
        .await;
    assert_eq!(database.number(&names.render("select count(*) from {outbox}")).await, 2);
    database.run(&format!("drop owned by {role}; drop role {role}")).await;
    database.drop().await;
}

/// A server, a database, or a user may read texts as PostgreSQL did before 9.1.
#[tokio::test]
async fn backslashes_in_texts_mean_what_they_say() {
    let Some(fresh) = Fresh::empty() else { return };
    let url = fresh.url_with("options=-c%20standard_conforming_strings%3Doff");
    init(&url, &fresh.setup(1)).await.expect("the tables are made");
    fresh.run(EVENT).await;
    let quoted = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload, headers)
        values ('order', '42', 'order.placed', '{}', '{\"a\": \"b \\\\ c\"}')";
    fresh.run(quoted).await;
}

/// An event trigger that fails under our search_path is named, and `init` is not what mends it.
#[tokio::test]
async fn an_event_trigger_that_finds_nothing_is_told() {
    let Some(database) = Database::new(&Setup::default()).await else { return };
    database
        .run(
            "create table public.changes (tag text);
            create function public.note() returns event_trigger language plpgsql as
                $$ begin insert into changes values (tg_tag); end $$;
            create event trigger noted on ddl_command_end execute function public.note()",
        )
        .await;
    let names = Names::new("other", "outbox", "inbox").expect("names");
    let setup = Setup { names, ..Setup::default() };
    let refused = init(&database.url, &setup).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config, "{refused:?}");
    let told = refused.to_string();
    assert!(told.contains("\"changes\" does not exist: an event trigger"), "{told}");
    database.run("alter function public.note() set search_path = public").await;
    init(&database.url, &setup).await.expect("the tables are made");
    assert!(database.number("select count(*) from changes").await > 0);
    database.drop().await;
}
