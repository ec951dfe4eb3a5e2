//! An operator: redrives, discards, requeues, rewinds, pauses; at bad moments, as people do.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::operate::{Note, RequestId, RowKey, Submission, Verb};
use postrider_core::waiting::WaitingState;
use postrider_core::{DestinationId, DestinationState, EventId, PartitionId, Start};

use crate::app::TYPES;
use crate::dice::Dice;
use crate::shared::Shared;

/// What was asked for, so that it can be seen whether it was done.
pub type Asked = Arc<Mutex<Vec<RequestId>>>;

/// How often the operator looks whether there is something to do; one in a hurry, more often.
const EVERY: Duration = Duration::from_secs(1);
/// Rows of one request.
const ROWS_MAX: usize = 5;

/// Somebody who operates the world.
pub struct Operator {
    shared: Arc<Shared>,
    dice: Dice,
    asked: Asked,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}

impl Operator {
    /// Starts an operator, who works until the weather is calm.
    pub fn start(shared: &Arc<Shared>, asked: &Asked) {
        let (dice, asked) = (shared.dice("operator"), Arc::clone(asked));
        let operator = Operator { shared: Arc::clone(shared), dice, asked };
        shared.kernel.spawn(shared.process(), operator.work());
    }

    async fn work(mut self) {
        let every = if self.dice.chance(4_000) { EVERY / 8 } else { EVERY };
        // Some watch the dead letters, and send each again as soon as they see it.
        let rates = &self.shared.scenario.rates;
        let watchful = self.dice.chance(2_500) || rates.settle_lost > 0;
        loop {
            self.shared.kernel.sleep(if watchful { EVERY / 8 } else { every }).await;
            if self.shared.weather.is_calm() {
                return;
            }
            if watchful && self.dice.chance(5_000) {
                self.redrive_one();
            } else if self.dice.chance(self.shared.scenario.operator) {
                self.act();
            }
        }
    }

    /// Sends one dead letter again, if there is one.
    fn redrive_one(&mut self) {
        for place in self.shared.all_places() {
            let Ok(id) = DestinationId::new(place.name()) else { continue };
            let mut dead = self.shared.store.waiting(&id).into_iter();
            if let Some(row) = dead.find(|row| row.state == WaitingState::Dead) {
                self.ask_for(&id, vec![row.row.seq], Verb::Redrive);
            }
        }
    }

    fn act(&mut self) {
        let places: Vec<_> = self.shared.all_places();
        let place = Arc::clone(self.dice.pick(&places));
        let Ok(id) = DestinationId::new(place.name()) else { return };
        match self.dice.below(12) {
            0..=2 => {
                let rows = self.pick(&id, |state| state == WaitingState::Dead);
                self.ask_for(&id, rows, Verb::Redrive);
            }
            3 => {
                let let_go = |state| matches!(state, WaitingState::Dead | WaitingState::Disabled);
                let rows = self.pick(&id, let_go);
                self.ask_for(&id, rows, Verb::Discard);
            }
            4 => {
                let committed = self.shared.store.committed_rows();
                let count = committed.len() as u64;
                let rows = (0..self.dice.below(ROWS_MAX as u64 + 1).min(count))
                    .map(|_| self.dice.pick(&committed).row.seq)
                    .collect();
                self.ask_for(&id, rows, Verb::Requeue);
            }
            5 if self.dice.chance(3_000) => {
                self.submit(Verb::Rewind { destination: id, to: Start::Beginning });
            }
            5..=6 => {
                let topic = (*self.dice.pick(&TYPES)).to_owned();
                self.submit(Verb::Enable { destination: id, topic });
            }
            7..=9 => {
                let partitions = u64::from(self.shared.scenario.partitions);
                let partition = u16::try_from(self.dice.below(partitions)).unwrap_or_default();
                let paused = self.dice.chance(4_000);
                self.tell(|| format!("partition {partition} paused: {paused}"));
                _ = self.shared.store.set_partition(PartitionId(partition), paused);
            }
            _ => {
                let paused = self.dice.chance(4_000);
                let to = if paused { DestinationState::Paused } else { DestinationState::Active };
                self.tell(|| format!("{id} is {to:?}"));
                _ = self.shared.store.set_state(&id, to);
            }
        }
    }

