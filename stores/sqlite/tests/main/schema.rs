//! The tables: made once, by whoever comes first, and a contract for any program.

use postrider_core::operate::Note;
use postrider_core::source::DefinitionChange;
use postrider_core::{ErrorKind, Operator, OutboxSource};
use postrider_sqlite::{Schema, init, init_as};
use rusqlite::Connection;

use crate::support::{Fresh, destination, id, number};

fn insert(connection: &Connection, columns: &str, values: &str) -> rusqlite::Result<usize> {
    connection.execute(&format!("insert into outbox ({columns}) values ({values})"), ())
}

/// Initialising again changes nothing.
#[test]
fn initialising_twice_is_initialising_once() {
    let fresh = Fresh::new();
    let dump = |connection: &Connection| -> Vec<(String, String)> {
        let mut statement =
            connection.prepare("select key, value from outbox_meta order by key").unwrap();
        let rows = statement.query_map((), |row| row.try_into()).unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    };
    let before = dump(&fresh.connect());
    init(fresh.path()).unwrap();
    assert_eq!(dump(&fresh.connect()), before);
    init_as(fresh.path(), "urn:shop").unwrap();
    assert_ne!(dump(&fresh.connect()), before, "a source that is named is taken");
}

/// (source, id) is an event's identity for ever, so the default cannot change under it.
#[test]
fn the_source_of_enqueued_events_does_not_change() {
    let fresh = Fresh::empty();
    init_as(fresh.path(), "urn:shop").unwrap();
    fresh.commit(&[crate::support::event(1)]);
    init_as(fresh.path(), "urn:shop").expect("the same again");
    let refused = init_as(fresh.path(), "urn:other").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert!(init_as(fresh.path(), "").is_err());
}

/// F30: several initialise one fresh file at once, and it is done once.
#[test]
fn many_initialisers_at_once_make_one_store() {
    let fresh = Fresh::empty();
    let path = fresh.path();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(|| init(&path))).collect();
        for one in all {
            one.join().unwrap().unwrap();
        }
    });
    let connection = fresh.connect();
    assert_eq!(number(&connection, "select count(*) from outbox_lease"), 1);
    let version = number(&connection, "select value + 0 from outbox_meta where key = 'schema'");
    assert_eq!(version, i64::from(Schema::VERSION));
}

/// The printed text makes the same tables.
#[tokio::test]
async fn the_printed_text_makes_the_same_store() {
    let (printed, made) = (Fresh::empty(), Fresh::new());
    printed.connect().execute_batch(&Schema::sql()).unwrap();
    let tables = |connection: &Connection| -> Vec<String> {
        let mut statement =
            connection.prepare("select sql from sqlite_schema order by type, name").unwrap();
        let rows = statement.query_map((), |row| row.get::<_, Option<String>>(0)).unwrap();
        rows.map(|row| row.unwrap().unwrap_or_default()).collect()
    };
    assert_eq!(tables(&printed.connect()), tables(&made.connect()));
    assert_eq!(printed.store().open().await.unwrap().schema, Schema::VERSION);
}

/// F29: tables of a newer program are left alone.
#[tokio::test]
async fn newer_tables_are_refused() {
    let fresh = Fresh::new();
    fresh
        .connect()
        .execute("update outbox_meta set value = '99' where key in ('schema', 'serves')", ())
        .unwrap();
    let refused = fresh.store().open().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SchemaTooNew, "{refused}");
    assert_eq!(init(fresh.path()).unwrap_err().kind(), ErrorKind::SchemaTooNew);
}

