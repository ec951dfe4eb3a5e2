//! From version 1 of the tables to this one, with everything that stood in them.

use postrider_core::{ErrorKind, OutboxSource};
use postrider_sqlite::{Schema, init};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::support::{Fresh, acquire, destination, event, id, number};

const VERSION_1: &str = include_str!("../../sql/schema/001.sql");
const VERSION_2: &str = include_str!("../../sql/schema/002.sql");

/// What version 1 of a table held, in an order of its own.
const HELD: &[&str] = &[
    "select destination, partition, seq, key, key_hash, state, holds_key, late, next_at, attempts,
        reason, detail, moved_at, id, source, aggregate_type, aggregate_id, event_key, event_type,
        event_version, payload, payload_bytes, content_type, encoding, headers, tenant, format,
        occurred_at, created_at, erased_at
    from outbox_waiting order by rowid",
    "select source, event_id, handler, event_type, status, payload_hash, token, received_at, expires_at, processed_at, result,
        attempts from inbox order by event_id",
    "select * from inbox_step order by event_id",
    "select destination, partition, position, origin, saved_at from outbox_cursor order by 1",
    "select * from outbox_destination order by id",
    "select * from outbox_settled order by bucket",
    "select partition, owner, token, expires_at, takeovers, cursors from outbox_lease",
    "select * from outbox order by seq",
    "select * from outbox_scheduled order by seq",
    "select name, seq from sqlite_sequence where name in ('outbox', 'outbox_scheduled') order by 1",
    "select key, value from outbox_meta
        where key not in ('schema', 'schema_002_at', 'schema_003_at', 'schema_004_at', 'schema_005_at', 'schema_006_at',
        'schema_007_at', 'serves', 'history_start')
        order by key",
];

/// A file with the tables of version 1, and events in every state that it knew.
fn version_1() -> Fresh {
    let fresh = Fresh::empty();
    fresh.connect().execute_batch(VERSION_1).expect("version 1");
    fresh.commit(&(0..8).map(event).collect::<Vec<_>>());
    let connection = fresh.connect();
    connection
        .execute(
            "insert into outbox_destination (id, kind, definition, version) values ('a', 'local', ?1, 3)",
            [destination("a").to_definition().expect("a definition")],
        )
        .expect("a destination");
    connection
        .execute_batch(
            "insert into outbox_cursor values ('a', 0, 7, 0, 5);
            update outbox_lease set owner = 'old', token = 41, expires_at = 9;
            insert into outbox_settled values ('a', 0, 0, 7, -5, 1, 0, 0, 6, 0, 'old', 5);
            insert into outbox_scheduled (aggregate_type, aggregate_id, event_type, payload, due_at)
            values ('order', '1', 't', '{}', '2999-01-01T00:00:00Z');
            insert into inbox (source, event_id, handler, event_type, status, payload_hash, token,
                received_at, expires_at, processed_at, result)
            values ('/s', 'one', 'h', 't', 'processed', zeroblob(32), 2, 1, null, 3, x'00ff'),
                ('/s', 'two', 'h', 't', 'claimed', zeroblob(32), 1, 1, 7, null, null);
            insert into inbox_step values ('/s', 'two', 'h', 'charge', x'01', 4);",
        )
        .expect("rows");
    // Not in the order of their numbers, as they would be after failures and takeovers.
    for (seq, state, holds_key, late) in [
        (3, "parked", 1, 0),
        (1, "dead", 1, 0),
        (2, "retrying", 0, 1),
        (6, "discarded", 1, 0),
        (4, "held", 1, 0),
        (5, "dead", 0, 0),
    ] {
        connection
            .execute(
                "insert into outbox_waiting
                select 'a', 0, seq, 'order/42', -7, ?2, ?3, ?4, 100 + seq, seq, 'failed', 'says no',
                    50, id, source, aggregate_type, aggregate_id, key, event_type, event_version,
                    payload, payload_bytes, content_type, encoding, headers, tenant, format,
                    occurred_at, created_at, erased_at
                from outbox where seq = ?1",
                (seq, state, holds_key, late),
            )
            .expect("a waiting row");
    }
    fresh
}

fn dump(connection: &Connection) -> Vec<Vec<Vec<Value>>> {
    let read = |statement: &&str| {
        let mut statement = connection.prepare(statement).expect(statement);
        let columns = statement.column_count();
        let rows = statement
            .query_map((), |row| (0..columns).map(|column| row.get(column)).collect())
            .expect("rows");
        rows.collect::<rusqlite::Result<Vec<Vec<Value>>>>().expect("rows")
    };
    HELD.iter().map(read).collect()
}

fn tables(connection: &Connection) -> Vec<(String, Option<String>)> {
    let mut statement = connection
        .prepare("select name, sql from sqlite_schema order by type, name")
        .expect("names");
    let rows = statement.query_map((), |row| row.try_into()).expect("rows");
    rows.collect::<rusqlite::Result<_>>().expect("rows")
}

