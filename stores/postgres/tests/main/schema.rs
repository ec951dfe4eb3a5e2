//! The tables: made once, whoever makes them; read by who knows them; and taken back without a trace.

use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::source::OutboxSource;
use postrider_core::{Code, Error, ErrorKind, RelayId};
use postrider_postgres::{
    Layout, Names, PostgresStore, Schema, Setup, init, migrations, remove, revert,
};

use crate::support::Fresh;

const EVENT: &str = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
    values ('order', '42', 'order.placed', '{\"a\": 1}')";

fn anything() -> AcquireRequest {
    AcquireRequest {
        owner: RelayId::mint(),
        lease_duration: Duration::from_secs(60),
        wanted: 4,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    }
}

async fn refused(store: &PostgresStore) -> Error {
    store.open().await.expect_err("it does not open")
}

#[tokio::test]
async fn the_tables_are_made_once_and_found() {
    let Some(fresh) = Fresh::made(4).await else { return };
    init(&fresh.url, &fresh.setup(4)).await.expect("again");
    let facts = fresh.store().open().await.expect("open");
    assert_eq!((facts.partitions, facts.schema), (4, Schema::VERSION));
    fresh.run(EVENT).await;
    assert_eq!(
        fresh.number("select count(*) from {outbox} where seq = 1 and partition < 4").await,
        1
    );
    assert_eq!(fresh.number("select count(*) from {outbox_status}").await, 0);
}

/// F30: of many migrators at once one makes the tables, and all of them succeed.
#[tokio::test]
async fn many_migrators_at_once_make_the_tables_once() {
    let Some(fresh) = Fresh::empty() else { return };
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (url, setup) = (fresh.url.clone(), fresh.setup(4));
        all.spawn(async move { init(&url, &setup).await });
    }
    while let Some(done) = all.join_next().await {
        done.expect("no panic").expect("it succeeds");
    }
    assert_eq!(fresh.number("select count(*) from {outbox_lease}").await, 4);
    let state = migrations(&fresh.url, &fresh.names).await.expect("status");
    assert_eq!((state.version(), state.states.len()), (Schema::VERSION, Schema::VERSION as usize));
}

/// F30: a migration whose connection dies at its very end has done nothing, and is done again.
#[tokio::test]
async fn an_interrupted_migration_is_run_again() {
    let Some(fresh) = Fresh::empty() else { return };
    let text = Schema::sql(&fresh.setup(4)).expect("text");
    let cut = text.replace("\ncommit;", "\nselect pg_terminate_backend(pg_backend_pid());");
    assert_ne!(cut, text, "the control");
    fresh.connect().await.batch_execute(&cut).await.expect_err("the connection dies");
    let before = migrations(&fresh.url, &fresh.names).await.expect("status");
    assert_eq!((before.version(), before.setup), (0, None));
    init(&fresh.url, &fresh.setup(4)).await.expect("init");
    fresh.store().open().await.expect("open");
}

/// What a DBA runs by hand makes the same tables as `init` does, and `init` finds nothing to do.
#[tokio::test]
async fn what_is_printed_is_what_init_does() {
    let (Some(made), Some(printed)) = (Fresh::made(4).await, Fresh::empty()) else { return };
    let setup = Setup { source: Some("/it's".to_owned()), ..printed.setup(4) };
    let text = Schema::sql(&setup).expect("text");
    printed.connect().await.batch_execute(&text).await.expect("it runs");
    init(&printed.url, &setup).await.expect("nothing to do");
    let known =
        migrations(&printed.url, &printed.names).await.expect("status").setup.expect("tables");
    assert_eq!(
        (known.partitions, known.layout, known.source.as_deref()),
        (Some(4), Some(Layout::Partitioned), Some("/it's"))
    );
    let columns = "select count(*) * 1000000 + sum(hashtext(table_name || column_name || data_type)::bigint % 1000)
        from information_schema.columns where table_schema = '{}'";
    let of = |fresh: &Fresh| columns.replace("{}", fresh.names.schema());
    assert_eq!(
        made.number(&format!("select ({})::bigint", of(&made))).await,
        printed.number(&format!("select ({})::bigint", of(&printed))).await
    );
}

/// F29: tables of a newer program are refused, and the message says both versions.
#[tokio::test]
async fn newer_tables_are_refused() {
    let Some(fresh) = Fresh::made(4).await else { return };
    fresh.run("update {outbox_meta} set value = '99' where key in ('schema', 'serves')").await;
    let errors = [
        refused(&fresh.store()).await,
        init(&fresh.url, &fresh.setup(4)).await.unwrap_err(),
        revert(&fresh.url, &fresh.names, 0).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::SchemaTooNew, "{error}");
        assert!(error.to_string().contains("version 99"), "{error}");
    }
    let state = migrations(&fresh.url, &fresh.names).await.expect("status looks at all of them");
    assert_eq!((state.version(), state.states.len()), (99, 99));
}

