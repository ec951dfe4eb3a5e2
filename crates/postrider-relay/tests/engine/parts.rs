//! A part that takes nothing beside others that do: a partition without a leader, one endpoint of several.

use std::time::Duration;

use postrider_core::{ErrorKind, Fault, NewEvent, Outcome};
use postrider_relay::{State, Target};

use crate::world::{World, event, id};

/// What happens every so many seconds, and what the relay is all the while.
const STEADY: [(u64, State); 3] = [(2, State::Moving), (12, State::Moving), (60, State::Blocked)];

/// Follows the relay while a part takes nothing and the rest takes an event now and then.
fn states(world: &mut World, apart: u64, others: fn(u64) -> NewEvent) -> Vec<State> {
    let mut states = Vec::new();
    for second in 0..600 {
        if second % apart == 0 {
            world.commit(vec![others(second)]);
        }
        for _ in 0..10 {
            world.run_for(Duration::from_millis(100));
            if second > 150 {
                states.push(world.healths().remove(0).state);
            }
        }
    }
    states.dedup();
    states
}

/// INV-8: where a part of an endpoint takes nothing, a relay does not go to and fro with each event that the rest takes, and
/// says what the broker says of that part. What it takes again is believed at once.
#[test]
fn a_relay_is_steady_beside_a_part_that_takes_nothing() {
    let said = "these partitions have no leader: 3";
    for (apart, expected) in STEADY {
        let mut world = World::simple();
        let hindered: Vec<NewEvent> = (90..99).map(|key| event(key, 0)).collect();
        let away = Outcome::Hindered(Fault::new(ErrorKind::Timeout, said));
        world.place("all").broker.answer(hindered.iter().map(|it| it.event().id), &away);
        world.start(Target::Forever);
        world.commit(hindered);
        let seen = states(&mut world, apart, |n| event(n % 7, n));
        assert_eq!(seen, [expected], "every {apart} s");
        let health = world.healths().remove(0);
        let named: Vec<String> = health.blockers.iter().map(ToString::to_string).collect();
        assert!(named.len() == 1 && named[0].contains(said), "{named:?}");
        world.run_for(Duration::from_secs(20));
        let health = world.healths().remove(0);
        assert_eq!((health.state, health.standing), (State::Blocked, vec![id("all")]));
        world.place("all").broker.relent();
        let all = usize::try_from(600 / apart).unwrap() + 9;
        world.run_until(Duration::from_secs(400), |world| world.delivered("all") == all);
        let health = world.healths().remove(0);
        assert!(health.state != State::Blocked && health.blockers.is_empty(), "{health:?}");
        world.check("all");
    }
}

/// The same where one endpoint of a destination takes nothing, and another one does.
#[test]
fn a_relay_is_steady_beside_an_endpoint_that_takes_nothing() {
    for (apart, expected) in STEADY {
        let mut world = World::simple();
        world.place("all").broker.set_down("a", true);
        world.start(Target::Forever);
        world.commit(vec![NewEvent::new("a", "1", "a").json(&1).unwrap()]);
        let seen = states(&mut world, apart, |n| NewEvent::new("b", "1", "b").json(&n).unwrap());
        assert_eq!(seen, [expected], "every {apart} s");
        assert!(world.healths()[0].blockers[0].to_string().contains("endpoint a of all"));
        world.place("all").broker.set_down("a", false);
        let all = usize::try_from(600 / apart).unwrap() + 1;
        world.run_until(Duration::from_secs(400), |world| world.delivered("all") == all);
        assert_ne!(world.healths()[0].state, State::Blocked);
    }
}

/// Where all of it takes nothing, that is said as soon as before: nothing moves beside it.
#[test]
fn an_outage_is_told_soon() {
    let mut world = World::simple();
    world.start(Target::Forever);
    for n in 0..60 {
        world.commit(vec![event(n % 7, n)]);
        world.run_for(Duration::from_secs(1));
    }
    world.place("all").broker.set_down("order.changed", true);
    world.commit(vec![event(1, 60)]);
    world.run_for(Duration::from_secs(8));
    assert_eq!(world.healths()[0].state, State::Blocked);
}
