//! Scheduled events: listed by when they are due, and cancelled while they are not.

use postrider_core::operate::{Cancelled, Operator, Status};
use postrider_core::{EventId, OutboxSource, Timestamp};

use super::{Play, all, everything, joined, note, of_type, only, page};
use crate::support::{id, number};

fn due(second: u32) -> Timestamp {
    format!("2990-01-01T00:00:{second:02}Z").parse().expect("a time")
}

#[tokio::test]
async fn scheduled_events_are_listed_next_due_first() {
    let play = Play::begin(&[everything("a"), only("b", "order.*")]).await;
    let seconds = [5u32, 1, 3, 3, 9];
    let events: Vec<_> = seconds
        .iter()
        .map(|second| of_type("order.reminder", *second).deliver_after(due(*second)))
        .collect();
    play.commit(&events);
    play.commit(&[of_type("bill.sent", 7).deliver_after("1960-01-01T00:00:00Z".parse().unwrap())]);
    let rows = joined(2, async |p| play.store.scheduled(&all(), p).await).await;
    let order: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    assert_eq!(order, [6, 2, 3, 4, 1, 5]);
    assert_eq!((rows[1].due, rows[1].key.as_str()), (due(1), "order/1"));
    let mut filter = all();
    filter.destination = Some(id("b"));
    assert_eq!(play.store.scheduled(&filter, &page(10, None)).await.unwrap().rows.len(), 5);
    filter.key = Some("order/3".into());
    filter.status = vec![Status::Scheduled];
    assert_eq!(play.store.scheduled(&filter, &page(10, None)).await.unwrap().rows.len(), 2);
    filter.status = vec![Status::Dead];
    assert_eq!(play.store.scheduled(&filter, &page(10, None)).await.unwrap().rows.len(), 0);
}

/// An event is cancelled, or it is too late; never both, and never neither.
#[tokio::test]
async fn an_event_is_cancelled_before_it_enters_or_not_at_all() {
    let play = Play::begin(&[everything("a")]).await;
    let now: Timestamp = "2001-01-01T00:00:00Z".parse().unwrap();
    let (early, late) = (
        of_type("order.reminder", 1).deliver_after(now),
        of_type("order.reminder", 2).deliver_after(due(1)),
    );
    play.commit(&[early.clone(), late.clone()]);
    play.store.admit(&play.lease, 100).await.unwrap();
    let cancel = async |id: EventId| play.store.cancel(id, &note()).await.unwrap();
    assert_eq!(cancel(early.event().id).await, Cancelled::TooLate);
    assert_eq!(cancel(late.event().id).await, Cancelled::Cancelled);
    assert_eq!(cancel(late.event().id).await, Cancelled::Unknown);
    let connection = play.fresh.connect();
    assert_eq!(number(&connection, "select count(*) from outbox_scheduled"), 0);
    let audit = play.store.audit(&page(10, None)).await.unwrap().rows;
    assert_eq!(audit.len(), 1, "only what changed something is written down");
    assert_eq!((audit[0].what.as_str(), audit[0].who.as_str()), ("outbox cancel", "anna@db1"));
    assert_eq!(audit[0].subject, format!("event {}", late.event().id));
}
