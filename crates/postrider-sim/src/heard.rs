//! What senders tried at a place, and what they heard: whom the failure of an event may be blamed on.

use std::sync::Arc;

use postrider_core::{EventId, Outcome, Outgoing, RelayId, Result, Tick};

use crate::broker::Place;

impl Place {
    /// Whether an event may be given up: since it was first sent, its topic took something, and it failed by
    /// itself. Otherwise its endpoint is to blame, or a part of that, and not the event.
    pub fn may_give_up(&self, id: EventId, topic: &str) -> bool {
        let state = self.state();
        let poison = state.poison.contains_key(&id);
        let heard = state.heard.get(topic).copied();
        let hindered = state.hindered.get(&id) == Some(&true);
        let passed = || heard.zip(state.tried.get(&id)).is_some_and(|(at, sent)| at >= *sent);
        poison || (!hindered && passed())
    }

    /// Each attempt may fail, also by never being answered.
    pub(crate) fn note_tries(&self, batch: &[Outgoing], sent: Tick) {
        let mut state = self.state();
        for out in batch {
            state.tried.entry(out.event.id).or_insert(sent);
            state.tried_last.insert(out.event.id, sent);
        }
    }

    pub(crate) fn note_told(
        &self,
        owner: &RelayId,
        batch: &[Outgoing],
        result: &Result<Vec<Outcome>>,
    ) {
        let Ok(outcomes) = result else { return };
        let mut state = self.state();
        for (out, _) in batch.iter().zip(outcomes).filter(|(_, o)| **o == Outcome::Acked) {
            state.told.insert((owner.clone(), out.event.id));
        }
    }

    /// How each event of a batch failed, if it did, as its sender hears of it: nothing is no answer.
    pub(crate) fn note_failures(&self, ids: &[EventId], heard: Option<&Result<Vec<Outcome>>>) {
        let mut state = self.state();
        for (index, id) in ids.iter().enumerate() {
            let only_hindered = match heard {
                Some(Ok(outcomes)) => match &outcomes[index] {
                    Outcome::Acked | Outcome::Skipped => continue,
                    outcome => matches!(outcome, Outcome::Hindered(_)),
                },
                Some(Err(_)) | None => false,
            };
            *state.hindered.entry(*id).or_insert(true) &= only_hindered;
        }
    }

    pub(crate) fn note_heard(&self, batch: &[Outgoing], result: &Result<Vec<Outcome>>) {
        let now = self.kernel.now();
        if let Ok(outcomes) = result
            && outcomes.contains(&Outcome::Acked)
            && let Some(out) = batch.first()
        {
            self.state().heard.insert(Arc::clone(&out.topic), now);
        }
    }

    /// When an event was last sent, whatever became of it.
    pub fn tried_last(&self, id: EventId) -> Option<Tick> {
        self.state().tried_last.get(&id).copied()
    }

    /// Whether a relay heard that an event was taken.
    pub fn has_told(&self, owner: &RelayId, id: EventId) -> bool {
        self.state().told.contains(&(owner.clone(), id))
    }
}
