//! Again: relays that lost their store in the same moment do not come back to it in the same moments.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::ErrorKind;
use postrider_relay::Target;
use postrider_testkit::fault::{Operation, SourceAction};

use crate::world::{World, event};

/// When a relay with such a seed asks a store that no longer answers one kind of question.
fn moments(seed: u64, operation: Operation, for_so_long: Duration) -> Vec<Duration> {
    let mut world = World::simple();
    world.settings.seed = seed;
    world.start(Target::Forever);
    if operation != Operation::Acquire {
        world.run_for(Duration::from_secs(2));
    }
    let fails = SourceAction::FailBefore(ErrorKind::Unavailable);
    world.source.script(operation).always(Some(fails));
    world.commit((0..3).map(|key| event(key, 0)).collect());
    let (begin, mut asked) = (world.clock.elapsed(), world.source.answered(operation).count());
    let mut moments = Vec::new();
    while world.clock.elapsed() < begin + for_so_long {
        world.settle_down();
        let now = world.source.answered(operation).count();
        if now > asked {
            moments.push(world.clock.elapsed());
        }
        asked = now;
        world.pass(Duration::from_secs(1));
    }
    moments
}

/// INV-8: after an outage a store is not asked by all relays at once; nor by any later than it would be alone.
#[test]
fn relays_do_not_ask_a_store_that_failed_at_the_same_moments() {
    let heartbeat = Duration::from_secs(3);
    for (operation, span, longest) in [
        (Operation::Fetch, Duration::from_secs(20), Duration::from_millis(500)),
        (Operation::Settle, Duration::from_secs(2), heartbeat),
        (Operation::Acquire, Duration::from_secs(30), heartbeat),
        (Operation::Renew, Duration::from_secs(12), heartbeat),
        (Operation::CarryOut, Duration::from_secs(60), heartbeat),
    ] {
        let [one, other] = [1, 2].map(|seed| moments(seed, operation, span));
        assert!(one.len() > 5 && other.len() > 5, "{operation:?}: {one:?} {other:?}");
        // The first failure is the outage itself.
        let [first, second] =
            [&one, &other].map(|asked| asked[1..].iter().collect::<BTreeSet<_>>());
        assert_eq!(first.intersection(&second).count(), 0, "{operation:?}: {one:?} {other:?}");
        for pair in one.windows(2).chain(other.windows(2)) {
            // Time passes by a millisecond at least.
            let most = longest + Duration::from_millis(1);
            assert!(pair[1] - pair[0] <= most, "{operation:?}: {pair:?}");
        }
        assert_eq!(one, moments(1, operation, span), "the same seed gives the same moments");
    }
}
