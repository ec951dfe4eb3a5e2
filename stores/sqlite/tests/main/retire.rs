//! Retention: what goes, what stays, and that it goes in bounded writes.

use std::time::Duration;

use postrider_core::source::{CarryOutRequest, OutboxSource, RetireRequest, Retired};
use postrider_core::waiting::{Passed, Settlement, SettlementPart, WaitingChange};
use postrider_core::{ErrorKind, EventId, Lease, Operator, Start};
use postrider_sqlite::SqliteStore;

use crate::support::{Fresh, LONG, acquire, destination, event, fetch, id, number, pass};

const DAY: Duration = Duration::from_secs(24 * 3_600);

struct Play {
    fresh: Fresh,
    store: SqliteStore,
    lease: Lease,
}

impl Play {
    async fn new() -> Play {
        let fresh = Fresh::new();
        let (store, lease) = fresh.relay().await;
        Play { fresh, store, lease }
    }

    /// Commits events that say they were created so long ago.
    fn old(&self, events: u32, ago: &str) {
        self.fresh
            .connect()
            .execute(
                "with recursive n (i) as (select 1 union all select i + 1 from n where i < ?1)
                insert into outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
                select 'order', i % 100, 't', '{}', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?2)
                from n",
                (events, ago),
            )
            .expect("events");
    }

    fn run(&self, statements: &str) {
        self.fresh.connect().execute_batch(statements).expect(statements);
    }

    /// Every destination has passed so many events.
    fn passed(&self, position: u32) {
        self.run(&format!("update outbox_cursor set position = {position}"));
    }

    /// The event stands in `waiting` in a state, as a dead letter would.
    fn waits(&self, seqs: &str, state: &str) {
        self.run(&format!(
            "insert into outbox_waiting (destination, partition, seq, key, key_hash, state, holds_key,
                next_at, reason, moved_at)
            select 'a', 0, seq, 'order/1', 0, '{state}', 0, 0, 'gave_up', 0
            from outbox where seq in ({seqs})"
        ));
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

    fn ids(&self, seqs: &str) -> Vec<EventId> {
        let connection = self.fresh.connect();
        let statement = format!("select id from outbox where seq in ({seqs})");
        let mut statement = connection.prepare(&statement).expect("a statement");
        let ids = statement.query_map((), |row| row.get::<_, String>(0)).expect("rows");
        ids.map(|id| id.expect("a text").parse().expect("an id")).collect()
    }

    fn number(&self, statement: &str) -> i64 {
        number(&self.fresh.connect(), statement)
    }

    fn seqs(&self) -> String {
        let statement = "select coalesce(group_concat(seq), '') from
            (select seq from outbox order by seq)";
        self.fresh.connect().query_row(statement, (), |row| row.get(0)).expect("numbers")
    }

    fn history_start(&self) -> i64 {
        self.number("select value + 0 from outbox_meta where key = 'history_start'")
    }
}

fn gone(rows: u32, more: bool) -> Retired {
    Retired { rows, more }
}

/// R022: nothing expires before it is published, however old it is.
/// R101, R117: what every destination has passed and is old goes; what is pending for one of them stays,
/// however old, and so does what is young.
#[tokio::test]
async fn only_what_is_passed_and_old_goes() {
    let play = Play::new().await;
    play.old(3, "-30 days");
    play.old(2, "-1 day");
    assert_eq!(play.retire(100).await, gone(0, false), "a pending row of 30 days survives");
    play.run("update outbox_cursor set position = 5 where destination = 'a'");
    assert_eq!(play.retire(100).await, gone(0, false), "it is pending for the other");
    play.run("update outbox_cursor set position = 2 where destination = 'unrouted'");
    assert_eq!(play.retirable(100).await.len(), 2);
    assert_eq!(play.retire(100).await, gone(2, false));
    assert_eq!((play.seqs(), play.history_start()), ("3,4,5".to_owned(), 3));
    play.passed(5);
    assert_eq!(play.retire(100).await, gone(1, false));
    assert_eq!((play.seqs(), play.history_start()), ("4,5".to_owned(), 4));
    assert_eq!(play.retire(100).await, gone(0, false));
}

