//! What operators ask for, carried out by the partition's owner, as SQLite's own tables show it.

use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::source::{
    CarriedOut, CarryOutRequest, DefinitionChange, DueRequest, FetchedRow, OutboxSource,
};
use postrider_core::waiting::{
    Attempted, DisabledEndpoint, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart,
    WaitingChange,
};
use postrider_core::{Cursor, ErrorKind, KeyHash, Lease, NewEvent, PartitionId};
use postrider_sqlite::SqliteStore;
use rusqlite::Connection;

use crate::support::{Fresh, LONG, acquire, event, fetch, id, number, pass};

/// A relay whose destination `a` has passed some events of the keys `order/1`, `order/2`, ….
struct Play {
    fresh: Fresh,
    store: SqliteStore,
    lease: Lease,
    rows: Vec<FetchedRow>,
}

impl Play {
    /// Events of these keys, numbered from 1, all passed as waiting with these placements, or as
    /// acknowledged.
    async fn of(events: &[(&str, Option<Placement>)]) -> Play {
        let fresh = Fresh::new();
        let (store, lease) = fresh.relay().await;
        let of = |(key, _): &(&str, _)| NewEvent::new("order", *key, "t").json(&1).expect("JSON");
        fresh.commit(&events.iter().map(of).collect::<Vec<_>>());
        let rows = fetch(&store, &lease, 0).await.rows;
        let mut settlement = pass(&lease, 0, &rows, Passed::Acked);
        for (index, (row, (_, placement))) in rows.iter().zip(events).enumerate() {
            if let Some(placement) = placement {
                settlement.parts[0].passed[index].1 = Passed::Waiting;
                settlement.parts[0].waiting.push(enter(row, placement.clone()));
            }
            if let Some(Placement::Disabled { endpoint, .. }) = placement {
                let (topic, detail) = (endpoint.clone(), "410 Gone".to_owned());
                settlement.parts[0].disabled.push(DisabledEndpoint { topic, detail });
            }
        }
        store.settle(&settlement).await.expect("settle");
        Play { fresh, store, lease, rows }
    }

    /// Writes a request down as an operator's program does, and returns its number.
    fn ask(&self, verb: &str, seqs: &[i64]) -> i64 {
        self.ask_of(verb, seqs, None, None)
    }

    fn ask_of(&self, verb: &str, seqs: &[i64], topic: Option<&str>, target: Option<i64>) -> i64 {
        let connection = self.fresh.connect();
        connection
            .execute(
                "insert into outbox_request (verb, destination, topic, target, who, created_at, total)
                values (?1, 'a', ?2, ?3, 'anna', 0, ?4)",
                (verb, topic, target, i64::try_from(seqs.len()).expect("few")),
            )
            .expect("a request");
        let request = connection.last_insert_rowid();
        for seq in seqs {
            connection
                .execute(
                    "insert into outbox_request_row values (?1, 0, 'a', ?2, null)",
                    [request, *seq],
                )
                .expect("a row");
        }
        request
    }

    async fn carry_out(&self, rows_max: u32) -> CarriedOut {
        let request = CarryOutRequest { leases: vec![self.lease.clone()], rows_max };
        self.store.carry_out(&request).await.expect("carry out")
    }

    async fn due(&self) -> Vec<u64> {
        let request = DueRequest {
            lease: self.lease.clone(),
            destination: id("a"),
            except: Vec::new(),
            rows_max: 100,
            bytes_max: u64::MAX,
        };
        let due = self.store.due(&request).await.expect("due");
        due.rows.iter().map(|row| row.row.seq).collect()
    }

    async fn change(&self, changes: Vec<WaitingChange>) {
        let mut part = SettlementPart::new(id("a"));
        part.changes = changes;
        let settlement = Settlement { lease: self.lease.clone(), parts: vec![part] };
        self.store.settle(&settlement).await.expect("settle");
    }

    /// The numbers and states of what waits.
    fn states(&self) -> String {
        let statement = "select coalesce(group_concat(seq || ' ' || state, ', '), '') from
            (select seq, state from outbox_waiting where destination = 'a' order by seq)";
        self.text(statement)
    }

    /// (done, skipped, finished, relay) of a request.
    fn request(&self, request: i64) -> (u32, u32, bool) {
        let statement = "select done, skipped, finished_at is not null and relay is not null
            from outbox_request where id = ?1";
        let row = self.fresh.connect().query_row(statement, [request], |row| row.try_into());
        row.expect("the request")
    }