/// F29: who has a store open while the tables become newer changes no destination: later tables may have something of it of
/// which this program does not know, as of ranges, which an older one would leave under the old name.
#[tokio::test]
async fn tables_that_become_newer_keep_their_destinations() {
    let fresh = Fresh::new();
    let store = fresh.store();
    store.register(&[destination("a")]).await.unwrap();
    fresh
        .connect()
        .execute("update outbox_meta set value = '99' where key in ('schema', 'serves')", ())
        .unwrap();
    let remove = DefinitionChange { remove: vec![id("a")], ..DefinitionChange::default() };
    let refused = OutboxSource::apply(&store, &remove).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SchemaTooNew, "{refused}");
    let note = Note::new("anna@db1", "a test").expect("a note");
    let refused = store.rename(&id("a"), &id("b"), &note).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SchemaTooNew, "{refused}");
}

/// Somebody else's table of our name is neither used nor touched.
#[tokio::test]
async fn a_foreign_table_of_the_same_name_is_not_taken_over() {
    let fresh = Fresh::empty();
    fresh.connect().execute_batch("create table outbox (id integer)").unwrap();
    assert_eq!(init(fresh.path()).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(fresh.store().open().await.unwrap_err().kind(), ErrorKind::SchemaMissing);
    assert_eq!(number(&fresh.connect(), "select count(*) from sqlite_schema"), 1);
}

/// R012 and the rest of the row's rules: each is refused by the table itself, with a text that
/// names the rule.
#[test]
fn the_table_refuses_what_cannot_be_delivered() {
    let fresh = Fresh::new();
    let connection = fresh.connect();
    let names = "aggregate_type, aggregate_id, event_type";
    let cases = [
        (names, "null, '1', 't'", "NOT NULL"),
        (names, "'a', null, 't'", "NOT NULL"),
        (names, "'a', '1', null", "NOT NULL"),
        (names, "'', '1', 't'", "aggregate_type_has_1_to_255_bytes"),
        (names, "'a' || char(10), '1', 't'", "aggregate_type_has_no_control_characters"),
        (names, "'a' || char(127), '1', 't'", "aggregate_type_has_no_control_characters"),
        (names, "'a', '1', 't' || char(133)", "event_type_has_no_control_characters"),
        (names, "'a', 'b' || char(0) || 'c', 't'", "aggregate_id_has_no_control_characters"),
        (names, "'a', x'00', 't'", "BLOB"),
        (names, "'a', '1', replace(hex(zeroblob(200)), '0', 'ü')", "event_type_has_1_to_255"),
        ("seq, aggregate_type, aggregate_id, event_type", "7, 'a', '1', 't'", "outbox.seq"),
        ("seq, aggregate_type, aggregate_id, event_type", "-1, 'a', '1', 't'", "seq_is_positive"),
        ("id, aggregate_type, aggregate_id, event_type", "'x', 'a', '1', 't'", "id_is_a_lowerc"),
        ("key, aggregate_type, aggregate_id, event_type", "'', 'a', '1', 't'", "key_has_1_to_512"),
        ("event_version, aggregate_type, aggregate_id, event_type", "0, 'a', '1', 't'", "event_v"),
        ("headers, aggregate_type, aggregate_id, event_type", "'[]', 'a', '1', 't'", "headers_are"),
        (
            "headers, aggregate_type, aggregate_id, event_type",
            "'{\"a\":1}', 'a', '1', 't'",
            "outbox.headers",
        ),
        (
            "headers, aggregate_type, aggregate_id, event_type",
            "'{\"postrider-late\":\"1\"}', 'a', '1', 't'",
            "outbox.headers",
        ),
        (
            "occurred_at, aggregate_type, aggregate_id, event_type",
            "'2026-02-30T00:00:00Z', 'a', '1', 't'",
            "occurred_at_is_an_rfc_3339_time",
        ),
        (
            "occurred_at, aggregate_type, aggregate_id, event_type",
            "datetime('now'), 'a', '1', 't'",
            "occurred_at_is_an_rfc_3339_time",
        ),
        ("format, aggregate_type, aggregate_id, event_type", "0, 'a', '1', 't'", "format_starts"),
    ];
    for (columns, values, says) in cases {
        let refused =
            insert(&connection, &format!("{columns}, payload"), &format!("{values}, '{{}}'"));
        let text = refused.expect_err(values).to_string();
        assert!(text.contains(says), "{columns} = {values}: {text}");
    }
    assert_eq!(number(&connection, "select count(*) from outbox"), 0);
}

/// R012, R013: one payload, of a kind, of a size; and the control, which is taken.
#[test]
fn the_table_refuses_what_is_no_payload() {
    let fresh = Fresh::new();
    let connection = fresh.connect();
    let names = "aggregate_type, aggregate_id, event_type";
    let payloads = [
        ("payload", "'{'", "payload_is_json"),
        ("payload", "null", "payload_or_payload_bytes_or_erased"),
        ("payload, payload_bytes", "'{}', x'00'", "payload_or_payload_bytes_or_erased"),
        ("payload_bytes", "zeroblob(1048577)", "payload_has_at_most_1_mib"),
        // F20: a hundred megabytes, refused in the same words.
        ("payload_bytes", "zeroblob(100000000)", "payload_has_at_most_1_mib"),
        ("payload", "'\"' || hex(zeroblob(50000000)) || '\"'", "payload_has_at_most_1_mib"),
    ];
    for (columns, values, says) in payloads {
        let refused = insert(
            &connection,
            &format!("{names}, {columns}"),
            &format!("'a', '1', 't', {values}"),
        );
        let text = refused.expect_err(values).to_string();
        assert!(text.contains(says), "{columns} = {values}: {text}");
    }
    assert_eq!(number(&connection, "select count(*) from outbox"), 0);
    insert(&connection, &format!("{names}, payload"), "'a', '1', 't', '{}'")
        .expect("the control is taken");
    let all_else = "' ~' || char(160) || 'ü世😀' || char(1114111), '1', 't', '{}'";
    insert(&connection, &format!("{names}, payload"), all_else)
        .expect("every character that is none of control is taken");
}

/// What any program may leave out is filled in, with ids that differ and are UUIDs of version 7.
#[test]
fn four_columns_are_enough() {
    let fresh = Fresh::new();
    let connection = fresh.connect();
    for _ in 0..100 {
        insert(
            &connection,
            "aggregate_type, aggregate_id, event_type, payload",
            "'order', '42', 'order.placed', '{\"total\": 1250}'",
        )
        .unwrap();
    }
    assert_eq!(number(&connection, "select count(distinct id) from outbox"), 100);
    let of_version_7 = "select count(*) from outbox where substr(id, 15, 1) = '7'
        and substr(id, 20, 1) in ('8', '9', 'a', 'b')";
    assert_eq!(number(&connection, of_version_7), 100);
}

/// The outbox is append-only, but for erasure.
#[test]
fn a_row_can_be_erased_and_not_otherwise_changed() {
    let fresh = Fresh::new();
    fresh.commit(&[crate::support::event(1)]);
    let connection = fresh.connect();
    for change in [
        "payload = '{}'",
        "event_type = 'other'",
        "seq = 9",
        "payload = null",
        "erased_at = '2026-01-01T00:00:00Z'",
        "payload = null, erased_at = '2026-01-01T00:00:00Z', aggregate_id = 'x'",
    ] {
        let refused = connection.execute(&format!("update outbox set {change}"), ()).unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{change}: {refused}");
    }
    let erase = "update outbox set payload = null, erased_at = '2026-01-01T00:00:00Z'";
    assert_eq!(connection.execute(erase, ()).unwrap(), 1);
    assert!(connection.execute(erase, ()).is_err(), "once");
}

/// A purge that empties the table does not make numbers start again.
#[test]
fn numbers_are_never_given_twice() {
    let fresh = Fresh::new();
    fresh.commit(&[crate::support::event(1), crate::support::event(2)]);
    let connection = fresh.connect();
    connection.execute("delete from outbox", ()).unwrap();
    fresh.commit(&[crate::support::event(3)]);
    assert_eq!(number(&connection, "select seq from outbox"), 3);
}

/// R084: the inbox row has what a person needs to see; R018: an illegal status is refused.
#[test]
fn the_inbox_row_has_its_fields() {
    let fresh = Fresh::new();
    let connection = fresh.connect();
    for column in
        ["event_id", "handler", "event_type", "status", "received_at", "expires_at", "processed_at"]
    {
        connection.prepare(&format!("select {column} from inbox")).expect(column);
    }
    let put = |status: &str, expires: &str| {
        connection.execute(
            &format!(
                "insert into inbox (source, event_id, handler, event_type, status, payload_hash,
                    received_at, expires_at)
                values ('/s', 'e', 'h', 't', '{status}', zeroblob(32), 0, {expires})"
            ),
            (),
        )
    };
    assert!(put("done", "1").is_err());
    assert!(put("claimed", "null").is_err());
    assert!(put("processed", "1").is_err());
    put("claimed", "1").expect("the control is taken");
}