/// INV-1: what an operator or a recount wants sent again stays until its owner has taken it up, however
/// old: the log says already that it waits. So does the history that a rewind is to begin with.
#[tokio::test]
async fn what_is_asked_for_again_is_not_retired_before() {
    for (verb, seq) in [("requeue", 2), ("rewind", 0)] {
        let play = Play::new().await;
        play.old(3, "-30 days");
        play.passed(3);
        play.run(&format!(
            "insert into outbox_request (verb, destination, target, who, created_at, total)
                values ('{verb}', 'a', 1, 'anna', 0, 1);
            insert into outbox_request_row values (1, 0, 'a', {seq}, null);"
        ));
        assert_eq!(play.retirable(100).await, []);
        assert_eq!(play.retire(100).await, gone(0, false), "{verb}");
        let ids = RetireRequest { only: Some(play.ids("1, 2, 3")), ..play.request(100) };
        assert_eq!(play.store.retire(&ids).await.unwrap().rows, 0, "not what was archived before");
        let request = CarryOutRequest { leases: vec![play.lease.clone()], rows_max: 100 };
        assert_eq!(play.store.carry_out(&request).await.unwrap().rows, 1);
        let open = "select count(*) from outbox_request_row where outcome is not 'done'";
        assert_eq!(play.number(open), 0, "{verb}");
    }
}

/// R101: twenty thousand rows go in writes of a bounded size, the settled log with them, and the next
/// number follows the last.
#[tokio::test]
async fn a_large_outbox_is_retired_in_bounded_writes() {
    let play = Play::new().await;
    play.old(20_000, "-30 days");
    play.passed(20_000);
    play.run(
        "with recursive n (i) as (select 0 union all select i + 1 from n where i < 4)
        insert into outbox_settled select 'a', 0, i, 4096, 0, 4096, 0, 0, 0, 0, 'r', 0 from n",
    );
    let mut rounds = 0;
    loop {
        let retired = play.retire(2_000).await;
        assert!(retired.rows <= 2_000, "{retired:?}");
        rounds += 1;
        if rounds == 6 {
            assert_eq!(play.number("select min(seq) from outbox"), 12_001, "oldest first");
            assert_eq!(play.number("select min(bucket) from outbox_settled"), 12_001 / 4_096);
        }
        if !retired.more {
            break;
        }
    }
    assert_eq!((rounds, play.seqs()), (10, String::new()));
    assert_eq!(play.history_start(), 20_001);
    assert_eq!(play.number("select count(*) from outbox_settled"), 1, "the one that goes on");
    play.fresh.commit(&[event(1)]);
    assert_eq!(play.seqs(), "20001");
    let rows = fetch(&play.store, &play.lease, 20_000).await.rows;
    assert_eq!(rows.len(), 1, "the relay goes on");
}

/// INV-1: what waits stays, and holds back nothing but itself; what was discarded goes with its row.
#[tokio::test]
async fn what_waits_stays_alone() {
    let play = Play::new().await;
    play.old(6, "-30 days");
    play.passed(6);
    for (seq, state) in [("1", "dead"), ("3", "retrying"), ("5", "discarded")] {
        play.waits(seq, state);
    }
    assert_eq!(play.retire(100).await, gone(4, false));
    assert_eq!((play.seqs(), play.history_start()), ("1,3".to_owned(), 7));
    assert_eq!(play.number("select count(*) from outbox_waiting where state = 'discarded'"), 0);
    let rows = fetch(&play.store, &play.lease, 0).await.rows;
    let mut part = SettlementPart::new(id("a"));
    part.changes.push(WaitingChange::Delivered(rows[1].row));
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.unwrap();
    assert_eq!(play.retire(100).await, gone(1, false));
    assert_eq!((play.seqs(), play.history_start()), ("1".to_owned(), 7));
}

