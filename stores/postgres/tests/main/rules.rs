//! What a row must be: every rule refuses, by its name, and takes what lies just inside.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::support::Fresh;

/// Inserts a row with the columns given, the others plain; the rule that refused it.
async fn insert(fresh: &Fresh, client: &Client, table: &str, values: &[(&str, &str)]) -> String {
    let mut columns = vec![
        ("aggregate_type", "'order'"),
        ("aggregate_id", "'42'"),
        ("event_type", "'order.placed'"),
        ("payload", "'{}'"),
    ];
    if table == "{outbox_scheduled}" {
        columns.push(("due_at", "now()"));
    }
    for (name, value) in values {
        columns.retain(|(column, _)| column != name);
        columns.push((name, value));
    }
    let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let statement =
        format!("insert into {table} ({}) values ({})", names.join(", "), values.join(", "));
    match client.batch_execute(&fresh.sql(&statement)).await {
        Ok(()) => String::new(),
        Err(error) => {
            let error = error.as_db_error().expect("the server's");
            let refused = [SqlState::CHECK_VIOLATION, SqlState::NOT_NULL_VIOLATION];
            match error.constraint().or_else(|| error.column()) {
                Some(rule) if refused.contains(error.code()) => rule.to_owned(),
                _ => error.code().code().to_owned(),
            }
        }
    }
}