    fn text(&self, statement: &str) -> String {
        self.fresh.connect().query_row(statement, (), |row| row.get(0)).expect("a text")
    }

    fn number(&self, statement: &str) -> i64 {
        number(&self.fresh.connect(), statement)
    }
}

fn enter(row: &FetchedRow, placement: Placement) -> NewWaiting {
    NewWaiting { row: row.row, key_hash: row.key_hash, event: None, placement }
}

fn attempted(attempts: u32, reason: Reason) -> Attempted {
    Attempted { attempts, reason, detail: "503 come back later".to_owned() }
}

fn dead(holds_key: bool) -> Option<Placement> {
    Some(Placement::Dead { attempted: attempted(7, Reason::GaveUp), holds_key })
}

fn behind() -> Option<Placement> {
    Some(Placement::Behind(Reason::Behind))
}

fn disabled(topic: &str) -> Option<Placement> {
    let attempted = attempted(0, Reason::Disabled);
    Some(Placement::Disabled { endpoint: topic.into(), attempted })
}

fn here() -> (PartitionId, postrider_core::DestinationId) {
    (PartitionId(0), id("a"))
}

/// R093, R096: a dead letter that is redriven is sent again in its place, its successors behind it, and
/// asking again changes nothing.
#[tokio::test]
async fn a_redriven_dead_letter_goes_before_its_successors() {
    let play = Play::of(&[("1", dead(true)), ("1", behind()), ("2", dead(true))]).await;
    assert_eq!(play.due().await, [] as [u64; 0]);
    let (first, again) = (play.ask("redrive", &[1]), play.ask("redrive", &[1]));
    let carried = play.carry_out(100).await;
    assert_eq!((carried.rows, carried.more), (2, false));
    assert_eq!((carried.touched, carried.freed), (vec![here()], vec![]));
    assert_eq!(play.states(), "1 retrying, 2 parked, 3 dead");
    assert_eq!(play.due().await, [1, 2]);
    assert_eq!(play.request(first), (1, 0, true));
    assert_eq!(play.request(again), (0, 1, true), "it is not dead any more");
    let row = "select attempts || ' ' || reason || ' ' || late from outbox_waiting where seq = 1";
    assert_eq!(play.text(row), "0 redriven 0");
    play.change(vec![WaitingChange::Delivered(play.rows[0].row)]).await;
    assert_eq!(play.due().await, [2]);
}

/// INV-3: of several dead letters of a key the later waits for the earlier, in whatever order they are
/// redriven.
#[tokio::test]
async fn dead_letters_of_a_key_come_out_in_order() {
    let play = Play::of(&[("1", dead(true)), ("1", dead(true)), ("1", behind())]).await;
    play.ask("redrive", &[2]);
    play.carry_out(100).await;
    assert_eq!(play.states(), "1 dead, 2 parked, 3 parked");
    play.ask("redrive", &[1]);
    play.carry_out(100).await;
    assert_eq!(play.states(), "1 retrying, 2 parked, 3 parked");
    assert_eq!(play.due().await, [1, 2, 3]);
}

/// R122: what was skipped is late when it is sent again: it holds its key neither before nor after.
#[tokio::test]
async fn a_skipped_dead_letter_is_redriven_late() {
    let retry = Placement::Retry { delay: LONG, attempted: attempted(1, Reason::Failed) };
    let play = Play::of(&[("1", dead(false)), ("1", Some(retry))]).await;
    play.ask("redrive", &[1]);
    play.carry_out(100).await;
    assert_eq!(play.states(), "1 retrying, 2 retrying", "it waits for nobody, and nobody for it");
    let request = DueRequest {
        lease: play.lease.clone(),
        destination: id("a"),
        except: Vec::new(),
        rows_max: 10,
        bytes_max: u64::MAX,
    };
    let due = play.store.due(&request).await.unwrap();
    assert_eq!(due.rows.len(), 1);
    assert!(due.rows[0].late);
    let gave_up = attempted(3, Reason::GaveUp);
    let row = play.rows[0].row;
    play.change(vec![WaitingChange::Dead { row, attempted: gave_up, holds_key: true }]).await;
    let loaded = play.store.load(&play.lease, &id("a")).await.unwrap();
    assert_eq!(loaded.waiting_keys, [(KeyHash::of("order/1"), 1)], "late holds no key, ever");
}