/// The page's examples run as they stand, with the tools they name.
#[test]
fn the_examples_of_the_reference_run() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/sqlite.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let blocks = blocks(&page);
    for (language, tool) in [("sh", "sqlite3"), ("python", "python3")] {
        if std::process::Command::new(tool).arg("--version").output().is_err() {
            println!("skipped: the_examples_of_the_reference_run: {tool} is not installed");
            continue;
        }
        let mut ran = 0;
        for (_, code) in blocks.iter().filter(|(kind, _)| kind == language) {
            let fresh = Fresh::new();
            fresh
                .connect()
                .execute_batch("create table orders (id integer primary key, total integer)")
                .unwrap();
            let runner = if language == "sh" { "sh" } else { tool };
            let flags: &[&str] = if language == "sh" { &["-e", "-c"] } else { &["-c"] };
            let output = std::process::Command::new(runner)
                .args(flags)
                .arg(code)
                .current_dir(fresh.path().parent().unwrap())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{code}\n{said}");
            let written = "select (select count(*) from outbox)
                + (select count(*) from outbox_scheduled) + (select count(*) from inbox)";
            assert!(number(&fresh.connect(), written) > 0, "wrote nothing:\n{code}\n{said}");
            ran += 1;
        }
        assert!(ran > 0, "the page has an example for {tool}");
    }
}

