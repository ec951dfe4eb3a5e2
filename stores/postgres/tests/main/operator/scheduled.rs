//! Scheduled events: listed by when they are due.

use postrider_core::Timestamp;
use postrider_core::operate::{Operator, Status};

use super::{Play, all, everything, joined, of_type, only, page};
use crate::support::id;

fn due(second: u32) -> Timestamp {
    format!("2990-01-01T00:00:{second:02}Z").parse().expect("a time")
}

#[tokio::test]
async fn scheduled_events_are_listed_next_due_first() {
    let Some(play) = Play::begin(&[everything("a"), only("b", "order.*")]).await else { return };
    let seconds = [5u32, 1, 3, 3, 9];
    let events: Vec<_> = seconds
        .iter()
        .map(|second| of_type("order.reminder", *second).deliver_after(due(*second)))
        .collect();
    play.commit(&events).await;
    play.commit(&[of_type("bill.sent", 7).deliver_after("1960-01-01T00:00:00Z".parse().unwrap())])
        .await;
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