/// F21: what cannot be read stays dead, with its bytes.
#[tokio::test]
async fn a_dead_letter_that_is_no_event_stays() {
    let play = Play::of(&[("1", dead(true))]).await;
    play.fresh.connect().execute("update outbox_waiting set format = 9", ()).unwrap();
    let request = play.ask("redrive", &[1]);
    let carried = play.carry_out(100).await;
    assert_eq!((carried.rows, carried.touched), (1, vec![]));
    assert_eq!(play.request(request), (0, 1, true));
    assert_eq!(play.states(), "1 dead");
}

/// R093: what is discarded is gone, the next of its key comes out, and nothing brings it back.
#[tokio::test]
async fn a_discarded_dead_letter_frees_its_key() {
    let play =
        Play::of(&[("1", dead(true)), ("1", behind()), ("1", behind()), ("2", dead(false))]).await;
    let request = play.ask("discard", &[1, 3, 4]);
    let carried = play.carry_out(100).await;
    let key = (PartitionId(0), id("a"), KeyHash::of("order/1"));
    assert_eq!(carried.freed, [key], "the other held none");
    assert_eq!(carried.touched, [here()]);
    assert_eq!(play.request(request), (2, 1, true), "what is parked is not given up");
    assert_eq!(play.states(), "1 discarded, 2 retrying, 3 parked, 4 discarded");
    assert_eq!(play.due().await, [2, 3]);
    let kept = "select count(*) from outbox_waiting where state = 'discarded'
        and payload is null and payload_bytes is null and headers is null and holds_key = 0";
    assert_eq!(play.number(kept), 2);
    play.ask("redrive", &[1]);
    play.carry_out(100).await;
    assert_eq!(play.states(), "1 discarded, 2 retrying, 3 parked, 4 discarded");
}

/// R105: what the cursor has passed is sent again, late; what waits, is gone, or is to come is not.
#[tokio::test]
async fn a_requeue_sends_what_was_passed() {
    let play = Play::of(&[
        ("1", None),
        ("1", None),
        ("2", dead(true)),
        ("2", behind()),
        ("3", dead(true)),
        ("4", None),
    ])
    .await;
    play.fresh.commit(&[event(7)]);
    play.fresh
        .connect()
        .execute_batch(
            "delete from outbox where seq = 2;
            update outbox set payload = null, erased_at = '2026-01-01T00:00:00Z' where seq = 6;",
        )
        .unwrap();
    play.ask("discard", &[5]);
    let request = play.ask("requeue", &[1, 2, 3, 4, 5, 6, 7]);
    let carried = play.carry_out(100).await;
    assert_eq!(play.request(request), (2, 5, true));
    assert_eq!((carried.rows, carried.touched), (8, vec![here()]));
    assert_eq!(play.states(), "1 retrying, 3 dead, 4 parked, 5 retrying");
    assert_eq!(play.due().await, [1, 5]);
    let late = "select count(*) from outbox_waiting
        where late = 1 and holds_key = 0 and reason = 'requeued' and attempts = 0
            and payload is not null and headers is not null";
    assert_eq!(play.number(late), 2);
}

/// A disabled endpoint is written down once; its events wait, each in its key's order, and come out when
/// it is enabled.
#[tokio::test]
async fn an_enabled_endpoint_lets_its_events_out_in_order() {
    let play = Play::of(&[
        ("1", disabled("x")),
        ("1", disabled("x")),
        ("2", disabled("y")),
        ("3", dead(true)),
        ("3", disabled("x")),
    ])
    .await;
    assert_eq!(play.states(), "1 disabled, 2 parked, 3 disabled, 4 dead, 5 parked");
    assert_eq!(play.due().await, [] as [u64; 0]);
    assert_eq!(play.store.counts(&id("a")).await.unwrap().disabled, 2);
    let before = play.store.destinations().await.unwrap();
    assert_eq!(before.disabled, [(id("a"), "x".into()), (id("a"), "y".into())]);
    let request = play.ask_of("enable", &[0], Some("x"), None);
    let carried = play.carry_out(100).await;
    assert_eq!(carried.enabled, [(id("a"), "x".into())]);
    assert_eq!((carried.touched, carried.rows), (vec![here()], 1));
    assert_eq!(play.request(request), (1, 0, true));
    assert_eq!(play.states(), "1 retrying, 2 parked, 3 disabled, 4 dead, 5 parked");
    let after = play.store.destinations().await.unwrap();
    assert_eq!(after.disabled, [(id("a"), "y".into())]);
    assert!(after.version > before.version, "other relays hear of it");
    assert_eq!(carried.definitions, after.version);
}