/// The page names every column of every table, and nothing that is not there.
#[test]
fn the_reference_names_every_column() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/sqlite.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let fresh = Fresh::new();
    let connection = fresh.connect();
    let texts = |statement: &str| -> Vec<String> {
        let mut statement = connection.prepare(statement).unwrap();
        let texts = statement.query_map((), |row| row.get(0)).unwrap();
        texts.collect::<rusqlite::Result<_>>().unwrap()
    };
    let columns = |table: &str| texts(&format!("select name from pragma_table_xinfo('{table}')"));
    let tables = "select name from sqlite_schema
        where type in ('table', 'view') and name not glob 'sqlite_*' order by name";
    let tables = texts(tables);
    assert!(tables.len() > 15, "{tables:?}");
    for table in tables {
        let own = explained(&page, &table);
        let copied = matches!(&*table, "outbox_scheduled" | "outbox_waiting");
        let known = if copied { explained(&page, "outbox") } else { Vec::new() };
        for column in columns(&table) {
            let named = own.contains(&column) || known.contains(&column);
            assert!(named, "{table}.{column} is not explained");
        }
        let extra: Vec<_> = own.iter().filter(|name| !columns(&table).contains(name)).collect();
        assert_eq!(extra, [] as [&String; 0], "{table} has no such columns");
    }
}

/// The first cells of the first table of a section.
fn explained(page: &str, table: &str) -> Vec<String> {
    let section = page
        .split_once(&format!("## `{table}`\n"))
        .unwrap_or_else(|| panic!("a section on {table}"))
        .1;
    let section = section.split_once("\n#").map_or(section, |(section, _)| section);
    section
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect()
}

/// The code blocks of a page, with their languages.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, code)), None) => {
                code.push_str(line);
                code.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}
