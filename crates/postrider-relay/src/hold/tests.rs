//! Types that are counted: that many at once keep their counts.

use postrider_core::EventId;

use super::*;

/// Of so many types one event is refused each, in turn; how many are counted that had been refused before.
fn refuse(holds: &mut Holds, types: std::ops::Range<u32>, now: Tick) -> usize {
    let topic: Arc<str> = Arc::from("orders");
    let known = types.filter(|n| {
        let event = Event::new(EventId::from_u128(1), "order", "1", &format!("type{n}"));
        let Some(hold) = holds.counted(&topic, &event, now) else { return false };
        (hold.refused, hold.at) = (hold.refused + 1, now);
        hold.refused > 1
    });
    known.count()
}

/// INV-1, INV-6: of more types than there is room for, refused in turn, those that are counted stay so; what was not refused for
/// long makes room.
#[test]
fn many_types_do_not_forget_each_other() {
    let mut holds = Holds::default();
    let later = Tick::default() + LATELY;
    assert_eq!(refuse(&mut holds, 0..300, Tick::default()), 0);
    assert_eq!(refuse(&mut holds, 0..300, Tick::default()), TYPES_MAX);
    assert_eq!((refuse(&mut holds, 300..310, later), holds.types()), (0, 10));
    assert_eq!(refuse(&mut holds, 300..310, later), 10);
}
