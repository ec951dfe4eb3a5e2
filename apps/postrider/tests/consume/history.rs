//! The judge: what was published, what the broker gave up, and what the endpoint did, as a history.

use postrider_core::{EventId, Invariant};
use postrider_history::{History, Standing, Verdict, check};

use crate::endpoint::Endpoint;
use crate::stage::{GROUP, SOURCE, Stage};

/// The endpoint, as a destination: an event is delivered there when it was acted on.
const DESTINATION: &str = "endpoint";

/// Judges a stage at rest.
pub(crate) async fn judge(stage: &Stage, effects: &[EventId]) -> Verdict {
    let mut history = History::new();
    for (id, key) in stage.published() {
        history.commit_as(id, &key, |commit| {
            SOURCE.clone_into(&mut commit.source);
            commit.destinations = Some([DESTINATION.to_owned()].into());
        });
    }
    for id in effects {
        history.deliver(DESTINATION, *id);
        history.effect(SOURCE, *id, GROUP);
    }
    for letter in stage.dead().await {
        history.wait(DESTINATION, letter.event.unwrap().id, Standing::Dead, false);
    }
    check(&history)
}

/// Fails unless every event that was published was acted on once, in its key's order, or is a dead
/// letter.
pub(crate) async fn assert_one_effect_each(stage: &Stage, endpoint: &Endpoint) {
    let verdict = judge(stage, &endpoint.effects()).await;
    assert!(verdict.holds(), "{verdict}");
    for invariant in [Invariant::NoLoss, Invariant::NoGhost, Invariant::OneEffect] {
        assert!(verdict.judged(invariant) > 0, "{invariant} was judged on nothing");
    }
}
