//! Violations: promises that the relay itself sees broken. All of these counts stay 0.
//!
//! Each check compares two things that were counted apart, so that a defect in one shows in the other.
//! What the engine cannot see (a ghost, a second effect) is the checkers' business.

use postrider_core::Invariant;

use crate::machine::Machine;
use crate::notice::Notice;

/// How often each promise was seen broken. Each must stay 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Violations([u64; 8]);

impl Violations {
    /// How often one of them was seen broken.
    pub fn of(&self, invariant: Invariant) -> u64 {
        self.0[invariant as usize - 1]
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each with its count, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Invariant, u64)> + '_ {
        Invariant::ALL.into_iter().zip(self.0)
    }
}

/// A promise that was seen broken, and how.
pub(crate) type Broken = (Invariant, &'static str);

impl Machine {
    /// A promise was seen broken.
    pub(crate) fn violated(&mut self, (invariant, what): Broken) {
        self.stats.violations.0[invariant as usize - 1] += 1;
        self.notices.push(Notice::Violated { invariant, what });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_core::lease::{Acquired, Granted};
    use postrider_core::source::{CarriedOut, Definitions, FetchedRow, Loaded, Page};
    use postrider_core::waiting::{Due, Passed, RowRef};
    use postrider_core::{
        BrokerCapabilities, Cursor, Destination, DestinationId, DestinationRow, DestinationState,
        Event, EventId, KeyHash, Lease, Outcome, PartitionId, RelayId, Route, Tick,
    };

    use super::*;
    use crate::command::{Answer, Command, Input, Ticket};
    use crate::lane::Origin;
    use crate::{Settings, Target};

    const P: PartitionId = PartitionId(0);

    fn id() -> DestinationId {
        DestinationId::new("a").unwrap()
    }

    fn row(seq: u64, key: u64) -> FetchedRow {
        let row = RowRef { seq, id: EventId::from_u128(u128::from(seq)) };
        let event = Event::new(row.id, "order", &key.to_string(), "t");
        let cursor = Cursor::number(seq);
        FetchedRow { row, cursor, key_hash: KeyHash(key), bytes: 1, event: Ok(Arc::new(event)) }
    }

    /// A machine that has read these rows, and what it wants to send.
    struct Bench {
        machine: Machine,
        sent: Vec<(Ticket, usize)>,
    }

    impl Bench {
        fn new(rows: Vec<FetchedRow>) -> Bench {
            let route = Route::all("orders".parse().unwrap());
            let definition = Destination::new(id(), "memory", vec![route]);
            let mut can = BrokerCapabilities::least();
            (can.prefix_order, can.batches_in_flight_max, can.batch_rows_max) = (true, 1, 2);
            let owner = RelayId::mint();
            let settings = Settings::default();
            let local = vec![(definition.clone(), can)];
            let machine = Machine::new(owner.clone(), 1, None, local, settings, Target::Forever);
            let mut bench = Bench { machine, sent: Vec::new() };
            let mut rows = Some(rows);
            bench.step(0, Input::Passed, &definition, &owner, &mut rows);
            bench
        }

        fn step(
            &mut self,
            at: u64,
            input: Input,
            definition: &Destination,
            owner: &RelayId,
            rows: &mut Option<Vec<FetchedRow>>,
        ) {
            self.machine.step(Tick(at), input);
            for (ticket, command) in self.machine.take_commands().collect::<Vec<_>>() {
                let answer = match command {
                    Command::Define => Answer::Defined(Ok(Definitions {
                        version: 1,
                        rows: vec![DestinationRow {
                            definition: definition.clone(),
                            version: 1,
                            state: DestinationState::Active,
                        }],
                        ..Definitions::default()
                    })),
                    Command::Acquire(_) => {
                        let lease = Lease { partition: P, owner: owner.clone(), token: 1 };
                        let granted = vec![Granted { lease, takeovers: 0 }];
                        Answer::Acquired(Ok(Acquired { granted, ..Acquired::default() }))
                    }
                    Command::Load(..) => Answer::Loaded(Ok(Loaded {
                        cursor: Cursor::number(0),
                        waiting_keys: Vec::new(),
                        waiting_ahead: Vec::new(),
                        ranges: None,
                        replay_through: 0,
                    })),
                    Command::Fetch(_) => {
                        let Some(rows) = rows.take() else { continue };
                        let end = rows.last().unwrap().cursor.clone();
                        Answer::Fetched(Ok(Page { rows, end, more: false }))
                    }
                    Command::Due(_) => Answer::Due(Ok(Due::default())),
                    Command::CarryOut(_) => {
                        let done = CarriedOut { definitions: 1, ..CarriedOut::default() };
                        Answer::CarriedOut(Ok(done))
                    }
                    Command::Publish { batch, .. } => {
                        self.sent.push((ticket, batch.len()));
                        continue;
                    }
                    _ => continue,
                };
                self.step(at, Input::Answered(ticket, answer), definition, owner, rows);
            }
        }

        /// Acknowledges the oldest batch.
        fn ack(&mut self) {
            let (ticket, rows) = self.sent.remove(0);
            let answer = Answer::Published(Ok(vec![Outcome::Acked; rows]));
            self.machine.step(Tick(1), Input::Answered(ticket, answer));
        }

        /// Breaks something by hand, and lets time pass until it is to be saved.
        fn breaking(mut self, how: impl FnOnce(&mut crate::flow::Flow)) -> Violations {
            let flow = self.machine.owned.get_mut(&P).unwrap().flow(&id()).unwrap();
            how(flow);
            flow.unsaved_since = Some(Tick(0));
            self.machine.step(Tick(5_000_000_000), Input::Passed);
            self.violations()
        }

        fn violations(&self) -> Violations {
            self.machine.health().violations
        }
    }

    fn ordinal(flow: &crate::flow::Flow, key: u64) -> crate::window::Ordinal {
        match flow.lanes[&KeyHash(key)].head().unwrap().origin {
            Origin::Stream(ordinal) => ordinal,
            Origin::Waiting { .. } => unreachable!("it was read"),
        }
    }

    fn one(invariant: Invariant) -> Violations {
        let mut violations = Violations::default();
        violations.0[invariant as usize - 1] = 1;
        violations
    }

    #[test]
    fn nothing_is_counted_where_nothing_is_broken() {
        let mut bench = Bench::new(vec![row(1, 1), row(2, 2), row(3, 1)]);
        bench.ack();
        assert_eq!(bench.breaking(|_| {}), Violations::default());
    }

    #[test]
    fn a_settlement_past_an_unacknowledged_event_is_counted() {
        let bench = Bench::new(vec![row(1, 1)]);
        let seen = bench.breaking(|flow| {
            flow.acked += 1;
            flow.window.settle(ordinal(flow, 1), Passed::Acked);
        });
        assert_eq!(seen, one(Invariant::NoLoss));
    }

    #[test]
    fn a_record_without_an_acknowledgement_is_counted() {
        let bench = Bench::new(vec![row(1, 1)]);
        let seen = bench.breaking(|flow| {
            flow.window.settle(ordinal(flow, 1), Passed::Acked);
            flow.lanes.clear();
            flow.open = 0;
        });
        assert_eq!(seen, one(Invariant::Truth));
    }

    #[test]
    fn a_row_that_nobody_will_send_is_counted() {
        let mut bench = Bench::new(vec![row(1, 1), row(2, 2), row(3, 3)]);
        bench.ack();
        let seen = bench.breaking(|flow| {
            flow.lanes.remove(&KeyHash(3));
            flow.open -= 1;
        });
        assert_eq!(seen, one(Invariant::Progress));
    }

    #[test]
    fn events_of_a_key_out_of_order_are_counted() {
        let mut bench = Bench::new(vec![row(1, 1), row(2, 2), row(3, 3), row(4, 3)]);
        let flow = bench.machine.owned.get_mut(&P).unwrap().flow(&id()).unwrap();
        let lane = flow.lanes.get_mut(&KeyHash(3)).unwrap();
        let entries: Vec<_> = lane.drain().collect();
        entries.into_iter().rev().for_each(|entry| lane.push(entry));
        bench.ack();
        assert_eq!(bench.violations(), one(Invariant::KeyOrder));
    }

    #[test]
    fn a_page_without_limit_is_counted() {
        let rows = (1..=1_001).map(|n| row(n, n)).collect();
        assert_eq!(Bench::new(rows).violations(), one(Invariant::Bounded));
    }

    #[test]
    fn each_promise_has_its_place() {
        let seen = one(Invariant::Truth);
        assert_eq!(
            (seen.of(Invariant::Truth), seen.of(Invariant::NoLoss), seen.total()),
            (1, 0, 1)
        );
        assert_eq!(seen.iter().filter(|(_, count)| *count > 0).count(), 1);
    }
}
