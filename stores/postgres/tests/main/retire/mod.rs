//! Retention: what goes, what stays, that nobody waits for it, and that there are always tables ahead.

mod age;
mod isolation;
mod published;
mod ranges;
mod split;
mod tables;

use std::time::{Duration, Instant};

use postrider_core::source::{
    DefinitionChange, OutboxSource, RenewRequest, RetireRequest, Retired,
};
use postrider_core::{Code, ErrorKind, EventId, Lease, Start};
use postrider_postgres::{Layout, PostgresStore, Setup, init};

use crate::support::{Fresh, LONG, acquire, destination};

const DAY: Duration = Duration::from_secs(24 * 3_600);

struct Play {
    fresh: Fresh,
    store: PostgresStore,
    lease: Lease,
}

impl Play {
    /// A store of one partition.
    async fn new(layout: Layout) -> Option<Play> {
        Some(Play::at(Fresh::empty()?, layout).await)
    }

    /// The same in a schema that does not exist yet.
    async fn at(fresh: Fresh, layout: Layout) -> Play {
        let setup = Setup { layout: Some(layout), table_rows: Some(4_096), ..fresh.setup(1) };
        init(&fresh.url, &setup).await.expect("init");
        let (store, lease) = fresh.relay().await;
        Play { fresh, store, lease }
    }

    /// Commits events that say they were created so long ago.
    async fn old(&self, events: u32, ago: &str) {
        let insert = format!(
            "insert into {{outbox}} (aggregate_type, aggregate_id, event_type, payload, created_at)
            select 'order', i % 100, 't', '{{}}', now() - interval '{ago}'
            from generate_series(1, {events}) i"
        );
        self.fresh.run(&insert).await;
    }

    /// The same, with tables made ahead meanwhile.
    async fn old_in_tables(&self, events: u32, ago: &str) {
        for from in (0..events).step_by(4_000) {
            self.old(4_000.min(events - from), ago).await;
            self.fresh.number("select {outbox_ahead}()::bigint").await;
        }
    }

    /// Renews its lease, beside which the tables are seen to.
    async fn renew(&self) {
        let renew = RenewRequest {
            owner: self.lease.owner.clone(),
            leases: vec![self.lease.clone()],
            lease_duration: LONG,
            current: true,
        };
        self.store.renew(&renew).await.expect("renew");
    }

    /// Every destination has passed so many numbers, and that is long ago.
    async fn passed(&self, floor: u32) {
        let passed = format!(
            "update {{outbox_cursor}} set floor = {floor}, ground = {floor};
            insert into {{outbox_settled}}
            select destination, partition, bucket, least(4096, {floor} + 1 - bucket * 4096), 0, 0, 0, 0,
                0, 0, 0, 'r', now() - interval '30 days'
            from {{outbox_cursor}}, generate_series(0, {floor} / 4096) bucket
            on conflict do nothing"
        );
        self.fresh.run(&passed).await;
    }

    /// Adds a destination, from the beginning, at a moment at which nobody else on this server has a transaction open: what is
    /// open may still write far below, and tables wait for it.
    async fn begins_beside_nobody(&self, id: &str) {
        let ground =
            format!("select min(ground) from {{outbox_cursor}} where destination = '{id}'");
        let (store, began) = (self.fresh.store(), Instant::now());
        loop {
            let put = vec![(destination(id), Start::Beginning)];
            let change = DefinitionChange { put, ..DefinitionChange::default() };
            store.apply(&change).await.expect("apply");
            if self.fresh.number(&ground).await > 0 {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(240), "somebody always has one open");
            let remove = vec![destination(id).id];
            let change = DefinitionChange { remove, ..DefinitionChange::default() };
            store.apply(&change).await.expect("apply");
        }
    }

