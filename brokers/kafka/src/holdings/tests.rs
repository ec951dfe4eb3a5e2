//! Turns and limits of what a consumer holds.

use futures_util::FutureExt as _;
use postrider_core::{Event, EventId, Marks, Payload};

use super::*;
use crate::stuck::Places;

fn place(partition: i32) -> Place {
    (Arc::from("orders"), partition)
}

/// A record of a key of its own.
fn record(offset: i64, bytes: usize) -> Record {
    let id = EventId::from_u128(offset.unsigned_abs().into());
    let mut event = Event::new(id, "order", &offset.to_string(), "order.placed");
    event.payload = Payload::bytes(vec![0; bytes]);
    Record {
        offset,
        event: Ok(Arc::new(event)),
        marks: Marks::default(),
        key: None,
        value: None,
        is_cut: false,
        headers: None,
    }
}

fn holdings(partitions: i32, change: impl FnOnce(&mut SubscriptionSettings)) -> Holdings {
    let mut settings = SubscriptionSettings::new("orders", "billing");
    change(&mut settings);
    let holdings = Holdings::after(&settings, None);
    let places = (0..partitions).map(|it| (place(it), Aside::default())).collect();
    holdings.take_over(places, &Places::default());
    holdings
}

/// INV-5: a long backlog of one partition keeps no other waiting.
#[tokio::test]
async fn each_partition_has_its_turn() {
    let holdings = holdings(3, |_| {});
    for offset in 0..100 {
        holdings.push(&place(0), record(offset, 10));
    }
    holdings.push(&place(1), record(0, 10));
    holdings.push(&place(2), record(0, 10));
    let mut partitions = Vec::new();
    for _ in 0..4 {
        let deliveries = holdings.receive(10).await.unwrap();
        assert_eq!(deliveries.len(), 10);
        let of = |it: &Delivery| it.origin.as_ref().unwrap().partition.unwrap();
        partitions.push(deliveries.iter().map(of).collect::<Vec<_>>());
        // Its reader is faster than whoever acts on it.
        for delivery in &deliveries {
            holdings.settle(delivery.receipt).unwrap();
        }
    }
    assert_eq!(partitions[0], [0; 10]);
    assert_eq!(partitions[1][..3], [1, 2, 0]);
}

/// INV-6: large records fill a partition by their bytes, each its part of what may wait; and one record always may.
#[test]
fn large_records_fill_a_partition_by_their_bytes() {
    let holdings = holdings(2, |settings| settings.unsettled_bytes_max = 1_000_000);
    let read = |partition, offset| holdings.push(&place(partition), record(offset, 200_000));
    assert!(!read(0, 0) && !read(0, 1) && !holdings.push(&place(1), record(0, 10)));
    assert!(read(0, 2), "its half");
    assert_eq!(holdings.flow(), (vec![place(0)], vec![]));
    assert!(!read(0, 3), "what was under way when it was paused");
    assert_eq!(holdings.flow(), (vec![], vec![]));
    // The other partition's one is among them.
    for _ in 0..4 {
        let delivery = Inner::hand_out(
            &mut holdings.lock(),
            &Arc::from("billing"),
            Duration::from_secs(30),
            1,
        );
        holdings.settle(delivery[0].receipt).unwrap();
    }
    assert_eq!(holdings.flow(), (vec![], vec![place(0)]));
    let alone = self::holdings(1, |settings| settings.unsettled_bytes_max = 65_536);
    assert!(alone.push(&place(0), record(0, 200_000)));
}

/// What is settled, and what is read once more from further back, is not counted any longer.
#[test]
fn what_is_settled_frees_its_bytes() {
    let mut window = Window::behind(Aside::default());
    for offset in 0..4 {
        window.push(record(offset, 1_000));
    }
    let full = window.bytes();
    assert!(full > 4_000);
    window.push(record(2, 1_000));
    assert_eq!((window.len(), window.bytes()), (3, full / 4 * 3));
    let mut out = Vec::new();
    let mut token = 0;
    let draw = || {
        token += 1;
        token
    };
    window.hand_out(Instant::now(), Duration::from_secs(30), 3, draw, &mut out);
    for (token, out) in &out {
        assert!(window.settle(out.record.offset, *token, Instant::now()));
    }
    assert_eq!((window.len(), window.bytes()), (0, 0));
}

/// Where no server could be reached, who receives is told when they answer again, also where nothing comes; and not where
/// they were never away.
#[tokio::test]
async fn servers_that_are_back_are_told_without_a_record() {
    let holdings = holdings(1, |_| {});
    let told = || holdings.receive(1).now_or_never().map(|told| told.map(|none| none.len()));
    holdings.is_up();
    assert!(told().is_none(), "nothing is to be told");
    holdings.is_down();
    holdings.complain(Error::new(ErrorKind::Unavailable, "consume"));
    assert!(matches!(told(), Some(Err(_))));
    assert!(told().is_none(), "they are away");
    holdings.is_up();
    assert!(matches!(told(), Some(Ok(0))));
    assert!(told().is_none(), "it is told once");
}