/// Tables of these names that are somebody else's are left alone.
#[tokio::test]
async fn tables_that_are_not_ours_are_left_alone() {
    let Some(fresh) = Fresh::empty() else { return };
    fresh.run("create schema {schema}; create table {outbox} (id integer)").await;
    let error = init(&fresh.url, &fresh.setup(4)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(refused(&fresh.store()).await.kind(), ErrorKind::SchemaMissing);
    fresh.run("insert into {outbox} values (1)").await;
}

/// What is fixed when the tables are made stays: another number of partitions or another layout is refused,
/// with both values; nothing asked takes what is there.
#[tokio::test]
async fn what_is_fixed_cannot_be_changed() {
    let Some(fresh) = Fresh::made(4).await else { return };
    let error = init(&fresh.url, &fresh.setup(8)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(
        error.to_string().contains("there=4") && error.to_string().contains("asked=8"),
        "{error}"
    );
    let plain = Setup { layout: Some(Layout::Plain), ..fresh.setup(4) };
    assert_eq!(init(&fresh.url, &plain).await.unwrap_err().kind(), ErrorKind::Conflict);
    let whatever = Setup { names: fresh.names.clone(), ..Setup::default() };
    init(&fresh.url, &whatever).await.expect("whatever is there");
    for setup in [
        Setup { partitions: Some(0), ..whatever.clone() },
        Setup { partitions: Some(1_025), ..whatever.clone() },
        Setup { table_rows: Some(4_095), ..whatever.clone() },
    ] {
        assert_eq!(init(&fresh.url, &setup).await.unwrap_err().kind(), ErrorKind::Config);
    }
}

/// The source is part of an event's identity: it can be changed while there never was one.
#[tokio::test]
async fn the_source_is_fixed_by_the_first_event() {
    let Some(fresh) = Fresh::made(4).await else { return };
    let named = |source: &str| Setup { source: Some(source.to_owned()), ..fresh.setup(4) };
    init(&fresh.url, &named("/billing")).await.expect("nobody has used the old one");
    fresh.run(EVENT).await;
    fresh.run("truncate {outbox}").await;
    init(&fresh.url, &named("/billing")).await.expect("the same");
    let error = init(&fresh.url, &named("/shop")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("/billing"), "{error}");
    assert_eq!(init(&fresh.url, &named("a\nb")).await.unwrap_err().kind(), ErrorKind::Invalid);
}

/// Migrations are reversible: nothing is left, in either layout, and they can be applied again.
#[tokio::test]
async fn what_is_reverted_leaves_nothing() {
    for layout in [Layout::Partitioned, Layout::Plain] {
        let Some(fresh) = Fresh::empty() else { return };
        let setup = Setup { layout: Some(layout), ..fresh.setup(4) };
        for _ in 0..2 {
            init(&fresh.url, &setup).await.expect("init");
            fresh.run(EVENT).await;
            revert(&fresh.url, &fresh.names, 0).await.expect("revert");
            let left = "select (select count(*) from pg_class where relnamespace = n.oid)
                + (select count(*) from pg_proc where pronamespace = n.oid)
                + (select count(*) from pg_type where typnamespace = n.oid)
                from pg_namespace n where nspname = '{}'";
            assert_eq!(fresh.number(&left.replace("{}", fresh.names.schema())).await, 0);
        }
        revert(&fresh.url, &fresh.names, 0).await.expect("nothing to take back");
    }
}

/// F29: a column that somebody renamed or dropped is named before anything is read, whatever table it was in.
#[tokio::test]
async fn a_column_that_is_gone_is_named_at_the_start() {
    let Some(fresh) = Fresh::made(4).await else { return };
    for (change, back, table, column) in [
        (
            "alter table {outbox} rename column encoding to e",
            "alter table {outbox} rename column e to encoding",
            "{outbox}",
            "encoding",
        ),
        (
            "alter table {inbox} drop column attempts",
            "alter table {inbox} add column attempts integer not null default 1",
            "{inbox}",
            "attempts",
        ),
    ] {
        fresh.store().open().await.expect("it opens before");
        fresh.run(change).await;
        let error = refused(&fresh.store()).await;
        assert_eq!(error.kind(), ErrorKind::SchemaMissing, "{error}");
        let said = format!("the table {} has no column `{column}`", fresh.sql(table));
        assert!(error.to_string().contains(&said), "{error} says not: {said}");
        fresh.run(back).await;
    }
    fresh.store().open().await.expect("it opens again");
    // What is looked for is what the migration makes, and all of it.
    let looked_for = include_str!("../../sql/meta/columns.sql");
    let made = fresh.sql(
        "select count(*), count(*) filter (where position(' ' || a.attname || ' ' in $1) = 0)
        from pg_attribute a join pg_class c on c.oid = a.attrelid
        where c.relnamespace = '{schema}'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
            and a.attnum > 0 and not a.attisdropped",
    );
    let words = looked_for.replace(['\'', '\n'], " ");
    let row = fresh.connect().await.query_one(&made, &[&words]).await.unwrap();
    let (made, unknown): (i64, i64) = (row.get(0), row.get(1));
    let listed = looked_for.matches("{text:").count();
    assert!(
        listed > 20 && made > 150 && unknown == 0,
        "{unknown} of {made} columns are not looked for"
    );
}

/// F29: what the promises rest on is looked at when the store is opened, and each has its code.
#[tokio::test]
async fn what_was_changed_under_the_store_stops_it() {
    let Some(fresh) = Fresh::made(4).await else { return };
    let cases = [
        ("update {outbox_meta} set value = '1' where key = 'hash'", Code::PartitionsMoved),
        (
            "create or replace function {outbox_partition_of}(key text) returns smallint
                language sql immutable strict parallel safe return (length(key) % 4)::smallint",
            Code::PartitionsMoved,
        ),
        ("alter sequence {outbox_seq} cache 20", Code::SequenceCached),
        (
            "insert into {outbox_cursor} (destination, partition, base, position, base_xmax, floor, ground)
                values ('a', 0, '', 0, 3, 17, 17)",
            Code::Rewound,
        ),
        (
            "insert into {outbox_cursor} (destination, partition, base, position, base_xmax, floor, ground)
                values ('a', 0, '', 0, 9000000000000, 0, 0)",
            Code::Rewound,
        ),
    ];
    for (change, code) in cases {
        fresh.store().open().await.expect("it opens before");
        fresh.run(change).await;
        let error = match code {
            // Whoever mends it has to open it; a relay is granted nothing.
            Code::Rewound => {
                let store = fresh.store();
                store.open().await.expect("operators may look at it");
                store.acquire(&anything()).await.expect_err("nothing is granted")
            }
            _ => refused(&fresh.store()).await,
        };
        assert_eq!(error.operator_code(), Some(code), "{error}");
        fresh.run("drop schema {schema} cascade").await;
        init(&fresh.url, &fresh.setup(4)).await.expect("init");
    }
}

/// A session that may not write is told so, and nothing else happens.
#[tokio::test]
async fn a_read_only_database_is_said_to_be_one() {
    let Some(fresh) = Fresh::made(4).await else { return };
    let url = fresh.url_with("options=-c%20default_transaction_read_only%3Don");
    let store = PostgresStore::with(&url, fresh.options()).expect("a store");
    let error = refused(&store).await;
    assert_eq!((error.kind(), error.operator_code()), (ErrorKind::ReadOnly, Some(Code::ReadOnly)));
}

/// Names of one's own are everywhere, and two outboxes live side by side in one schema.
#[tokio::test]
async fn names_of_ones_own() {
    let Some(fresh) = Fresh::made(4).await else { return };
    let names = Names::new(fresh.names.schema(), "events", "seen").expect("names");
    let other = Setup { names: names.clone(), ..fresh.setup(2) };
    init(&fresh.url, &other).await.expect("init");
    fresh.store().open().await.expect("the first");
    let mut options = fresh.options();
    options.names = names.clone();
    let facts =
        PostgresStore::with(&fresh.url, options).expect("a store").open().await.expect("open");
    assert_eq!(facts.partitions, 2);
    let producers =
        "select has_function_privilege('public', {text:enqueue}::regproc::oid, 'execute')";
    let client = fresh.connect().await;
    for names in [&fresh.names, &names] {
        let may: bool = client.query_one(&names.render(producers), &[]).await.unwrap().get(0);
        assert!(may, "a producer enqueues in {}", names.outbox());
    }
    revert(&fresh.url, &names, 0).await.expect("revert");
    fresh.store().open().await.expect("the first is still there");
}

/// A schema that was made for a trial goes with its tables, and not if something else stands in it.
#[tokio::test]
async fn a_schema_of_ours_alone_can_be_removed() {
    let Some(fresh) = Fresh::made(4).await else { return };
    fresh.run("create table {schema}.notes (id integer)").await;
    remove(&fresh.url, &fresh.names).await.expect_err("somebody's table stands there");
    fresh.run("insert into {schema}.notes values (1)").await;
    fresh.run("drop table {schema}.notes").await;
    init(&fresh.url, &fresh.setup(4)).await.expect("init");
    remove(&fresh.url, &fresh.names).await.expect("remove");
    fresh.run("create schema {schema}").await;
}