fn refused() -> Vec<(&'static [(&'static str, &'static str)], &'static str)> {
    vec![
        (&[("aggregate_type", "''")], "aggregate_type_has_1_to_255_bytes"),
        (&[("aggregate_type", "null")], "aggregate_type"),
        (&[("aggregate_id", "repeat('ü', 128)")], "aggregate_id_has_1_to_255_bytes"),
        (&[("event_type", "repeat('t', 256)")], "event_type_has_1_to_255_bytes"),
        (&[("content_type", "''")], "content_type_has_1_to_255_bytes"),
        (&[("source", "''")], "source_has_1_to_255_bytes"),
        (&[("encoding", "''")], "encoding_has_1_to_255_bytes"),
        (&[("tenant", "repeat('t', 256)")], "tenant_has_1_to_255_bytes"),
        (&[("key", "repeat('k', 513)")], "key_has_1_to_512_bytes"),
        (&[("key", "''")], "key_has_1_to_512_bytes"),
        (&[("aggregate_type", r"E'a\nb'")], "names_have_no_control_characters"),
        (&[("aggregate_id", r"E'a\x7fb'")], "names_have_no_control_characters"),
        (&[("event_type", r"E'a\u0085b'")], "names_have_no_control_characters"),
        (&[("content_type", r"E'a\tb'")], "names_have_no_control_characters"),
        (&[("key", r"E'a\rb'")], "names_have_no_control_characters"),
        (&[("source", r"E'a\x01b'")], "names_have_no_control_characters"),
        (&[("encoding", r"E'a\x1fb'")], "names_have_no_control_characters"),
        (&[("tenant", r"E'a\u009fb'")], "names_have_no_control_characters"),
        // PostgreSQL has no NUL in a text.
        (&[("aggregate_id", r"E'a\x00b'")], "22021"),
        (&[("event_version", "0")], "event_version_starts_at_1"),
        (&[("format", "0")], "format_starts_at_1"),
        (&[("occurred_at", "'infinity'")], "times_are_finite"),
        (&[("created_at", "'-infinity'")], "times_are_finite"),
        (&[("payload", "null")], "payload_or_payload_bytes_or_erased"),
        (&[("payload_bytes", r"'\x00'")], "payload_or_payload_bytes_or_erased"),
        (&[("erased_at", "now()")], "payload_or_payload_bytes_or_erased"),
        (&[("payload", "'{'")], "22P02"),
        (&[("payload", "''")], "22P02"),
        (&[("payload", "'\"' || repeat('x', 1048575) || '\"'")], "payload_has_at_most_1_mib"),
        (
            &[("payload", "null"), ("payload_bytes", "decode(repeat('00', 1048577), 'hex')")],
            "payload_has_at_most_1_mib",
        ),
        (&[("headers", "'[]'")], "headers_are_plain"),
        (&[("headers", "'\"text\"'")], "headers_are_plain"),
        (&[("headers", "'{\"a\": 1}'")], "headers_are_plain"),
        (&[("headers", "'{\"a\": \"x\", \"b\": null}'")], "headers_are_plain"),
        (&[("headers", "'{\"A\": \"x\"}'")], "headers_are_plain"),
        (&[("headers", "'{\"\": \"x\"}'")], "headers_are_plain"),
        (&[("headers", "'{\"a b\": \"x\"}'")], "headers_are_plain"),
        (&[("headers", "'{\"postrider-late\": \"x\"}'")], "headers_are_plain"),
        (&[("headers", r#"'{"a": "x\ny"}'"#)], "headers_are_plain"),
        (&[("headers", r#"'{"a": "x\u007fy"}'"#)], "headers_are_plain"),
        (&[("headers", r#"'{"a": "x\u0085y"}'"#)], "headers_are_plain"),
        (&[("headers", "jsonb_build_object(repeat('a', 129), '')")], "headers_are_plain"),
        (&[("headers", "jsonb_build_object('a', repeat('x', 16384))")], "headers_are_plain"),
        (
            &[("headers", "(select jsonb_object_agg('h' || n, '') from generate_series(1, 65) n)")],
            "headers_are_plain",
        ),
        (&[("headers", "null")], "headers"),
    ]
}

fn taken() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        &[],
        &[("aggregate_id", "repeat('ü', 127)"), ("key", "repeat('k', 512)")],
        &[("aggregate_type", "repeat('t', 255)"), ("source", "'s'"), ("encoding", "'e'")],
        &[("event_version", "2147483647"), ("format", "2"), ("tenant", "'acme'")],
        &[("occurred_at", "'0001-01-01'")],
        &[("payload", "null"), ("payload_bytes", "''")],
        &[("payload", "null"), ("erased_at", "now()")],
        &[("payload", r#"'{"a": "\u0000"}'"#)],
        &[("payload", "'\"' || repeat('x', 1048574) || '\"'")],
        &[("payload", "null"), ("payload_bytes", "decode(repeat('00', 1048576), 'hex')")],
        &[(
            "headers",
            r#"'{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'"#,
        )],
        &[(
            "headers",
            r#"'{"a": "say \"x\" \\ y", "b": "postrider-late", "c": "ü", "d": "x, y"}'"#,
        )],
        &[("headers", r#"'{"a": "{\"postrider-late\": 1}"}'"#)],
        &[("headers", "jsonb_build_object(repeat('a', 128), repeat('\"', 16256))")],
        &[("headers", "(select jsonb_object_agg('h' || n, 'v') from generate_series(1, 64) n)")],
    ]
}

/// A key as long as may be. Rows whose names are short together are looked at all at once, and those of which
/// one is long rule by rule: with it a row goes the second way.
const LONG: (&str, &str) = ("key", "repeat('k', 512)");

fn with_long<'v>(values: &[(&'v str, &'v str)]) -> Vec<(&'v str, &'v str)> {
    let mut values = values.to_vec();
    if values.iter().all(|(column, _)| *column != LONG.0) {
        values.push(LONG);
    }
    values
}

/// R012, R123: each rule refuses what breaks it, in the writer's own transaction, and is named; in the
/// outbox and among what is scheduled, beside short names and beside a long one.
#[tokio::test]
async fn each_rule_refuses_and_is_named() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let client = fresh.connect().await;
    for table in ["{outbox}", "{outbox_scheduled}"] {
        for (values, rule) in refused() {
            assert_eq!(insert(&fresh, &client, table, values).await, rule, "{values:?}");
            let long = with_long(values);
            assert_eq!(insert(&fresh, &client, table, &long).await, rule, "{long:?}");
        }
    }
    let endless: &[_] = &[("due_at", "'infinity'")];
    let refused = insert(&fresh, &client, "{outbox_scheduled}", endless).await;
    assert_eq!(refused, "due_at_is_finite");
    assert_eq!(fresh.number("select count(*) from {outbox}").await, 0);
    assert_eq!(fresh.number("select count(*) from {outbox_scheduled}").await, 0);
}

/// The rules refuse nothing else: what lies just inside of each is taken.
#[tokio::test]
async fn what_lies_just_inside_is_taken() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let client = fresh.connect().await;
    for table in ["{outbox}", "{outbox_scheduled}"] {
        for values in taken() {
            assert_eq!(insert(&fresh, &client, table, values).await, "", "{values:?}");
            let long = with_long(values);
            assert_eq!(insert(&fresh, &client, table, &long).await, "", "{long:?}");
        }
    }
    let all = 2 * i64::try_from(taken().len()).unwrap();
    assert_eq!(fresh.number("select count(*) from {outbox}").await, all);
}

/// The partition is the key's, whatever the writer says, and wherever the row is.
#[tokio::test]
async fn the_partition_is_the_databases() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let client = fresh.connect().await;
    for table in ["{outbox}", "{outbox_scheduled}"] {
        for n in 0..50 {
            let (id, key) = (format!("'{n}'"), format!("'order/{n}'"));
            let plain = [("aggregate_id", id.as_str()), ("partition", "3")];
            let keyed = [("key", key.as_str()), ("aggregate_id", "'other'")];
            assert_eq!(insert(&fresh, &client, table, &plain).await, "");
            assert_eq!(insert(&fresh, &client, table, &keyed).await, "");
        }
        let count = format!(
            "select count(*) from {table} where partition = (hashtextextended(coalesce(key, \
             aggregate_type || '/' || aggregate_id), 0) & 9223372036854775807) % 4"
        );
        assert_eq!(fresh.number(&count).await, 100);
    }
    assert_eq!(fresh.number("select count(distinct partition) from {outbox}").await, 4);
}

/// INV-1: no row is where no relay looks, also of those that are vouched for; and nobody vouches by accident.
#[tokio::test]
async fn a_row_that_is_vouched_for_names_a_partition_that_is_there() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let client = fresh.connect().await;
    for table in ["{outbox}", "{outbox_scheduled}"] {
        let none = "partition_is_one_of_the_outbox";
        for (partition, refused) in [("0", ""), ("3", ""), ("4", none), ("-1", none)] {
            let row = [("vouched", "true"), ("partition", partition), ("aggregate_type", "''")];
            assert_eq!(insert(&fresh, &client, table, &row).await, refused, "{partition}");
        }
        let nowhere = [("vouched", "true")];
        assert_eq!(insert(&fresh, &client, table, &nowhere).await, "partition");
        for vouched in ["null", "false"] {
            let row = [("vouched", vouched), ("partition", "1"), ("aggregate_type", "''")];
            let rule = insert(&fresh, &client, table, &row).await;
            assert_eq!(rule, "aggregate_type_has_1_to_255_bytes", "{vouched}");
        }
    }
}
