//! Rows that nothing in their table forbids, and that are no events, or hardly: none stops those beside it.

use std::collections::BTreeMap;

use postrider_core::source::FetchedRow;
use postrider_core::waiting::{Attempted, NewWaiting, Passed, Placement, Reason, SettlementPart};
use postrider_core::{KeyHash, Operator};
use postrider_postgres::Mapping;

use super::relay::{Relay, event};
use super::table::{Layout, Own};
use crate::support::id;

/// The columns of a row that is an event, and what they say.
fn values(layout: Layout) -> &'static [(&'static str, &'static str)] {
    match layout {
        Layout::PublishedAt => &[
            ("id", "gen_random_uuid()"),
            ("source", "'shop'"),
            ("aggregate_type", "'order'"),
            ("aggregate_id", "'1'"),
            ("the key", "'k'"),
            ("event_type", "'t'"),
            ("event_version", "1"),
            ("payload", "'{}'"),
            ("payload_bytes", "null"),
            ("content_type", "'application/json'"),
            ("headers", "'{}'"),
            ("tenant", "'a'"),
            ("occurred_at", "now()"),
            ("created_at", "now()"),
        ],
        Layout::Status => &[
            ("event_id", "gen_random_uuid()"),
            ("aggregate_type", "'order'"),
            ("aggregate_id", "'1'"),
            ("event_type", "'t'"),
            ("payload", "'{}'"),
            ("payload_bytes", "null"),
            ("headers", "'{}'"),
            ("created_at", "now()"),
        ],
        Layout::Debezium => &[
            ("id", "gen_random_uuid()"),
            ("aggregatetype", "'order'"),
            ("aggregateid", "'1'"),
            ("type", "'t'"),
            ("payload", "'{}'"),
        ],
    }
}

/// A row of which some columns say something else.
fn insert(layout: Layout, change: &[(&str, &str)]) -> String {
    let mut all: BTreeMap<&str, &str> = values(layout).iter().copied().collect();
    all.extend(change.iter().copied());
    let names: Vec<String> = all.keys().map(|name| format!("\"{name}\"")).collect();
    let values: Vec<&str> = all.into_values().collect();
    let (names, values) = (names.join(", "), values.join(", "));
    format!("insert into {{schema}}.\"own events\" ({names}) values ({values});")
}

/// Why each row is no event, in their order; nothing of one that is.
fn told(rows: &[FetchedRow]) -> Vec<&str> {
    rows.iter().map(|row| row.event.as_ref().err().map_or("", |no| &*no.detail)).collect()
}

/// Events were acknowledged, or wait with the others.
fn settled(rows: &[FetchedRow], all_wait: bool) -> SettlementPart {
    let mut part = SettlementPart::new(id("a"));
    for row in rows {
        if row.event.is_ok() && !all_wait {
            part.passed.push((row.row, Passed::Acked));
            continue;
        }
        let detail = row.event.as_ref().err().map_or("", |no| &*no.detail).to_owned();
        let attempted = Attempted { attempts: 0, reason: Reason::Malformed, detail };
        part.passed.push((row.row, Passed::Waiting));
        part.waiting.push(NewWaiting {
            row: row.row,
            key_hash: row.key_hash,
            event: row.event.as_ref().ok().cloned(),
            placement: Placement::Dead { attempted, holds_key: true },
        });
    }
    part
}

/// What the table's columns are called where a person reads it.
fn told_missing(layout: Layout, column: &str) -> Option<String> {
    let name = match column {
        // A tombstone, as it is for the router.
        "payload" if matches!(layout, Layout::Debezium) => return None,
        "source" | "the key" | "payload_bytes" | "headers" | "tenant" => return None,
        "aggregatetype" => "aggregate_type",
        "aggregateid" => "aggregate_id",
        "type" => "event_type",
        name => name,
    };
    Some(format!("{name} is missing"))
}