    /// The events stand in `waiting` in a state, as a dead letter would.
    async fn waits(&self, seqs: &str, state: &str) {
        let waits = format!(
            "insert into {{outbox_waiting}} (destination, partition, seq, key, key_hash, state, holds_key,
                next_at, reason, moved_at)
            select 'a', 0, seq, 'order/1', 0, '{state}', false, now(), 'gave_up', now()
            from {{outbox}} where seq in ({seqs})"
        );
        self.fresh.run(&waits).await;
    }

    fn request(&self, rows_max: u32) -> RetireRequest {
        let lease = self.lease.clone();
        RetireRequest { lease, older_than: 7 * DAY, rows_max, only: None }
    }

    async fn retire(&self, rows_max: u32) -> Retired {
        self.store.retire(&self.request(rows_max)).await.expect("retire")
    }

    async fn retirable(&self, rows_max: u32) -> Vec<EventId> {
        let events = self.store.retirable(&self.request(rows_max)).await.expect("retirable");
        events.iter().map(|event| event.id).collect()
    }

    async fn text(&self, statement: &str) -> String {
        let client = self.fresh.connect().await;
        client.query_one(&self.fresh.sql(statement), &[]).await.expect("one row").get(0)
    }

    async fn seqs(&self) -> String {
        self.text("select coalesce(string_agg(seq::text, ',' order by seq), '') from {outbox}")
            .await
    }

    async fn history_start(&self) -> i64 {
        self.fresh
            .number("select value::bigint from {outbox_meta} where key = 'history_start'")
            .await
    }

    /// The first numbers of the tables, with a star where there are rows.
    async fn tables(&self) -> String {
        self.text(
            "select string_agg(coalesce(lower::text, 'rest')
                || case when pg_relation_size(id::oid) > 0 then '*' else '' end, ' ' order by lower)
            from {outbox_tables}",
        )
        .await
    }
}

fn gone(rows: u32, more: bool) -> Retired {
    Retired { rows, more }
}

/// R022, R101, R117: what every destination has passed and is old goes; what is pending for one of them
/// stays, however old, and so does what is young.
#[tokio::test]
async fn only_what_is_passed_and_old_goes() {
    let Some(play) = Play::new(Layout::Plain).await else { return };
    play.old(5, "30 days").await;
    assert_eq!(play.retire(100).await, gone(0, false), "a pending row of 30 days survives");
    play.fresh.run("update {outbox_cursor} set floor = 5 where destination = 'a'").await;
    assert_eq!(play.retire(100).await, gone(0, false), "it is pending for the other");
    play.fresh.run("update {outbox_cursor} set floor = 2 where destination = 'unrouted'").await;
    assert_eq!(play.retirable(100).await.len(), 2);
    assert_eq!(play.retire(100).await, gone(2, false));
    assert_eq!((&*play.seqs().await, play.history_start().await), ("3,4,5", 3));
    play.passed(5).await;
    play.fresh.run("update {outbox_settled} set saved_at = now() where destination = 'a'").await;
    assert_eq!(play.retire(100).await, gone(0, false), "settled just now, however old it is");
    assert_eq!((&*play.seqs().await, play.history_start().await), ("3,4,5", 3));
    play.fresh.run("update {outbox_settled} set saved_at = now() - interval '8 days'").await;
    assert_eq!(play.retire(100).await, gone(3, false));
    assert_eq!((&*play.seqs().await, play.history_start().await), ("", 6));
}

/// R101: many rows go in writes of a bounded size, oldest first, the settled log with them.
#[tokio::test]
async fn a_large_outbox_is_retired_in_bounded_writes() {
    let Some(play) = Play::new(Layout::Plain).await else { return };
    play.old(20_000, "30 days").await;
    play.passed(20_000).await;
    let mut rounds = 0;
    loop {
        let retired = play.retire(2_000).await;
        assert!(retired.rows <= 2_000, "{retired:?}");
        rounds += 1;
        if !retired.more {
            break;
        }
        assert_eq!(play.history_start().await, 2_000 * rounds + 1, "oldest first");
    }
    assert_eq!((rounds, &*play.seqs().await), (10, ""));
    let left = "select count(*) from {outbox_settled} where bucket < 4";
    assert_eq!(play.fresh.number(left).await, 0);
}

/// INV-1: what waits stays, and holds back nothing but itself; what was discarded goes with its row.
#[tokio::test]
async fn what_waits_stays_alone() {
    let Some(play) = Play::new(Layout::Plain).await else { return };
    play.old(6, "30 days").await;
    play.passed(6).await;
    for (seq, state) in [("1", "dead"), ("3", "retrying"), ("5", "discarded")] {
        play.waits(seq, state).await;
    }
    assert_eq!(play.retire(100).await, gone(4, false));
    assert_eq!((&*play.seqs().await, play.history_start().await), ("1,3", 7));
    let discarded = "select count(*) from {outbox_waiting} where state = 'discarded'";
    assert_eq!(play.fresh.number(discarded).await, 0);
}