/// The definitions' version grows only when an endpoint is news.
#[tokio::test]
async fn an_endpoint_is_disabled_once() {
    let play = Play::of(&[("1", disabled("x"))]).await;
    let before = play.store.destinations().await.unwrap();
    let mut part = SettlementPart::new(id("a"));
    part.disabled.push(DisabledEndpoint { topic: "x".into(), detail: "again".to_owned() });
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.unwrap();
    assert_eq!(play.store.destinations().await.unwrap(), before);
    assert_eq!(play.text("select detail from outbox_endpoint"), "410 Gone");
}

/// Many events of an endpoint come out a bounded number at a time; one that is disabled anew meanwhile
/// keeps the rest.
#[tokio::test]
async fn an_endpoint_is_enabled_in_bounded_writes() {
    let events: Vec<_> =
        (0..7).map(|n| (["1", "2", "3", "4", "5", "6", "7"][n], disabled("x"))).collect();
    let play = Play::of(&events).await;
    let request = play.ask_of("enable", &[0], Some("x"), None);
    let carried = play.carry_out(3).await;
    assert_eq!((carried.rows, carried.more), (0, true));
    assert_eq!(play.store.counts(&id("a")).await.unwrap().disabled, 4);
    assert_eq!(play.request(request), (0, 0, false));
    let carried = play.carry_out(3).await;
    assert!(carried.more);
    assert_eq!(play.store.counts(&id("a")).await.unwrap().disabled, 1);
    let mut part = SettlementPart::new(id("a"));
    part.disabled.push(DisabledEndpoint { topic: "x".into(), detail: "gone again".to_owned() });
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.unwrap();
    let carried = play.carry_out(3).await;
    assert_eq!((carried.rows, carried.more, carried.enabled), (1, false, vec![]));
    assert_eq!(play.request(request), (1, 0, true));
    assert_eq!(play.store.counts(&id("a")).await.unwrap().disabled, 1, "it is disabled");
    assert_eq!(play.store.destinations().await.unwrap().disabled.len(), 1);
}

/// INV-8: an event whose endpoint was enabled while its settlement was on its way does not wait for it.
#[tokio::test]
async fn nothing_waits_for_an_endpoint_that_is_not_disabled() {
    let play = Play::of(&[("1", behind()), ("2", behind())]).await;
    play.fresh.commit(&[event(1)]);
    let rows = fetch(&play.store, &play.lease, 2).await.rows;
    let attempted = attempted(0, Reason::Disabled);
    let mut part = SettlementPart::new(id("a"));
    part.waiting.push(enter(&rows[0], disabled("x").unwrap()));
    let row = play.rows[0].row;
    part.changes.push(WaitingChange::Disabled { row, endpoint: "x".into(), attempted });
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.unwrap();
    assert_eq!(play.states(), "1 retrying, 2 retrying, 3 retrying");
}

/// INV-3: an event that enters before one of its key that waits for an endpoint goes first.
#[tokio::test]
async fn a_disabled_event_is_parked_behind_one_that_enters_before_it() {
    let play = Play::of(&[("1", None), ("1", disabled("x")), ("1", behind())]).await;
    let retry = Placement::Retry { delay: Duration::ZERO, attempted: attempted(1, Reason::Failed) };
    let mut part = SettlementPart::new(id("a"));
    part.waiting.push(enter(&play.rows[0], retry));
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.unwrap();
    assert_eq!(play.states(), "1 retrying, 2 parked, 3 parked");
    play.change(vec![WaitingChange::Delivered(play.rows[0].row)]).await;
    assert_eq!(play.states(), "2 retrying, 3 parked", "its endpoint is found out anew");
    let (row, attempted) = (play.rows[1].row, attempted(0, Reason::Disabled));
    play.change(vec![WaitingChange::Disabled { row, endpoint: "x".into(), attempted }]).await;
    assert_eq!(play.states(), "2 disabled, 3 parked");
    play.change(vec![WaitingChange::Erased(row)]).await;
    assert_eq!(play.states(), "3 retrying", "an erased event lets its key go");
}

async fn drain(store: &SqliteStore, lease: &Lease, mut at: u64) {
    loop {
        let rows = fetch(store, lease, at).await.rows;
        let Some(last) = rows.last() else { return };
        store.settle(&pass(lease, at, &rows, Passed::Acked)).await.expect("settle");
        at = last.row.seq;
    }
}