/// F31, INV-7, R017: a row that says nothing in one of its columns is an event without it, or a dead letter with
/// what is missing; those beside it are marked, and the next owner reads none of them again.
#[tokio::test]
async fn a_row_with_a_null_stops_no_other() {
    let own_orders = [Layout::PublishedAt, Layout::Status, Layout::Debezium].map(|of| (of, None));
    let of_time = (Layout::PublishedAt, Some("created_at".to_owned()));
    for (layout, order) in own_orders.into_iter().chain([of_time]) {
        let Some(own) = Own::new(layout).await else { return };
        let columns: Vec<&str> = values(layout)[1..].iter().map(|(name, _)| *name).collect();
        let mut nulls: Vec<Vec<&str>> = columns.iter().map(|name| vec![*name]).collect();
        if columns.contains(&"the key") {
            nulls.push(vec!["the key", "aggregate_type"]);
            nulls.push(vec!["the key", "aggregate_id"]);
            nulls.push(vec!["the key", "aggregate_type", "aggregate_id"]);
        }
        let (mut inserts, mut expected) = (String::new(), vec![String::new(); 2]);
        for name in &columns {
            let may =
                format!("alter table {{schema}}.\"own events\" alter \"{name}\" drop not null;");
            inserts.push_str(&may);
        }
        inserts.push_str(&insert(layout, &[]));
        for names in &nulls {
            let change: Vec<(&str, &str)> = names.iter().map(|name| (*name, "null")).collect();
            inserts.push_str(&insert(layout, &change));
            expected
                .push(names.iter().find_map(|name| told_missing(layout, name)).unwrap_or_default());
        }
        inserts.push_str(&insert(layout, &[]));
        own.fresh.run(&inserts).await;
        let mut mapping = own.mapping();
        mapping.order = order.or(mapping.order);

        let relay = Relay::of(own.with(mapping.clone())).await;
        let rows = relay.read().await;
        let (mut found, dead) =
            (told(&rows), "select count(*) from {outbox_waiting} where state = 'dead'");
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{layout:?}");
        relay.settle(settled(&rows, false)).await.expect("settle");
        let bad = rows.iter().filter(|row| row.event.is_err()).count();
        assert_eq!(own.fresh.number(dead).await, bad as i64, "{layout:?}");
        assert_eq!(
            own.layout.pending(&own.fresh).await,
            bad as i64,
            "{layout:?}: the good are marked"
        );
        assert_eq!(Relay::of(own.with(mapping)).await.read().await, [], "{layout:?}");
    }
}

/// The key's text and its hash, which the engine has of the row, are of one lane.
#[tokio::test]
async fn a_dead_letter_without_an_aggregate_has_the_lane_of_its_hash() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    let may = "alter table {schema}.\"own events\" alter aggregate_type drop not null;
        alter table {schema}.\"own events\" alter aggregate_id drop not null;";
    let nulls = [&[("aggregate_type", "null")][..], &[("aggregate_id", "null")]];
    let keyed = [("the key", "'k'"), ("aggregate_id", "null")];
    let mut inserts = may.to_owned();
    for change in nulls {
        inserts.push_str(&insert(own.layout, &[change, &[("the key", "null")]].concat()));
    }
    inserts.push_str(&insert(own.layout, &keyed));
    own.fresh.run(&inserts).await;
    let relay = Relay::of(own.source()).await;
    let rows = relay.read().await;
    relay.settle(settled(&rows, false)).await.expect("settle");
    let all = own.fresh.sql("select key, key_hash from {outbox_waiting} order by seq");
    let waiting = own.fresh.connect().await.query(&all, &[]).await.expect("rows");
    let lanes: Vec<(String, i64)> = waiting.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = ["/1", "order/", "k"].map(|lane| (lane.to_owned(), KeyHash::of(lane).0 as i64));
    assert_eq!(lanes, expected);
}

