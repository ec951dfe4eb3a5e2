//! Hot keys: of which more comes than their share of the window (INV-5, INV-8).

use std::time::Duration;

use postrider_core::{ErrorKind, Fault, Outcome};
use postrider_relay::Target;
use postrider_testkit::fault::Gate;

use crate::world::{World, event, id};

/// A window with a share of a hundred, and pages of fifty.
fn narrow() -> World {
    let mut world = World::simple();
    world.settings.window.rows_max = 400;
    world.settings.window.page_rows_max = 50;
    world
}

/// What comes to the broker is answered so long after it came, so many times.
fn answer_every(world: &mut World, span: Duration, times: u32) {
    for _ in 0..times {
        let gate = Gate::new();
        world.place("all").broker.hold("order.changed", Some(gate.clone()));
        world.run_for(span);
        gate.open();
    }
    world.place("all").broker.hold("order.changed", None);
}

/// INV-8: a hot key is sent while more than its share of it keeps coming, in order: what enters `waiting` behind what
/// stands there does not hold it back. For as long as that lasted, nothing of it was sent.
#[test]
fn a_hot_key_is_sent_while_more_of_it_comes() {
    let mut world = World::simple();
    world.settings.window.rows_max = 40;
    world.settings.window.page_rows_max = 20;
    world.start(Target::Forever);
    world.settle_down();
    let (mut came, mut sent) = (0, Vec::new());
    for _ in 0..8 {
        for _ in 0..25 {
            world.commit((came..came + 30).map(|n| event(1, n)).collect());
            came += 30;
            // Too slow to be waited for.
            world.clock.advance(Duration::from_millis(101));
            world.round();
        }
        sent.push(world.delivered("all"));
    }
    assert!(!world.store.waiting(&id("all")).is_empty());
    let read = world.healths().remove(0).rows_read;
    assert!(read < came, "all of it was read: {read}");
    assert!(sent.windows(2).all(|two| two[0] < two[1]), "it stood still: {sent:?} of {came}");
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == came as usize);
    world.check("all");
}

/// INV-5: where a hot key is sent fast, the reading waits for it, and nothing is copied to `waiting`; where it is sent
/// slowly, the reading does not wait, and the others arrive long before it.
#[test]
fn the_reading_waits_for_a_hot_key_that_is_sent_fast_and_for_no_other() {
    let hot = || (0..1_000).map(|n| event(0, n)).collect::<Vec<_>>();
    let mut world = narrow();
    world.commit(hot());
    world.start(Target::Forever);
    while world.delivered("all") < 1_000 {
        world.clock.advance(Duration::from_millis(1));
        world.round();
        assert_eq!(world.store.waiting(&id("all")).len(), 0);
    }
    world.check("all");

    let mut world = narrow();
    world.commit(hot());
    world.commit((1..50).map(|key| event(key, 0)).collect());
    world.start(Target::Forever);
    answer_every(&mut world, Duration::from_millis(20), 100);
    let arrived = world.place("all").memory.published();
    let others = arrived.iter().filter(|p| p.event.aggregate_id.as_ref() != "0").count();
    assert_eq!(others, 49, "of {} in two seconds", arrived.len());
    assert!(arrived.len() < 300, "{}", arrived.len());
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 1_049);
    world.check("all");
}

/// INV-5, INV-8: a hot key that begins with poison does not keep a window, whose rest waits behind it: what follows is
/// read, and shows who is to blame.
#[test]
fn a_hot_key_that_begins_with_poison_leaves_the_window() {
    let mut world = narrow();
    let hot: Vec<_> = (0..1_000).map(|n| event(0, n)).collect();
    let fails = Outcome::Retry { fault: Fault::new(ErrorKind::Unavailable, "500"), after: None };
    world.place("all").broker.answer([hot[0].event().id], &fails);
    world.commit(hot);
    world.commit((1..50).map(|key| event(key, 0)).collect());
    world.start(Target::Forever);
    let spent = world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 49);
    assert!(spent < Duration::from_secs(2), "{spent:?}");
}
