//! What the readings of an operator cost: by index, however many events there are, with plans made for the
//! values and with plans made for any.

use tokio_postgres::Client;

use super::{Play, everything};
use crate::support::Fresh;

/// Tables that are large here. The others have a row per destination, partition, or relay, or are empty.
const LARGE: &[&str] = &[
    "outbox_p0",
    "outbox_waiting",
    "outbox_settled",
    "outbox_request",
    "outbox_request_row",
    "outbox_scheduled",
];

macro_rules! statements {
    ($($file:literal ($types:literal) $values:literal),+ $(,)?) => {
        [$(($file, include_str!(concat!("../../../sql/operator/", $file, ".sql")), $types, $values)),+]
    };
}

/// A hundred thousand events, and as many of them wait, in every state.
async fn crowded() -> Option<(Play, Client)> {
    let play = Play::made(32, &[everything("a"), everything("b")]).await?;
    play.fresh
        .run(
            "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
            select 'order', (n % 5000)::text, 'order.placed', '1' from generate_series(1, 100000) as n;
            insert into {outbox_scheduled} (aggregate_type, aggregate_id, event_type, payload, due_at)
            select 'order', (n % 5000)::text, 'order.late', '1', now() + n * interval '1 minute'
            from generate_series(1, 50000) as n;
            insert into {outbox_waiting} (destination, partition, seq, key, key_hash, state, holds_key,
                next_at, reason, detail, endpoint, moved_at, id, payload)
            select 'a', partition, seq, key, hashtextextended(key, 0), state, true, now(), 'failed', '503',
                case when state = 'disabled' then 'gone' end, now(), id, repeat(md5(key), 20)
            from (select partition, seq, aggregate_type || '/' || aggregate_id as key, id,
                case seq % 5 when 0 then 'retrying' when 1 then 'parked' when 2 then 'disabled'
                    when 3 then 'dead' else case seq % 10 when 4 then 'held' else 'discarded' end end as state
                from {outbox}) o;
            insert into {outbox_settled}
            select d, p, b, 4, 0, 4, 0, 0, 0, 0, 0, 'relay', now()
            from unnest(array['a', 'b']) d, generate_series(0, 31) p, generate_series(0, 1000) b;
            insert into {outbox_request} (verb, destination, who, total, finished_at)
            select 'requeue', 'a', 'anna', 10, case when n < 9999 then now() end
            from generate_series(1, 10000) as n;
            insert into {outbox_request_row}
            select 9999, partition, 'a', seq, null from {outbox};
            analyze {outbox}; analyze {outbox_waiting}; analyze {outbox_scheduled};
            analyze {outbox_settled}; analyze {outbox_request}; analyze {outbox_request_row}",
        )
        .await;
    let client = play.fresh.connect().await;
    // What an index alone can answer is seen where a table was vacuumed.
    client.batch_execute(&play.fresh.sql("vacuum {outbox_waiting}")).await.expect("vacuum");
    Some((play, client))
}

async fn plan(
    fresh: &Fresh,
    client: &Client,
    statement: &str,
    types: &str,
    values: &str,
    mode: &str,
) -> String {
    let types = if types.is_empty() { String::new() } else { format!("({types})") };
    let values = if values.is_empty() { String::new() } else { format!("({values})") };
    let statement = fresh.sql(statement);
    let begin = include_str!("../../../sql/session/begin_reading.sql");
    client
        .batch_execute(&format!(
            "{begin}; set local plan_cache_mode = {mode}; prepare asked{types} as {statement}"
        ))
        .await
        .expect("a statement");
    let rows = client.query(&format!("explain execute asked{values}"), &[]).await;
    let lines: Vec<String> = rows.expect("a plan").iter().map(|row| row.get(0)).collect();
    client.batch_execute("commit; deallocate asked").await.expect("gone");
    lines.join("\n")
}

/// The large table that a plan reads from end to end, if it does.
fn scanned(plan: &str) -> Option<&str> {
    plan.lines().find_map(|line| {
        let (_, rest) = line.split_once("Seq Scan on ")?;
        rest.split(' ').next().filter(|table| LARGE.contains(table))
    })
}

/// F38: with ten million events or waiting rows a reading is as cheap as with ten: nothing reads a table
/// that grows from end to end.
#[tokio::test]
async fn readings_go_by_index() {
    let Some((play, client)) = crowded().await else { return };
    let all = "array[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31]";
    for (name, statement, types, values) in statements![
        "backlog" ("text, bigint, bigint") "'b', 1000, 8000",
        "created_at" ("integer, bigint") "32, 50000",
        "dead_since" ("bigint") "10000",
        "deliveries" ("bigint[], bigint[], smallint[], bigint[], bigint[]")
            "array[1,2,70000], array[1,2,3], array[0,1,5], array[9999], array[7,8,9]",
        "endpoints" ("bigint") "100",
        "event" ("smallint, bigint") "3, 70000",
        "event_scheduled" ("uuid") "'017f22e2-79b0-7cc3-98c4-dc0c0c07398f'",
        "events_stretch"
            ("smallint[], bigint, bigint, text, text, timestamptz, timestamptz")
            "ALL, 80000, 81000, null, null, null, null",
        "events_top" ("smallint[], bigint") "ALL, 90000",
        "find_near" ("smallint[], bigint, bigint, uuid")
            "ALL, 40000, 42000, '017f22e2-79b0-7cc3-98c4-dc0c0c07398f'",
        "kept" ("integer") "32",
        "pending" ("bigint") "300",
        "reasons" ("bigint, bigint") "10000, 10",
        "requests_open_count" ("") "",
        "requeues_open" ("bigint") "100",
        "retry_next" ("") "",
        "scheduled_page" ("smallint[], timestamptz, bigint, bigint") "ALL, 'epoch', 0, 51",
        "waiting_behind" ("text, smallint, bigint, text, bigint, bigint")
            "'a', 3, 42, 'order/3', 99999, 10",
        "waiting_counts" ("") "",
        "waiting_created_at" ("text[], bigint[]") "array['a'], array[70000]",
        "waiting_page" ("text, text[], bigint, bigint") "'a', array['dead', 'held'], 5, 51",
    ] {
        let values = values.replace("ALL", all);
        for mode in ["force_custom_plan", "force_generic_plan"] {
            let plan = plan(&play.fresh, &client, statement, types, &values, mode).await;
            assert_eq!(scanned(&plan), None, "{name} {mode}:\n{plan}");
        }
    }
    // What is counted up to a limit may be read in any order.
    let totals = include_str!("../../../sql/operator/scheduled_totals.sql");
    let totals =
        plan(&play.fresh, &client, totals, "integer, bigint", "32, 10", "force_custom_plan").await;
    assert!(totals.contains("Limit"), "{totals}");
    // The control: a statement that does scan is found to.
    let scan = "select count(*) from {outbox} where event_type = $1";
    let scan = plan(&play.fresh, &client, scan, "text", "'x'", "force_custom_plan").await;
    assert_eq!(scanned(&scan), Some("outbox_p0"), "{scan}");
}