/// Writes a row for each case, between two that are events, and reads them: each is an event, or says what is told.
/// Then all wait, as they are, and none is read again.
async fn play(own: &Own, mapping: Mapping, cases: &[(&str, &str, &str)]) {
    let mut inserts = insert(own.layout, &[]);
    for (column, value, _) in cases {
        inserts.push_str(&insert(own.layout, &[(column, value)]));
    }
    inserts.push_str(&insert(own.layout, &[]));
    own.fresh.run(&inserts).await;
    let relay = Relay::of(own.with(mapping.clone())).await;
    let rows = relay.read().await;
    assert_eq!(rows.len(), cases.len() + 2, "{:?}", own.layout);
    let told = told(&rows);
    assert_eq!((told[0], told[told.len() - 1]), ("", ""));
    for (found, (column, value, expected)) in told[1..].iter().zip(cases) {
        assert_eq!(found.is_empty(), expected.is_empty(), "{column} {value}: {found}");
        assert!(found.contains(expected), "{column} {value}: {found}");
    }
    relay.settle(settled(&rows, true)).await.expect("settle");
    let waiting = own.fresh.number("select count(*) from {outbox_waiting}").await;
    assert_eq!(waiting, rows.len() as i64, "{:?}", own.layout);
    assert_eq!(Relay::of(own.with(mapping)).await.read().await, []);
}

/// F31: a version may be of any integer type, and one that no event can have is its row's alone.
#[tokio::test]
async fn a_version_that_does_not_fit_stops_no_other() {
    let out = "event_version is out of range";
    for (of, cases) in [
        (
            "bigint",
            &[
                ("event_version", "2147483647", ""),
                ("event_version", "2147483648", out),
                ("event_version", "9223372036854775807", out),
                ("event_version", "-9223372036854775808", out),
                ("event_version", "0", "event_version starts at 1"),
            ][..],
        ),
        ("smallint", &[("event_version", "32767", ""), ("event_version", "-32768", out)]),
    ] {
        let Some(own) = Own::new(Layout::PublishedAt).await else { return };
        let alter = format!("alter table {{schema}}.\"own events\" alter event_version type {of}");
        own.fresh.run(&alter).await;
        play(&own, own.mapping(), cases).await;
    }
}

/// F31: times at the ends of what the server knows are kept whole; one that nobody can say is no event's.
#[tokio::test]
async fn a_time_at_the_end_of_time_stops_no_other() {
    let cases = [
        ("created_at", "'infinity'", "created_at is out of range"),
        ("created_at", "'-infinity'", "created_at is out of range"),
        ("created_at", "'294276-12-31 23:59:59.999999Z'", "created_at is out of range"),
        ("created_at", "'294246-12-31 23:59:59.999999Z'", ""),
        ("created_at", "'4714-11-24 00:00:00Z BC'", ""),
        ("created_at", "'0001-02-03 04:05:06Z BC'", ""),
        ("created_at", "'0001-02-03 04:05:06Z'", ""),
        ("occurred_at", "'infinity'", "occurred_at is out of range"),
        ("occurred_at", "'4714-11-24 00:00:00Z BC'", ""),
    ];
    for (layout, cases) in [(Layout::PublishedAt, &cases[..]), (Layout::Status, &cases[..7])] {
        let Some(own) = Own::new(layout).await else { return };
        play(&own, own.mapping(), cases).await;
        let same = "select count(*) from {outbox_waiting} w
            join {schema}.\"own events\" o on o.created_at::timestamp = w.created_at at time zone 'UTC'";
        let copies = own.fresh.number(same).await;
        assert!(copies >= cases.len() as i64 + 2, "{layout:?}: {copies}");
    }
}