/// INV-5: thousands of dead letters in front do not keep what is behind them, and are not looked at
/// over and over.
#[tokio::test]
async fn dead_letters_in_front_do_not_hold_retention_up() {
    let play = Play::new().await;
    play.old(9_010, "-30 days");
    play.passed(9_010);
    play.waits("select seq from outbox where seq <= 9000", "dead");
    let mut retired = Vec::new();
    for _ in 0..5 {
        retired.push(play.retire(100).await);
    }
    let expected = [gone(0, true), gone(0, true), gone(10, false), gone(0, false), gone(0, true)];
    assert_eq!(retired, expected, "and it begins again");
    play.run("delete from outbox_waiting where seq = 7");
    let mut rows = 0;
    for _ in 0..5 {
        rows += play.retire(100).await.rows;
    }
    assert_eq!(rows, 1, "what was delivered since is found");
}

/// An age that a producer made up holds back its own event, not those behind it.
#[tokio::test]
async fn a_made_up_age_holds_back_one_event() {
    let play = Play::new().await;
    play.old(1, "-30 days");
    play.old(1, "+300 days");
    play.old(2, "-30 days");
    play.passed(4);
    assert_eq!(play.retire(100).await, gone(3, false));
    assert_eq!(play.seqs(), "2");
}

/// R102: what became retirable after the archive took its events is not deleted with them.
#[tokio::test]
async fn only_what_was_archived_goes() {
    let play = Play::new().await;
    play.old(4, "-30 days");
    play.passed(4);
    play.waits("1", "dead");
    let archived = play.retirable(2).await;
    assert_eq!(play.retirable(2).await, archived, "they are there until they are deleted");
    play.run("delete from outbox_waiting");
    let request = RetireRequest { only: Some(archived.clone()), ..play.request(100) };
    assert_eq!(play.store.retire(&request).await.unwrap(), gone(2, false));
    assert_eq!(play.seqs(), "1,4");
    assert_eq!(play.store.retire(&request).await.unwrap(), gone(0, false), "sent again");
    assert_eq!(play.retirable(100).await.len(), 2);
}

/// R102: what is no event cannot be archived, and stays; it holds back no other.
#[tokio::test]
async fn what_cannot_be_archived_stays() {
    let play = Play::new().await;
    play.run(
        "pragma ignore_check_constraints = on;
        insert into outbox (id, aggregate_type, aggregate_id, event_type, payload, created_at)
        values ('no uuid', 'order', '1', 't', '{}', '2020-01-01T00:00:00Z');",
    );
    play.old(2, "-30 days");
    play.passed(3);
    assert_eq!(play.retirable(2).await.len(), 1);
    assert_eq!(play.retirable(1).await.len(), 1, "looked past");
}

/// F35: a crash in the middle deletes nothing, and what an operator redrives meanwhile is not deleted
/// under it.
#[tokio::test]
async fn a_crash_in_the_middle_deletes_nothing() {
    let play = Play::new().await;
    play.old(3, "-30 days");
    play.passed(3);
    play.waits("2", "discarded");
    play.run(
        "create trigger crash before delete on outbox when old.seq = 3
        begin select raise(abort, 'crash'); end",
    );
    play.store.retire(&play.request(100)).await.expect_err("it crashes");
    assert_eq!((play.seqs(), play.history_start()), ("1,2,3".to_owned(), 1));
    assert_eq!(play.number("select count(*) from outbox_waiting"), 1);
    play.run(
        "drop trigger crash;
        insert into outbox_request (verb, who, created_at, total) values ('requeue', 'anna', 0, 2);
        insert into outbox_request_row values (1, 0, 'a', 1, null), (1, 0, 'a', 2, null);",
    );
    let carry_out =
        postrider_core::source::CarryOutRequest { leases: vec![play.lease.clone()], rows_max: 100 };
    assert_eq!(play.store.carry_out(&carry_out).await.unwrap().rows, 2);
    assert_eq!(play.retire(100).await, gone(1, false), "the two that were requeued wait");
    assert_eq!(play.seqs(), "1,2");
}

