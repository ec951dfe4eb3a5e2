//! What the statements of the relay cost: by index, whatever waits and however much was asked.

use rusqlite::Connection;

use crate::support::Fresh;

/// Tables that may be large. The others have a row per destination, partition, or relay.
const LARGE: &[&str] = &[
    "outbox",
    "outbox_waiting",
    "outbox_settled",
    "outbox_request",
    "outbox_request_row",
    "outbox_scheduled",
];

macro_rules! statements {
    ($($file:literal),+ $(,)?) => {
        [$(($file, include_str!(concat!("../../sql/", $file)))),+]
    };
}

/// A hundred thousand events wait, in every state, and as many rows of requests are open.
fn crowded() -> Fresh {
    let fresh = Fresh::new();
    fresh
        .connect()
        .execute_batch(
            "begin;
            with recursive n (i) as (select 1 union all select i + 1 from n where i < 100000)
            insert into outbox_waiting (destination, partition, seq, key, key_hash, state, holds_key,
                next_at, reason, endpoint, moved_at)
            select 'a', 0, i, 'order/' || (i % 5000), i % 5000,
                case i % 5 when 0 then 'retrying' when 1 then 'parked' when 2 then 'disabled'
                    when 3 then 'dead' else case i % 10 when 4 then 'held' else 'discarded' end end,
                i % 7 > 0, i, 'failed', 'x', 0
            from n;
            insert into outbox_request (verb, destination, who, created_at, total)
            select 'redrive', 'a', 'anna', 0, 100000 from outbox_waiting limit 1000;
            insert into outbox_request_row select 1, 0, 'a', seq, null from outbox_waiting;
            insert into outbox_cursor values ('a', 0, 100000, 0, 0, 0);
            commit;
            analyze;",
        )
        .expect("rows");
    fresh
}

/// The steps of a plan.
fn steps(connection: &Connection, statement: &str) -> Vec<String> {
    let mut plan =
        connection.prepare(&format!("explain query plan {statement}")).expect("a statement");
    let nulls = vec![rusqlite::types::Null; plan.parameter_count()];
    let steps = plan
        .query_map(rusqlite::params_from_iter(nulls), |row| row.get::<_, String>(3))
        .expect("a plan");
    steps.map(|step| step.expect("a step")).collect()
}

/// The steps of a plan that read a large table from its beginning to its end.
fn scans(connection: &Connection, statement: &str) -> Vec<String> {
    let aliases = |step: &str| {
        let name = step.strip_prefix("SCAN ")?.split(' ').next()?;
        // The statements call a large table by one of these names as well.
        let large = LARGE.contains(&name) || ["o", "w", "r", "q", "earlier"].contains(&name);
        large.then(|| step.to_owned())
    };
    steps(connection, statement).iter().filter_map(|step| aliases(step)).collect()
}

/// R020: what is asked and what is due is found by index, with or without statistics.
#[test]
fn nothing_is_scanned_where_a_hundred_thousand_wait() {
    let fresh = crowded();
    let connection = fresh.connect();
    let all = statements![
        "waiting/due_heads.sql",
        "waiting/next_due.sql",
        "waiting/run.sql",
        "waiting/one.sql",
        "waiting/insert.sql",
        "waiting/promote.sql",
        "waiting/demote.sql",
        "waiting/bury.sql",
        "waiting/disable.sql",
        "waiting/retry.sql",
        "waiting/postpone.sql",
        "waiting/delete.sql",
        "waiting/read_key.sql",
        "waiting/ahead.sql",
        "waiting/keys.sql",
        "waiting/counts.sql",
        "request/any.sql",
        "request/open.sql",
        "request/mark.sql",
        "request/tally.sql",
        "request/bring_out.sql",
        "request/discard.sql",
        "request/requeue.sql",
        "request/disabled.sql",
        "request/rewind.sql",
        "request/forget_settled.sql",
        "retire/look.sql",
        "retire/delete.sql",
        "retire/delete_discarded.sql",
        "retire/delete_settled.sql",
        "retire/request.sql",
        "retire/request_rows.sql",
        "retire/delete_request.sql",
        "retire/delete_request_row.sql",
        "retire/seq.sql",
        "outbox/backlog.sql",
        "outbox/fetch.sql",
        "schedule/next.sql",
        "destination/remove_requests.sql",
        "destination/remove_request_rows.sql",
    ];
    for statistics in [true, false] {
        if !statistics {
            connection.execute_batch("delete from sqlite_stat1").unwrap();
        }
        let connection = fresh.connect();
        for (file, statement) in all {
            assert_eq!(scans(&connection, statement), [] as [&str; 0], "{file}");
        }
    }
    let control = "select seq from outbox_waiting as w where detail = ?1";
    assert_eq!(scans(&connection, control), ["SCAN w"], "the control");
}

/// R020: what is tried again and what is held is found by when it is due, whatever waits besides.
#[test]
fn what_is_due_is_read_by_its_time() {
    let fresh = crowded();
    let by_time = |connection: &Connection, statement: &str| {
        let index = "INDEX outbox_waiting_due (destination=? AND partition=?";
        steps(connection, statement).iter().any(|step| step.contains(index))
    };
    let all =
        statements!["waiting/due_heads.sql", "waiting/next_due.sql", "operator/retry_next.sql"];
    for statistics in [true, false] {
        if !statistics {
            fresh.connect().execute_batch("delete from sqlite_stat1").unwrap();
        }
        let connection = fresh.connect();
        for (file, statement) in all {
            assert!(by_time(&connection, statement), "{file} {:?}", steps(&connection, statement));
        }
    }
    let control = include_str!("../../sql/waiting/next_due.sql").replace(", 'held'", "");
    assert!(!by_time(&fresh.connect(), &control), "the control: an index of other events");
}