/// F31: an identity of text may look nearly like a UUID, and is derived from then.
#[tokio::test]
async fn an_identity_that_is_nearly_a_uuid_stops_no_other() {
    let cases = [
        ("id", "''", ""),
        ("id", "'x'", ""),
        ("id", "'{0196f0b8-0000-7000-8000-000000000001}'", ""),
        ("id", "'0196F0B8-0000-7000-8000-000000000002'", ""),
        ("id", "'0196f0b8000070008000000000000003'", ""),
        ("id", "E'0196f0b8-0000-7000-8000-000000000004\\n'", ""),
        ("id", "'0196f0b8-0000-7000-8000-00000000000g'", ""),
        ("id", "repeat('é', 1000)", ""),
    ];
    for layout in [Layout::PublishedAt, Layout::Debezium] {
        let Some(own) = Own::new(layout).await else { return };
        own.fresh.run("alter table {schema}.\"own events\" alter id type text").await;
        play(&own, own.mapping(), &cases).await;
    }
}

/// F31: what a payload, headers, or a name of an accepted type may say, and no event may.
#[tokio::test]
async fn a_text_that_is_no_events_stops_no_other() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    let types = "create type {schema}.kind as enum ('', 'order', E'a\\tb', 'long enough');
        alter table {schema}.\"own events\" alter aggregate_type type {schema}.kind
            using aggregate_type::{schema}.kind,
            alter aggregate_id type char(300), alter event_type type varchar";
    own.fresh.run(types).await;
    let cases = [
        ("payload", "'{'", "payload is no JSON"),
        ("payload", "''", "payload is no JSON"),
        ("headers", "'[1]'", "headers is not a JSON object with string values"),
        ("headers", "'null'", "headers is not a JSON object with string values"),
        ("headers", "'{\"a\": 1e400}'", "headers is not a JSON object with string values"),
        ("headers", "'{\"A\": \"b\"}'", "header name"),
        ("aggregate_type", "''", "aggregate_type is empty"),
        ("aggregate_type", "E'a\\tb'", "control character"),
        ("aggregate_id", "' '", "aggregate_id is empty"),
        ("aggregate_id", "repeat('1', 300)", "aggregate_id has 300 bytes"),
        ("event_type", "''", "event_type is empty"),
        ("event_type", "repeat('t', 100000)", "event_type has 100000 bytes"),
        ("the key", "''", "key is empty"),
        ("the key", "repeat('k', 3000000)", "key has 3000000 bytes"),
    ];
    play(&own, own.mapping(), &cases).await;
    let Some(own) = Own::new(Layout::Debezium).await else { return };
    let cases = [
        ("payload", "'null'", ""),
        ("payload", "'1e100000'", ""),
        ("payload", "'\"\\u00e9\\ud83d\\ude00\"'", ""),
    ];
    play(&own, own.mapping(), &cases).await;
    let Some(own) = Own::new(Layout::Status).await else { return };
    play(&own, own.mapping(), &[("payload", "'\"\\u0000\"'", "")]).await;
}

/// INV-8: the overview of the store beside a table counts what is pending in it, also what no relay has read, and neither
/// what waits nor what is passed and could not be marked yet.
#[tokio::test]
async fn what_is_pending_is_counted_by_the_store_beside() {
    for layout in [Layout::PublishedAt, Layout::Status, Layout::Debezium] {
        let Some(own) = Own::new(layout).await else { return };
        let relay = Relay::of(own.source()).await;
        let pending = async || {
            let seen = relay.table.store().overview().await.expect("the overview");
            let of = |name| {
                let view = seen.destinations.iter().find(|view| view.id == id(name));
                view.map(|view| (view.pending, view.pending_since.is_some())).expect("it is there")
            };
            assert_eq!(of("unrouted"), (0, false), "it stops with the others");
            of("a")
        };
        assert_eq!(pending().await, (0, false), "{layout:?}");
        own.commit(&[event("1", 1), event("2", 1), event("3", 1)]).await.expect("commit");
        let says_when = layout != Layout::Debezium;
        assert_eq!(pending().await, (3, says_when), "{layout:?}: nobody has read it");
        let rows = relay.read().await;
        let mut part = settled(&rows[..1], true);
        part.passed.push((rows[1].row, Passed::Acked));
        relay.settle(part).await.expect("one waits, one is done");
        assert_eq!(pending().await, (1, says_when), "{layout:?}");
    }
}