/// Requests that were finished long ago go with their rows, a bounded number at a time; open ones stay.
#[tokio::test]
async fn finished_requests_are_forgotten() {
    let play = Play::new().await;
    play.run(
        "insert into outbox_request (verb, who, created_at, total, done, finished_at)
        values ('redrive', 'anna', 0, 250, 250, 5), ('redrive', 'anna', 0, 1, 1, 6),
            ('redrive', 'anna', 0, 1, 0, null),
            ('redrive', 'anna', 0, 1, 1, 1000 * unixepoch('now'));
        with recursive n (i) as (select 1 union all select i + 1 from n where i < 250)
        insert into outbox_request_row select 1, 0, 'a', i, 'done' from n;
        insert into outbox_request_row
        values (2, 0, 'a', 1, 'done'), (3, 0, 'a', 1, null), (4, 0, 'a', 1, 'done');",
    );
    assert_eq!(play.retire(100).await, gone(0, true));
    assert_eq!(play.number("select count(*) from outbox_request_row"), 153);
    assert_eq!(play.retire(100).await, gone(0, true));
    assert_eq!(play.retire(100).await, gone(0, false));
    assert_eq!(play.number("select min(id) * 10 + count(*) from outbox_request"), 32);
    assert_eq!(play.number("select min(request) * 10 + count(*) from outbox_request_row"), 32);
}

/// R114: an owner that lost its lease deletes nothing, and is told.
#[tokio::test]
async fn a_late_owner_retires_nothing() {
    let play = Play::new().await;
    play.old(1, "-30 days");
    play.passed(1);
    play.run("update outbox_lease set expires_at = 0");
    acquire(&play.store, LONG).await.expect("it has expired");
    for refused in [
        play.store.retire(&play.request(100)).await.map(drop).unwrap_err(),
        play.store.retirable(&play.request(100)).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    }
    assert_eq!(play.seqs(), "1");
}

/// A destination that is added later starts at the beginning of the history that is kept, not amid what
/// retention has left over.
#[tokio::test]
async fn a_new_destination_starts_where_history_begins() {
    let play = Play::new().await;
    play.old(5, "-30 days");
    play.passed(4);
    play.waits("2", "dead");
    assert_eq!(play.retire(100).await, gone(3, false));
    let time = "2020-01-01T00:00:00Z".parse().unwrap();
    let change = postrider_core::source::DefinitionChange {
        put: vec![(destination("b"), Start::Beginning), (destination("c"), Start::At(time))],
        ..Default::default()
    };
    OutboxSource::apply(&play.store, &change).await.unwrap();
    for name in ["b", "c"] {
        let loaded = play.store.load(&play.lease, &id(name)).await.unwrap();
        assert_eq!(loaded.cursor.position(), 4, "{name}");
    }
    let before = "select count(*) from outbox_status
        where destination = 'b' and seq = 2 and status = 'before_start'";
    assert_eq!(play.number(before), 1);
    assert_eq!(play.retire(100).await, gone(0, false), "the new ones have not passed 5");
}

/// R098: what retention has deleted is no difference between the log and the outbox, wherever in a
/// bucket it ended, and neither is what it left over; a row that is missing is one.
#[tokio::test]
async fn a_recount_does_not_miss_what_was_retired() {
    let play = Play::new().await;
    play.old(10_000, "-30 days");
    for destination in ["a", "unrouted"] {
        let mut at = 0;
        loop {
            let rows = fetch(&play.store, &play.lease, at).await.rows;
            let Some(last) = rows.last().map(|row| row.row.seq) else { break };
            let mut settlement = pass(&play.lease, at, &rows, Passed::Acked);
            settlement.parts[0].destination = id(destination);
            play.store.settle(&settlement).await.unwrap();
            at = last;
        }
    }
    play.waits("2, 4500", "dead");
    let recount = async || play.store.recount(&id("a")).await.unwrap().differences;
    for left in [9_000, 6_000, 5_500] {
        let before = recount().await;
        assert_eq!(before, [], "with {} left", play.number("select count(*) from outbox"));
        while play.number("select count(*) from outbox") > left {
            play.retire(500).await;
        }
    }
    assert_eq!(recount().await, []);
    play.run("delete from outbox where seq = 9900");
    assert_eq!(recount().await.len(), 1, "the control");
}