/// INV-5: thousands of dead letters in front do not keep what is behind them.
#[tokio::test]
async fn dead_letters_in_front_do_not_hold_retention_up() {
    let Some(play) = Play::new(Layout::Plain).await else { return };
    play.old(9_010, "30 days").await;
    play.passed(9_010).await;
    play.waits(
        "select seq from {outbox} where seq <= 9000"
            .replace("{outbox}", &play.fresh.sql("{outbox}"))
            .as_str(),
        "dead",
    )
    .await;
    let mut retired = Vec::new();
    for _ in 0..4 {
        retired.push(play.retire(100).await);
    }
    assert_eq!(retired, [gone(0, true), gone(0, true), gone(10, false), gone(0, false)]);
}

/// INV-1: what is to be sent again stays until its owner has taken it up, however old.
#[tokio::test]
async fn what_is_asked_for_again_is_not_retired_before() {
    for layout in [Layout::Plain, Layout::Partitioned] {
        for verb in ["requeue", "rewind"] {
            let Some(play) = Play::new(layout).await else { return };
            play.old(5_000, "30 days").await;
            play.passed(5_000).await;
            let asked = format!(
                "insert into {{outbox_request}} (verb, destination, target, who, total)
                    values ('{verb}', 'a', 1, 'anna', 1);
                insert into {{outbox_request_row}} values (1, 0, 'a', 2, null);"
            );
            play.fresh.run(&asked).await;
            assert_eq!(play.retirable(100).await, []);
            assert_eq!(play.retire(100).await, gone(0, false), "{verb}");
            play.fresh.run("update {outbox_request_row} set outcome = 'skipped'").await;
            assert!(play.retire(100).await.rows > 0, "the control");
        }
    }
}

/// R102: in either layout only what the archive has taken goes.
#[tokio::test]
async fn only_what_was_archived_goes() {
    for layout in [Layout::Plain, Layout::Partitioned] {
        let Some(play) = Play::new(layout).await else { return };
        play.old(4, "30 days").await;
        play.passed(4).await;
        play.waits("1", "dead").await;
        let archived = play.retirable(2).await;
        assert_eq!(play.retirable(2).await, archived, "they are there until they are deleted");
        play.fresh.run("delete from {outbox_waiting}").await;
        let request = RetireRequest { only: Some(archived), ..play.request(100) };
        assert_eq!(play.store.retire(&request).await.unwrap(), gone(2, false));
        assert_eq!(&*play.seqs().await, "1,4");
        assert_eq!(play.store.retire(&request).await.unwrap(), gone(0, false), "sent again");
    }
}

/// R114: an owner that lost its lease deletes nothing, and is told.
#[tokio::test]
async fn a_late_owner_retires_nothing() {
    for layout in [Layout::Plain, Layout::Partitioned] {
        let Some(play) = Play::new(layout).await else { return };
        play.old(5_000, "30 days").await;
        play.passed(5_000).await;
        play.fresh.run("update {outbox_renewal} set expires_at = 'epoch'").await;
        acquire(&play.store, LONG).await.expect("it has expired");
        for refused in [
            play.store.retire(&play.request(100)).await.map(drop).unwrap_err(),
            play.store.retirable(&play.request(100)).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
        }
        assert_eq!(play.fresh.number("select count(*) from {outbox}").await, 5_000);
    }
}

/// A copy of the database publishes nothing until it is adopted.
#[tokio::test]
async fn a_copy_is_granted_nothing() {
    let Some(play) = Play::new(Layout::Plain).await else { return };
    play.store.release(std::slice::from_ref(&play.lease)).await.expect("release");
    play.fresh.run("update {outbox_meta} set value = '1' where key = 'database'").await;
    play.fresh.store().open().await.expect("operators may look at it");
    let request = postrider_core::lease::AcquireRequest {
        owner: postrider_core::RelayId::mint(),
        lease_duration: LONG,
        wanted: 1,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    };
    let refused = play.store.acquire(&request).await.expect_err("nothing is granted");
    assert_eq!(refused.operator_code(), Some(Code::StoreMoved), "{refused}");
}

/// How many tables are detached when nobody of ours is in the way: the server's own cleaner may be, for a moment.
async fn detached_at_last(client: &tokio_postgres::Client, detach: &str) -> i32 {
    for _ in 0..50 {
        match client.query_one(detach, &[]).await {
            Ok(row) => return row.get(0),
            Err(error) => {
                let state = error.code().map(|code| code.code().to_owned());
                assert_eq!(state.as_deref(), Some("55P03"), "nothing but a lock that is not free");
            }
        }
        // waits: for the cleaner, who gives way after a moment
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("somebody was in the way each time");
}