/// F30: everything that version 1 held is there afterwards, as it was and in its order, and the
/// tables are those of a fresh file.
#[tokio::test]
async fn a_migration_keeps_everything() {
    let fresh = version_1();
    let before = dump(&fresh.connect());
    assert!(before.iter().all(|table| !table.is_empty()), "every table has rows");
    init(fresh.path()).unwrap();
    let connection = fresh.connect();
    assert_eq!(dump(&connection), before);
    let version = number(&connection, "select value + 0 from outbox_meta where key = 'schema'");
    assert_eq!(version, i64::from(Schema::VERSION));
    assert_eq!(number(&connection, "select count(*) from pragma_integrity_check"), 1);
    // How a try of version 1 ended nobody knows, so none counts as cut off.
    assert_eq!(number(&connection, "select sum(failed) from inbox where status = 'claimed'"), 1);
    let made = tables(&Fresh::new().connect());
    let migrated: Vec<(String, Option<String>)> = tables(&connection)
        .into_iter()
        .map(|(name, sql)| {
            (name, sql.map(|sql| sql.replace("\"outbox_waiting\"", "outbox_waiting")))
        })
        .collect();
    assert_eq!(migrated, made);
    let statuses = "select group_concat(status) from
        (select status from outbox_status where destination = 'a' order by seq)";
    let statuses: String = connection.query_row(statuses, (), |row| row.get(0)).unwrap();
    assert_eq!(statuses, "dead,waiting,parked,waiting,dead,discarded,published,pending");
}

/// A relay goes on where version 1 stood: the token grows, the cursor stands, what waited waits.
#[tokio::test]
async fn a_relay_goes_on_after_a_migration() {
    let fresh = version_1();
    init(fresh.path()).unwrap();
    let store = fresh.store();
    assert_eq!(store.open().await.unwrap().schema, Schema::VERSION);
    let lease = acquire(&store, crate::support::LONG).await.expect("it has expired").lease;
    assert_eq!(lease.token, 42);
    let loaded = store.load(&lease, &id("a")).await.unwrap();
    assert_eq!((loaded.cursor.position(), loaded.replay_through), (7, 0));
    let counts = store.counts(&id("a")).await.unwrap();
    assert_eq!((counts.retrying, counts.parked, counts.held, counts.dead), (1, 1, 1, 2));
    assert_eq!(store.destinations().await.unwrap().disabled, []);
}

/// F30: two that migrate at once do it once.
#[test]
fn two_migrators_at_once_migrate_once() {
    let fresh = version_1();
    let before = dump(&fresh.connect());
    let path = fresh.path();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| init(&path))).collect();
        for one in all {
            one.join().unwrap().unwrap();
        }
    });
    assert_eq!(dump(&fresh.connect()), before);
}

/// F30: a migration that is cut short has not begun, and is done when it is tried again.
#[tokio::test]
async fn an_interrupted_migration_is_done_again() {
    let fresh = version_1();
    let before = dump(&fresh.connect());
    let connection = fresh.connect();
    connection.execute_batch("begin immediate").unwrap();
    connection.execute_batch(VERSION_2).unwrap();
    drop(connection);
    let refused = fresh.store().open().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SchemaMissing, "{refused}");
    assert!(refused.to_string().contains("postrider init"), "{refused}");
    init(fresh.path()).unwrap();
    assert_eq!(dump(&fresh.connect()), before);
    assert_eq!(fresh.store().open().await.unwrap().schema, Schema::VERSION);
}

/// F23, F30: a migration that finds no room leaves version 1 as it was.
#[test]
fn a_migration_without_room_changes_nothing() {
    let fresh = version_1();
    let before = dump(&fresh.connect());
    let connection = fresh.connect();
    connection.execute_batch("begin immediate").unwrap();
    let pages = number(&connection, "pragma page_count");
    connection.pragma_update(None, "max_page_count", pages + 2).unwrap();
    connection.execute_batch(VERSION_2).expect_err("the disk is full");
    drop(connection);
    assert_eq!(dump(&fresh.connect()), before);
    init(fresh.path()).unwrap();
    assert_eq!(dump(&fresh.connect()), before);
}

/// F30, F34: a row that was forgotten before tokens were kept has a token that none of its claims had.
#[test]
fn what_version_2_forgot_has_a_token_that_no_claim_had() {
    let fresh = version_1();
    let connection = fresh.connect();
    connection.execute_batch(VERSION_2).unwrap();
    connection
        .execute_batch(
            "insert into inbox_tombstone (source, event_id, handler, event_type, was, attempts,
                received_at, forgotten_at, who, why)
            values ('/s', 'three', 'h', 't', 'claimed', 4, 0, 1, 'w', 'y')",
        )
        .unwrap();
    init(fresh.path()).unwrap();
    assert_eq!(number(&connection, "select token from inbox_tombstone"), 5);
}
