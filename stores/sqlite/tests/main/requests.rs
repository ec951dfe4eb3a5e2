//! What operators ask for, carried out by the partition's owner, as SQLite's own tables show it.

use postrider_core::source::{CarriedOut, CarryOutRequest, DueRequest, OutboxSource};
use postrider_core::waiting::{Placement, Reason, WaitingChange};
use postrider_core::{ErrorKind, KeyHash, PartitionId};

use crate::play::{Play, attempted, behind, dead, here};
use crate::support::{LONG, acquire, event, id};

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