/// A rewind goes back to the beginning of a bucket, forgets the log above it, marks what is sent again,
/// and ends the lease, so that nothing in flight is settled from the old place.
#[tokio::test]
async fn a_rewind_sends_history_again() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&(0..10_000).map(event).collect::<Vec<_>>());
    drain(&store, &lease, 0).await;
    let log = |connection: &Connection| -> Vec<(i64, i64, i64)> {
        let statement = "select bucket, count, id_sum from outbox_settled order by bucket";
        let mut statement = connection.prepare(statement).unwrap();
        let rows = statement.query_map((), |row| row.try_into()).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let before = log(&fresh.connect());
    assert_eq!(before.len(), 3);
    let play = Play { fresh, store, lease, rows: Vec::new() };
    let nothing = play.ask_of("rewind", &[0], None, Some(10_001));
    let request = play.ask_of("rewind", &[0], None, Some(9_000));
    let other = play.ask("redrive", &[1]);
    let carried = play.carry_out(100).await;
    assert_eq!(play.request(nothing), (0, 1, true), "it is not there yet");
    assert_eq!(carried.surrendered, [play.lease.clone()]);
    assert_eq!((carried.rows, carried.more), (2, false));
    assert_eq!(play.request(request), (1, 0, true));
    assert_eq!(play.request(other), (0, 0, false), "the next owner's");
    assert_eq!(log(&play.fresh.connect()), before[..2], "8,192 and what follows is forgotten");
    let again = play.carry_out(100).await;
    assert_eq!(again.rows, 0, "the lease is gone");
    let Play { fresh, store, lease: old, .. } = play;
    let late = Settlement { lease: old.clone(), parts: Vec::new() };
    assert_eq!(store.settle(&late).await.unwrap_err().kind(), ErrorKind::Fenced);
    let lease = acquire(&store, LONG).await.expect("it is free").lease;
    assert!(lease.token > old.token);
    let loaded = store.load(&lease, &id("a")).await.unwrap();
    assert_eq!((loaded.cursor, loaded.replay_through), (Cursor::number(8_191), 10_000));
    drain(&store, &lease, 8_191).await;
    assert_eq!(log(&fresh.connect()), before, "counted once");
}

/// A rewind below what retention has left is refused, and one to the first event that is left is not.
#[tokio::test]
async fn a_rewind_stays_within_the_history() {
    let play = Play::of(&[("1", None), ("2", None), ("3", None)]).await;
    let begins = "update outbox_meta set value = '2' where key = 'history_start'";
    play.fresh.connect().execute(begins, ()).unwrap();
    let (refused, done) =
        (play.ask_of("rewind", &[0], None, Some(1)), play.ask_of("rewind", &[0], None, Some(2)));
    play.carry_out(100).await;
    assert_eq!((play.request(refused), play.request(done)), ((0, 1, true), (1, 0, true)));
    let cursor =
        "select position * 1000 + replay_through from outbox_cursor where destination = 'a'";
    assert_eq!(play.number(cursor), 1_003);
    assert_eq!(play.number("select count(*) from outbox_settled"), 0);
}

/// R114: nothing is carried out for an owner that lost its lease.
#[tokio::test]
async fn a_late_owner_carries_nothing_out() {
    let play = Play::of(&[("1", dead(true))]).await;
    let request = play.ask("redrive", &[1]);
    let end = "update outbox_lease set expires_at = 0";
    play.fresh.connect().execute(end, ()).unwrap();
    let next = acquire(&play.store, LONG).await.expect("it has expired").lease;
    let carried = play.carry_out(100).await;
    assert_eq!((carried.rows, carried.touched), (0, vec![]));
    assert_eq!(play.request(request), (0, 0, false));
    let play = Play { lease: next, ..play };
    assert_eq!(play.carry_out(100).await.rows, 1);
    assert_eq!(play.states(), "1 retrying");
}

