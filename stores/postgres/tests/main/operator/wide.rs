//! Many partitions, and transactions that commit out of order.

use postrider_core::NewEvent;
use postrider_core::operate::{Operator, Status};

use super::{Act, Play, all, everything, joined, of_type, only, page};

async fn wide(events: u32) -> Option<Play> {
    let play = Play::made(32, &[everything("a"), only("b", "order.*")]).await?;
    let events: Vec<NewEvent> = (0..events)
        .map(|n| of_type(if n % 3 == 0 { "bill.sent" } else { "order.placed" }, n % 50))
        .collect();
    play.commit(&events).await;
    Some(play)
}

/// Newest first is over all partitions, and pages joined are the whole.
#[tokio::test]
async fn lists_go_over_all_partitions() {
    let Some(play) = wide(300).await else { return };
    play.settle_all("a", &[Act::Ack, Act::Dead, Act::Ack]).await;
    let rows = joined(7, async |p| play.store.events(&all(), p).await).await;
    let numbers: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    assert_eq!(numbers, (1..=300).rev().collect::<Vec<_>>());
    let mut filter = all();
    filter.key = Some("order/7".into());
    let rows = joined(2, async |p| play.store.events(&filter, p).await).await;
    let numbers: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    assert_eq!(numbers, [258, 208, 158, 108, 58, 8]);
    filter.key = None;
    filter.status = vec![Status::Dead];
    let dead = joined(9, async |p| play.store.events(&filter, p).await).await;
    let waiting = joined(9, async |p| play.store.waiting(&all(), p).await).await;
    let mut numbers: Vec<u64> = dead.iter().map(|row| row.seq).collect();
    numbers.reverse();
    assert_eq!(numbers, waiting.iter().map(|row| row.seq).collect::<Vec<_>>());
    assert!(dead.len() > 60, "{}", dead.len());
    let seen = play.store.overview().await.unwrap();
    assert_eq!((seen.enqueued, seen.kept, seen.partitions.len()), (300, 300, 32));
    let (a, b) = (&seen.destinations[0], &seen.destinations[1]);
    assert_eq!((a.pending, b.pending, a.waiting.dead), (0, 300, dead.len() as u64));
    assert_eq!(a.settled.count, 300);
    let backlog = play.store.backlog(&b.id, 100).await.unwrap();
    assert_eq!(backlog.iter().map(|group| group.count).sum::<u64>(), 100);
}

/// R118: what commits late stands in its place in the list, and is pending though the cursor passed what
/// came behind it.
#[tokio::test]
async fn what_commits_late_is_pending_behind_the_cursor() {
    let Some(play) = Play::made(2, &[everything("a")]).await else { return };
    let insert = play.fresh.sql(
        "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
        values ('order', '1', 'order.placed', '1')",
    );
    let mut late = play.fresh.connect().await;
    let tx = late.transaction().await.unwrap();
    tx.batch_execute(&insert).await.unwrap();
    play.fresh.run(&insert).await;
    play.fresh.run(&insert).await;
    play.settle_all("a", &[Act::Ack]).await;
    let told = async || {
        let rows = play.store.events(&all(), &page(10, None)).await.unwrap().rows;
        let told = rows.iter().map(|row| (row.seq, row.deliveries[0].status));
        (told.collect::<Vec<_>>(), play.store.overview().await.unwrap().destinations[0].pending)
    };
    let both = [(3, Status::Published), (2, Status::Published)];
    assert_eq!(told().await, (both.to_vec(), 0));
    tx.commit().await.unwrap();
    let all_three = [both[0], both[1], (1, Status::Pending)];
    assert_eq!(told().await, (all_three.to_vec(), 1));
    let groups = play.store.backlog(&crate::support::id("a"), 10).await.unwrap();
    assert_eq!(groups.iter().map(|group| group.count).collect::<Vec<_>>(), [1]);
    play.settle_all("a", &[Act::Ack]).await;
    assert_eq!(told().await.0[2], (1, Status::Published));
}

/// R017: what operators are told agrees with the view that anyone with SQL may read.
#[tokio::test]
async fn lists_agree_with_the_view() {
    let Some(play) = wide(200).await else { return };
    play.settle_all("a", &[Act::Ack, Act::Retry, Act::Ack, Act::Dead]).await;
    play.commit(&[of_type("order.placed", 1), of_type("order.placed", 2)]).await;
    let client = play.fresh.connect().await;
    let view = "select seq, destination, status from {outbox_status}
        where destination = 'a' order by seq desc";
    let rows = client.query(&play.fresh.sql(view), &[]).await.unwrap();
    let listed = play.store.events(&all(), &page(1_000, None)).await.unwrap().rows;
    assert_eq!(rows.len(), listed.len());
    for (row, listed) in rows.iter().zip(&listed) {
        assert_eq!(row.get::<_, i64>(0), listed.seq as i64);
        let told = listed.deliveries[0].status;
        let waits = matches!(told, Status::Retrying | Status::Held);
        let told = if waits { "waiting" } else { told.as_str() };
        assert_eq!(row.get::<_, &str>(2), told, "event {}", listed.seq);
    }
}
