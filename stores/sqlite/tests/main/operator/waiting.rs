//! Lists of waiting events.

use postrider_core::operate::{Filter, Operator, Status};
use postrider_core::waiting::Counts;
use postrider_core::{Glob, OutboxSource};

use super::{Act, Play, all, everything, later, of_type, page};
use crate::support::id;

async fn waiting() -> Play {
    let play = Play::begin(&[everything("a"), everything("b:c")]).await;
    play.commit(&[
        of_type("order.placed", 1),
        of_type("order.paid", 1).tenant("acme"),
        of_type("order.placed", 2),
        of_type("order.placed", 3),
        of_type("order.placed", 4),
    ]);
    play.settle("a", &[Act::Dead, Act::Park, Act::Retry, Act::Disable, Act::Ack]).await;
    play.settle("b:c", &[Act::Ack, Act::Dead]).await;
    play
}

async fn found(play: &Play, change: impl Fn(&mut Filter)) -> Vec<(String, u64)> {
    let mut filter = all();
    change(&mut filter);
    let rows = play.store.waiting(&filter, &page(100, None)).await.expect("a page").rows;
    rows.into_iter().map(|row| (row.destination.to_string(), row.seq)).collect()
}

fn at(destination: &str, numbers: &[u64]) -> Vec<(String, u64)> {
    numbers.iter().map(|seq| (destination.to_owned(), *seq)).collect()
}

#[tokio::test]
async fn waiting_events_are_listed_in_order_with_what_holds_them() {
    let play = waiting().await;
    let rows = play.store.waiting(&all(), &page(100, None)).await.unwrap().rows;
    let told: Vec<_> =
        rows.iter().map(|row| (row.destination.as_str(), row.seq, row.status)).collect();
    assert_eq!(
        told,
        [
            ("a", 1, Status::Dead),
            ("a", 2, Status::Parked),
            ("a", 3, Status::Retrying),
            ("a", 4, Status::Disabled),
            ("b:c", 2, Status::Dead),
        ]
    );
    let dead = &rows[0];
    assert_eq!((dead.key.as_str(), dead.attempts, dead.reason.as_str()), ("order/1", 3, "failed"));
    assert!(dead.holds_key && !dead.late && dead.next_at.is_none() && dead.id.is_some());
    assert!(rows[2].next_at.is_some());
    assert_eq!(rows[3].endpoint.as_deref(), Some("gone"));
}

#[tokio::test]
async fn filters_apply_to_waiting_events() {
    let play = waiting().await;
    assert_eq!(found(&play, |f| f.status = vec![Status::Dead]).await.len(), 2);
    let ours = |f: &mut Filter| f.destination = Some(id("b:c"));
    assert_eq!(found(&play, ours).await, at("b:c", &[2]));
    assert_eq!(found(&play, |f| f.key = Some("order/1".into())).await.len(), 3);
    assert_eq!(found(&play, |f| f.tenant = Some("acme".into())).await.len(), 2);
    let paid = |f: &mut Filter| f.event_type = Some(Glob::new("*.paid"));
    assert_eq!(found(&play, paid).await.len(), 2);
    assert_eq!(found(&play, |f| f.error = Some("410 gONE".into())).await, at("a", &[4]));
    assert_eq!(found(&play, |f| f.error = Some("FAILED".into())).await.len(), 4);
    assert_eq!(found(&play, |f| f.attempts_min = Some(4)).await, []);
    assert_eq!(found(&play, |f| f.since = Some(later())).await, []);
    assert_eq!(found(&play, |f| f.status = vec![Status::Pending]).await, []);
    let nobody = |f: &mut Filter| f.destination = Some(id("nobody"));
    assert_eq!(found(&play, nobody).await, []);
}

/// What is dead at one destination and gone at another is still found by pages that end between
/// them, also when a name has the colon that places are written with.
#[tokio::test]
async fn pages_go_from_destination_to_destination() {
    let play = waiting().await;
    let read = async |p: &postrider_core::operate::PageRequest| play.store.waiting(&all(), p).await;
    let rows = super::joined(1, read).await;
    assert_eq!(rows.len(), 5);
    let beyond = play.store.waiting(&all(), &page(10, Some("zzz:0"))).await.unwrap();
    assert_eq!((beyond.rows.len(), beyond.next), (0, None));
    assert_eq!(play.store.counts(&id("a")).await.unwrap().dead, 1);
}

/// What is held is told apart from what is tried again, by whatever is asked, and with the time at which it is tried.
#[tokio::test]
async fn what_is_held_is_shown_as_that_with_its_time() {
    let play = Play::begin(&[everything("a")]).await;
    let events = [1, 1, 2, 3].map(|order| of_type("order.placed", order));
    play.commit(&events);
    play.settle("a", &[Act::Hold, Act::Park, Act::Hold, Act::Ack]).await;
    assert_eq!(found(&play, |f| f.status = vec![Status::Held]).await, at("a", &[1, 3]));
    assert_eq!(found(&play, |f| f.status = vec![Status::Retrying]).await, []);
    let rows = play.store.waiting(&all(), &page(100, None)).await.unwrap().rows;
    let (held, parked) = (&rows[0], &rows[1]);
    assert_eq!((held.status, held.attempts, held.reason.as_str()), (Status::Held, 3, "held"));
    assert!(held.holds_key && held.next_at.is_some(), "{held:?}");
    assert_eq!((parked.status, parked.next_at), (Status::Parked, None));
    let seen = &play.store.overview().await.unwrap().destinations[0];
    let counts = Counts { held: 2, parked: 1, ..Counts::default() };
    assert_eq!((seen.waiting, seen.retry_next), (counts, held.next_at));
    let errors: Vec<_> =
        seen.errors.iter().map(|e| (e.reason.as_str(), e.detail.as_str(), e.count)).collect();
    assert_eq!(errors, [("held", "401 Unauthorized", 2)]);
    let event = play.store.event(held.id.unwrap()).await.unwrap();
    let told = &event.deliveries[0];
    assert_eq!((told.status, told.next_at), (Status::Held, held.next_at));
}