    /// Some of what waits in a state.
    fn pick(&mut self, id: &DestinationId, of: impl Fn(WaitingState) -> bool) -> Vec<u64> {
        let waiting = self.shared.store.waiting(id).into_iter();
        let rows: Vec<u64> = waiting.filter(|row| of(row.state)).map(|row| row.row.seq).collect();
        let chance = u32::try_from(self.dice.below(10_000)).unwrap_or_default();
        rows.into_iter().filter(|_| self.dice.chance(chance)).take(ROWS_MAX).collect()
    }

    fn ask_for(&self, id: &DestinationId, seqs: Vec<u64>, verb: impl Fn(Vec<RowKey>) -> Verb) {
        if seqs.is_empty() {
            return;
        }
        let key = |seq| RowKey { destination: id.clone(), seq };
        self.submit(verb(seqs.into_iter().map(key).collect()));
    }

    fn submit(&self, verb: Verb) {
        self.tell(|| format!("asks: {verb:?}"));
        if let Some(request) = submit(&self.shared, &self.asked, verb.clone()) {
            self.note(request, &verb);
        }
    }

    /// What was asked for excuses what follows from it, and nothing else.
    fn note(&self, request: RequestId, verb: &Verb) {
        let shared = &self.shared;
        if let Verb::Redrive(rows) = verb {
            self.events(rows, |place, id| shared.note_redriven(request, place, id));
        }
        match verb {
            Verb::Redrive(rows) | Verb::Requeue(rows) => {
                self.events(rows, |place, id| shared.note_asked_again(place, id));
            }
            Verb::Discard(rows) => self.events(rows, |place, id| shared.note_discarded(place, id)),
            Verb::Rewind { destination, .. } => {
                shared.note_rewound(destination.as_str());
                shared.note_leases_void();
            }
            _ => {}
        }
    }

    fn events(&self, rows: &[RowKey], note: impl Fn(&str, EventId)) {
        let committed = self.shared.store.committed_rows();
        for key in rows {
            let row = committed.iter().find(|row| row.row.seq == key.seq);
            row.inspect(|row| note(key.destination.as_str(), row.row.id));
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        self.shared.weather.count("operator_acted");
        self.shared.story.tell("operator", what);
    }
}

/// Lets the dead letters of each destination go, unless that was asked for already.
pub fn let_go(shared: &Arc<Shared>, asked: &Asked) {
    if open_request(shared, asked).is_some() {
        return;
    }
    let dice = shared.dice("janitor");
    let operator = Operator { shared: Arc::clone(shared), dice, asked: Arc::clone(asked) };
    for place in shared.all_places() {
        let Ok(id) = DestinationId::new(place.name()) else { continue };
        let waiting = shared.store.waiting(&id).into_iter();
        let dead = waiting.filter(|row| row.state == WaitingState::Dead);
        operator.ask_for(&id, dead.map(|row| row.row.seq).collect(), Verb::Discard);
    }
}

/// Writes a request down, if the server takes it.
pub fn submit(shared: &Shared, asked: &Asked, verb: Verb) -> Option<RequestId> {
    let note = Note::new("operator", "a simulation").ok()?;
    let id = shared.store.submit(&Submission { verb, note }).ok()?;
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    Some(id)
}

/// The first request that is not carried out yet.
pub fn open_request(shared: &Shared, asked: &Asked) -> Option<RequestId> {
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    let open = |id: &&RequestId| shared.store.request(**id).is_ok_and(|state| !state.finished);
    asked.iter().find(open).copied()
}