/// R096: a limit cuts what is done at once, and what was done is not done again when the answer was
/// lost.
#[tokio::test]
async fn a_request_is_carried_out_once_and_in_parts() {
    let events: Vec<_> = (0..5).map(|n| (["1", "2", "3", "4", "5"][n], dead(true))).collect();
    let play = Play::of(&events).await;
    let request = play.ask("redrive", &[1, 2, 3, 4, 5]);
    let carried = play.carry_out(2).await;
    assert_eq!((carried.rows, carried.more), (2, true));
    assert_eq!(play.request(request), (2, 0, false));
    let gone = play.rows[0].row;
    play.change(vec![WaitingChange::Dead {
        row: gone,
        attempted: attempted(1, Reason::Rejected),
        holds_key: true,
    }])
    .await;
    assert_eq!(play.carry_out(2).await.rows, 2);
    let last = play.carry_out(2).await;
    assert_eq!((last.rows, last.more), (1, false));
    assert_eq!(play.request(request), (5, 0, true));
    let nothing = play.carry_out(2).await;
    assert_eq!(nothing, CarriedOut { definitions: last.definitions, ..CarriedOut::default() });
    assert_eq!(play.states(), "1 dead, 2 retrying, 3 retrying, 4 retrying, 5 retrying");
}

/// Where nothing is asked no lock is taken: a producer that writes for long does not matter.
#[tokio::test]
async fn nothing_to_carry_out_needs_no_lock() {
    let play = Play::of(&[("1", dead(true))]).await;
    let connection = play.fresh.connect();
    connection.execute_batch("begin immediate").unwrap();
    assert_eq!(play.carry_out(100).await.rows, 0);
    connection.execute_batch("rollback").unwrap();
    play.ask("redrive", &[1]);
    connection.execute_batch("begin immediate").unwrap();
    let request = CarryOutRequest { leases: vec![play.lease.clone()], rows_max: 1 };
    let busy = play.store.carry_out(&request).await.expect_err("the control");
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
}

/// F35: a crash in the middle leaves neither the change nor the mark, and it is done again.
#[tokio::test]
async fn a_change_and_its_mark_are_one_write() {
    let play = Play::of(&[("1", dead(true)), ("2", dead(true))]).await;
    let request = play.ask("redrive", &[1, 2]);
    let connection = play.fresh.connect();
    connection
        .execute_batch(
            "create trigger crash before update on outbox_request_row when new.seq = 2
            begin select raise(abort, 'crash'); end",
        )
        .unwrap();
    let carry_out = CarryOutRequest { leases: vec![play.lease.clone()], rows_max: 100 };
    play.store.carry_out(&carry_out).await.expect_err("it crashes");
    assert_eq!((play.states(), play.request(request)), ("1 dead, 2 dead".into(), (0, 0, false)));
    connection.execute_batch("drop trigger crash").unwrap();
    play.carry_out(100).await;
    assert_eq!(play.states(), "1 retrying, 2 retrying");
}

/// A destination that is removed takes its endpoints along, and what was asked for it is skipped; what
/// was asked for others is not.
#[tokio::test]
async fn a_removed_destination_leaves_no_request_open() {
    let play = Play::of(&[("1", disabled("x")), ("2", dead(true))]).await;
    let request = play.ask("redrive", &[2]);
    let mixed = play.ask("redrive", &[1, 2]);
    let connection = play.fresh.connect();
    connection
        .execute_batch(
            "update outbox_request_row set destination = 'unrouted' where request = 2 and seq = 1;
            insert into outbox_endpoint values ('unrouted', 'x', '', 0);",
        )
        .unwrap();
    let remove = DefinitionChange { remove: vec![id("a")], ..DefinitionChange::default() };
    play.store.apply(&remove).await.unwrap();
    let finished = "select group_concat(done || skipped || (finished_at is not null)) from
        (select * from outbox_request order by id)";
    assert_eq!(play.text(finished), "011,010");
    let left = play.store.destinations().await.unwrap().disabled;
    assert_eq!(left, [(id("unrouted"), "x".into())]);
    play.carry_out(100).await;
    assert_eq!((request, play.request(mixed)), (1, (0, 2, true)));
}

/// A partition that an operator paused is granted to nobody, and nobody is told to wait for it.
#[tokio::test]
async fn a_paused_partition_is_granted_to_nobody() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    let connection = fresh.connect();
    connection.execute("update outbox_lease set paused = 1", ()).unwrap();
    assert_eq!(store.destinations().await.unwrap().paused, [PartitionId(0)]);
    let request = AcquireRequest {
        owner: postrider_core::RelayId::mint(),
        lease_duration: LONG,
        wanted: 1,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: Some(lease.clone()),
    };
    let acquired = store.acquire(&request).await.unwrap();
    assert_eq!((acquired.granted, acquired.held), (vec![], vec![]));
    store.release(&[lease]).await.unwrap();
    assert!(acquire(&store, LONG).await.is_none());
    connection.execute("update outbox_lease set paused = 0", ()).unwrap();
    assert!(acquire(&store, LONG).await.is_some());
}
