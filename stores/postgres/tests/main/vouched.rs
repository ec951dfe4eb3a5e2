//! Our own statements vouch for their rows, so the table's rules are not asked. What they take, the rules would take as well.

use postrider_core::{NewEvent, Payload, Timestamp};
use postrider_postgres::Outbox;

use crate::support::Fresh;

/// Inserts each row once more, without its partition: by the rules.
const AGAIN: &str =
    "insert into {outbox} (id, source, aggregate_type, aggregate_id, key, event_type,
        event_version, payload, payload_bytes, content_type, encoding, headers, tenant, occurred_at)
    select gen_random_uuid(), source, aggregate_type, aggregate_id, key, event_type, event_version,
        payload, payload_bytes, content_type, encoding, headers, tenant, occurred_at
    from {outbox} order by seq";

/// Names at the edges of what may be, on both sides.
fn names() -> Vec<String> {
    let mut names: Vec<String> =
        [0, 1, 127, 128, 255, 256, 512, 513].map(|length| "n".repeat(length)).into();
    names.extend([127, 128, 256].map(|length| "ü".repeat(length)));
    names.extend(
        "\0\t\u{1f} ~\u{7f}\u{80}\u{9f}\u{a0}\u{2028}\u{feff}🐎'\"\\/{}%"
            .chars()
            .map(|c| format!("a{c}b")),
    );
    names.extend([" ", "postrider-x", "a.b_c-1", "Upper"].map(str::to_owned));
    names
}

fn payloads() -> Vec<String> {
    let mut payloads: Vec<String> = [
        "",
        " ",
        "null",
        "{}",
        "[1,2",
        "01",
        "-0",
        "1e999",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "\"\u{7f}\"",
        "\"\u{1}\"",
        "{\"a\":1,\"a\":2}",
        "\u{feff}{}",
        "{} x",
        "\t{}\n",
        "nul",
        "'a'",
        "NaN",
    ]
    .map(str::to_owned)
    .into();
    payloads
        .extend([64, 120, 500, 501, 200_000].map(|depth| "[".repeat(depth) + &"]".repeat(depth)));
    payloads.extend([1_048_574, 1_048_575].map(|length| format!("\"{}\"", "x".repeat(length))));
    payloads
}

/// An event for each field and each odd value of it.
fn odd_events() -> Vec<NewEvent> {
    let event = || NewEvent::new("order", "42", "order.placed");
    let mut events: Vec<NewEvent> = payloads()
        .into_iter()
        .map(|text| event().payload(Payload::Json(text.into()), "application/json"))
        .collect();
    for name in names() {
        events.extend([
            NewEvent::new(&*name, "42", "t"),
            NewEvent::new("order", &*name, "t"),
            NewEvent::new("order", "42", &name),
            event().ordered_by(&name),
            event().source(&name),
            event().tenant(&name),
            event().payload(Payload::Bytes(name.clone().into()), &name),
            event().header(&*name, "value"),
            event().header("name", &name),
        ]);
    }
    for micros in [i64::MIN, -62_135_596_800_000_000, 0, 253_402_300_799_999_999, i64::MAX] {
        events.push(event().occurred_at(Timestamp::from_micros(micros)));
    }
    events.extend([0, 1, 2_147_483_647, u32::MAX].map(|version| event().version(version)));
    for many in [64, 65] {
        let named = |event: NewEvent, n| event.header(format!("h{n}"), "v");
        events.push((0..many).fold(event(), named));
    }
    events.extend([16_380, 16_384].map(|length| event().header("name", "v".repeat(length))));
    events
}

/// R012, R123: whatever the library takes keeps every rule of the table, and its partition is the key's; one by one,
/// prepared, and many at once, with the same row.
#[tokio::test]
async fn what_the_library_takes_the_rules_take_as_well() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let mut client = fresh.connect().await;
    let outbox = Outbox::named(fresh.names.clone());
    let prepared = outbox.prepare(&client).await.unwrap();
    let (mut taken, mut refused) = (0i64, 0);
    for event in odd_events() {
        let tx = client.transaction().await.unwrap();
        match outbox.enqueue(&tx, &event).await {
            Ok(_) => {
                outbox.enqueue_many(&tx, [&event]).await.unwrap();
                prepared.enqueue(&tx, &event).await.unwrap();
                let later = event.clone().deliver_after(Timestamp::now());
                if taken % 2 == 0 {
                    outbox.enqueue(&tx, &later).await.unwrap();
                } else {
                    outbox.enqueue_many(&tx, [&later]).await.unwrap();
                }
                tx.commit().await.unwrap();
                taken += 3;
            }
            Err(error) => {
                refused += 1;
                assert_eq!(tx.query_one("select 1", &[]).await.unwrap().len(), 1, "{error}");
            }
        }
    }
    assert!(taken > 200 && refused > 50, "{taken} taken, {refused} refused");
    let unlike = "select count(*) from (select from {outbox} o group by o.id
        having count(distinct to_jsonb(o) - 'seq' - 'xid' - 'created_at') > 1) as unlike";
    assert_eq!(fresh.number(unlike).await, 0);
    let again = client.execute(&fresh.sql(AGAIN), &[]).await.expect("the rules take it");
    assert_eq!(i64::try_from(again).unwrap(), taken);
    let as_the_rules = "select count(*) from {outbox} where partition = {outbox_partition_of}(
        coalesce(key, aggregate_type || '/' || aggregate_id))";
    assert_eq!(fresh.number(as_the_rules).await, taken * 2);
    let later = AGAIN.replace("from {outbox}", "from {outbox_scheduled}");
    let later = client.execute(&fresh.sql(&later), &[]).await.expect("the rules take it");
    assert_eq!(i64::try_from(later).unwrap(), taken / 3);
    let elsewhere = as_the_rules.replace("{outbox} where", "{outbox_scheduled} where not");
    let elsewhere = elsewhere.replace("partition = ", "(partition = ") + ")";
    assert_eq!(fresh.number(&elsewhere).await, 0);
}

/// Rows that are vouched for need no trigger, so they come in where triggers do not fire; others do not.
#[tokio::test]
async fn where_triggers_do_not_fire_only_what_is_vouched_for_comes_in() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let mut client = fresh.connect().await;
    client.batch_execute("set session_replication_role = replica").await.unwrap();
    let tx = client.transaction().await.unwrap();
    let event = NewEvent::new("order", "42", "order.placed");
    Outbox::named(fresh.names.clone()).enqueue(&tx, &event).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(fresh.number("select count(*) from {outbox}").await, 1);
    assert!(client.execute(&fresh.sql(AGAIN), &[]).await.is_err());
}

/// The check of the rules can fail: a row that vouches for itself and breaks a rule is refused by it.
#[tokio::test]
async fn a_row_that_breaks_a_rule_does_not_pass_the_rules_again() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let vouched =
        "insert into {outbox} (vouched, partition, aggregate_type, aggregate_id, event_type, payload)
        values (true, 0, 'order', '42', '', '{}')";
    fresh.run(vouched).await;
    assert!(fresh.connect().await.execute(&fresh.sql(AGAIN), &[]).await.is_err());
}
