//! Erasure beside what a relay does at the same moment: settlements, endpoints that are disabled, and events
//! that it has in its hands.

use postrider_core::operate::{Erasure, Operator};
use postrider_core::source::{DueRequest, FetchedRow, OutboxSource};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart, WaitingChange,
};
use postrider_core::{NewEvent, Payload};

use crate::operator::{Act, Play, everything, note};
use crate::support::{LONG, id};

/// What stands in the payload of the person who wants to be forgotten.
const SECRET: &str = "Anna-Long-Lane-5";

fn about_anna(n: u32) -> NewEvent {
    NewEvent::new("customer", "7", format!("customer.moved.{n}"))
        .json(&vec![SECRET; 20])
        .expect("JSON")
}

async fn occurs(play: &Play) -> i64 {
    let of = format!(
        "select (select count(*) from {{outbox}} o where o::text like '%{SECRET}%')
            + (select count(*) from {{outbox_waiting}} w where w::text like '%{SECRET}%')"
    );
    play.fresh.number(&of).await
}

async fn due(play: &Play) -> Vec<Payload> {
    let request = DueRequest {
        lease: play.lease.clone(),
        destination: id("a"),
        except: Vec::new(),
        rows_max: 1_000,
        bytes_max: 1 << 30,
    };
    let rows = play.store.due(&request).await.expect("due").rows;
    rows.iter().map(|row| row.event.payload.clone()).collect()
}

/// A settlement of `a` that changes what waits, in an order of its own.
fn changes(play: &Play, rows: &[FetchedRow], of: fn(&FetchedRow) -> WaitingChange) -> Settlement {
    let mut part = SettlementPart::new(id("a"));
    part.changes = rows.iter().rev().map(of).collect();
    Settlement { lease: play.lease.clone(), parts: vec![part] }
}

fn failed_again(row: &FetchedRow) -> WaitingChange {
    let attempted =
        Attempted { attempts: 4, reason: Reason::Failed, detail: "503 Busy".to_owned() };
    WaitingChange::Retry { row: row.row, delay: LONG, attempted }
}

/// A relay settles events of a key in one order while an operator erases them in another: neither is
/// refused, and none waits in a circle with the other.
#[tokio::test]
async fn erasure_and_settlement_do_not_wait_in_a_circle() {
    let Some(play) = Play::begin(&[everything("a"), everything("b")]).await else { return };
    for round in 0..12 {
        let events: Vec<_> = (0..200).map(|n| about_anna(round * 1_000 + n)).collect();
        play.commit(&events).await;
        let rows = play.fetch("a").await;
        play.settle_all("a", &[Act::Retry]).await;
        play.settle_all("b", &[Act::Dead]).await;
        let again = changes(&play, &rows, failed_again);
        let gone = changes(&play, &rows, |row| WaitingChange::Delivered(row.row));
        let relay = async {
            for _ in 0..5 {
                play.store.settle(&again).await?;
            }
            play.store.settle(&gone).await
        };
        let note = note();
        let operators = async {
            for _ in 0..4 {
                play.store.erase("customer/7", &note).await?;
            }
            Ok::<_, postrider_core::Error>(())
        };
        let (settled, erased) = futures_util::future::join(relay, operators).await;
        settled.expect("the relay is not refused");
        erased.expect("the operator is not refused");
        assert_eq!(occurs(&play).await, 0, "round {round}");
    }
}

/// Events that wait for a disabled endpoint leave when they are erased: they need it no more. What follows of
/// their key waits for it as before.
#[tokio::test]
async fn what_waits_for_a_disabled_endpoint_is_erased_and_leaves() {
    let Some(mut play) = Play::begin(&[everything("a")]).await else { return };
    play.commit(&[about_anna(1), about_anna(2)]).await;
    play.settle_all("a", &[Act::Disable]).await;
    let states = "select count(*) from {outbox_waiting} where state = 'disabled'";
    assert!(play.fresh.number(states).await > 0, "the control: it waits for the endpoint");
    let erased = play.store.erase("customer/7", &note()).await.expect("erase");
    assert_eq!(erased, Erasure { outbox: 2, waiting: 2, ..Erasure::default() });
    play.commit(&[about_anna(3)]).await;
    play.settle_all("a", &[Act::Disable]).await;
    play.carry_out().await;
    let payloads = due(&play).await;
    assert_eq!(payloads[..2], [Payload::Erased, Payload::Erased]);
    let rows = play.fetch("unrouted").await;
    let gone = changes(&play, &rows[..2], |row| WaitingChange::Erased(row.row));
    play.store.settle(&gone).await.expect("settle");
    let counts = play.store.counts(&id("a")).await.expect("counts");
    assert_eq!(counts.total(), 1, "the one that was written later waits: {counts:?}");
    assert_eq!(play.fresh.number("select count(*) from {outbox_endpoint}").await, 1);
}

/// An event that a relay has in its hands when it is erased: if it is refused then, its copy has nothing in
/// it, and a redrive delivers nothing.
#[tokio::test]
async fn what_was_in_flight_waits_erased() {
    let Some(mut play) = Play::begin(&[everything("a")]).await else { return };
    play.commit(&[about_anna(1), about_anna(2)]).await;
    let rows = play.fetch("a").await;
    let from = play.store.load(&play.lease, &id("a")).await.expect("load").cursor;
    assert_ne!(rows[0].event.as_ref().expect("an event").payload, Payload::Erased);
    play.store.erase("customer/7", &note()).await.expect("erase");
    let mut part = SettlementPart::new(id("a"));
    part.cursor = Some((from, rows[1].cursor.clone()));
    part.passed = vec![(rows[0].row, Passed::Acked), (rows[1].row, Passed::Waiting)];
    part.waiting.push(NewWaiting {
        row: rows[1].row,
        key_hash: rows[1].key_hash,
        event: rows[1].event.as_ref().ok().cloned(),
        placement: Placement::Dead {
            attempted: Attempted {
                attempts: 9,
                reason: Reason::GaveUp,
                detail: "410 Gone".to_owned(),
            },
            holds_key: true,
        },
    });
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.expect("settle");
    assert_eq!(occurs(&play).await, 0);
    play.store.erase("customer/7", &note()).await.expect("once more, for what entered since");
    play.carry_out().await;
    assert_eq!(due(&play).await, [Payload::Erased]);
    assert_eq!(
        play.store.recount(&id("a")).await.expect("recount").differences,
        [],
        "the sums are of ids alone"
    );
}
