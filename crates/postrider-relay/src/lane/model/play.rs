//! The play: a machine, a memory store, and a broker whose answers are drawn.
//!
//! What only keeps the machine going (leases, definitions) is answered at once. Pages, batches,
//! settlements, and questions for what is due are answered when a call says so, and as it says.

use std::collections::BTreeSet;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use postrider_core::{
    BrokerCapabilities, Clock, Destination, DestinationId, Error, ErrorKind, Fault, NewEvent,
    OutboxSource, Outcome, Outgoing, RelayId, Result, RetryPolicy, Route, Tick, WindowLimits,
};
use postrider_testkit::memory::{MemoryClock, MemoryStore};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::ledger::Ledger;
use crate::{Answer, Command, Input, Machine, Settings, Target, Ticket};

type Checked = std::result::Result<(), TestCaseError>;

/// Attempts that count before an event is dead.
const ATTEMPTS_MAX: u32 = 3;

/// What happens next.
#[derive(Clone, Debug)]
pub(super) enum Call {
    /// An event of a key is committed, of one of two types, with so many bytes.
    Commit { key: u8, kind: u8, size: u16 },
    /// Something under way is answered.
    Answer { which: u8, how: How },
    /// A batch that was given up is acknowledged after all.
    Late { which: u8 },
    /// Time passes, in milliseconds.
    Pass { span: u16 },
}

/// How a call is answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// All is well.
    Well,
    /// Event by event: two bits each.
    Mixed(u32),
    /// It did not get there.
    Refused,
    /// It did, and the answer was lost.
    Lost,
}

pub(super) fn call() -> impl Strategy<Value = Call> {
    let how = prop_oneof![
        6 => Just(How::Well),
        4 => any::<u32>().prop_map(How::Mixed),
        1 => Just(How::Refused),
        1 => Just(How::Lost),
    ];
    prop_oneof![
        6 => (0u8..3, 0u8..2, 0u16..400)
            .prop_map(|(key, kind, size)| Call::Commit { key, kind, size }),
        8 => (any::<u8>(), how).prop_map(|(which, how)| Call::Answer { which, how }),
        1 => any::<u8>().prop_map(|which| Call::Late { which }),
        3 => (1u16..1_500).prop_map(|span| Call::Pass { span }),
    ]
}

/// A machine, or what pretends to be one.
pub(super) trait Engine {
    fn step(&mut self, now: Tick, input: Input);
    fn commands(&mut self) -> Vec<(Ticket, Command)>;
}

impl Engine for Machine {
    fn step(&mut self, now: Tick, input: Input) {
        Machine::step(self, now, input);
    }

    fn commands(&mut self) -> Vec<(Ticket, Command)> {
        self.take_commands().collect()
    }
}

pub(super) struct Play<E> {
    engine: E,
    clock: MemoryClock,
    store: MemoryStore,
    prefix_order: bool,
    under_way: Vec<(Ticket, Command)>,
    /// Batches that were given up, whose answer may still come.
    late: Vec<(Ticket, Vec<Outgoing>)>,
    ledger: Ledger,
}

fn destination() -> Destination {
    let retry = RetryPolicy {
        attempts_max: ATTEMPTS_MAX,
        delay_min: Duration::from_millis(100),
        delay_max: Duration::from_secs(1),
        ..RetryPolicy::default()
    };
    let route = Route::all("{event_type}".parse().unwrap()).retry(retry);
    Destination::new(DestinationId::new("d").unwrap(), "memory", vec![route])
}

/// Small, so that it is full often.
fn settings() -> Settings {
    let window = WindowLimits {
        rows_max: 12,
        bytes_max: 4_096,
        total_bytes_max: 8_192,
        memory_bytes_max: 4_096,
        page_rows_max: 4,
        page_bytes_max: 2_048,
    };
    Settings { window, due_rows_max: 3, ..Settings::default() }
}

/// The result of a future that is ready at once, as the memory store's are.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waits"),
    }
}

fn fault() -> Fault {
    Fault::new(ErrorKind::Unavailable, "503")
}

fn failed<T>(kind: ErrorKind) -> Result<T> {
    Err(Error::new(kind, "model"))
}

impl<E: Engine> Play<E> {
    pub(super) fn new(prefix_order: bool, engine: impl Fn(Machine) -> E) -> Play<E> {
        let clock = MemoryClock::new();
        let store = MemoryStore::new(1, clock.clone());
        now(store.register(&[destination()])).unwrap();
        let mut capabilities = BrokerCapabilities::least();
        capabilities.prefix_order = prefix_order;
        capabilities.batch_rows_max = 4;
        let local = vec![(destination(), capabilities)];
        let machine = Machine::new(RelayId::mint(), 1, None, local, settings(), Target::Forever);
        let ledger = Ledger::new(destination().id, settings().window, ATTEMPTS_MAX);
        let (under_way, late) = (Vec::new(), Vec::new());
        let engine = engine(machine);
        Play { engine, clock, store, prefix_order, under_way, late, ledger }
    }

    pub(super) fn met(&mut self) -> BTreeSet<&'static str> {
        std::mem::take(&mut self.ledger.met)
    }

    pub(super) fn perform(&mut self, call: &Call) -> Checked {
        match *call {
            Call::Commit { key, kind, size } => {
                let body = "x".repeat(usize::from(size));
                let event = NewEvent::new("order", key.to_string(), format!("type-{kind}"));
                let event = event.json(&body).unwrap();
                self.ledger.committed(&event.event().key(), event.event().id);
                self.store.commit(vec![event]).unwrap();
                self.engine.step(self.clock.tick(), Input::Woken);
            }
            Call::Answer { which, how } if !self.under_way.is_empty() => {
                let index = usize::from(which) % self.under_way.len();
                let (ticket, command) = self.under_way.remove(index);
                self.answer(ticket, command, how);
            }
            Call::Late { which } if !self.late.is_empty() => {
                let index = usize::from(which) % self.late.len();
                let (ticket, batch) = self.late.remove(index);
                let outcomes = vec![Outcome::Acked; batch.len()];
                self.ledger.told(&batch, &outcomes);
                self.ledger.met.insert("an answer came late");
                self.engine.step(self.clock.tick(), Input::Late(ticket, outcomes));
            }
            Call::Answer { .. } | Call::Late { .. } => {}
            Call::Pass { span } => self.clock.advance(Duration::from_millis(u64::from(span))),
        }
        self.turn()
    }

    /// Steps until the machine wants nothing more, and notes what it wants.
    fn turn(&mut self) -> Checked {
        loop {
            self.engine.step(self.clock.tick(), Input::Passed);
            let commands = self.engine.commands();
            if commands.is_empty() {
                return Ok(());
            }
            for (ticket, command) in commands {
                match &command {
                    Command::Publish { batch, .. } => {
                        self.ledger.sends(ticket, batch, self.prefix_order)?;
                    }
                    Command::Fetch(request) => self.ledger.fetches(request)?,
                    Command::Settle(settlement) => self.ledger.settles(settlement)?,
                    Command::Due(_) => {}
                    _ => {
                        self.answer(ticket, command, How::Well);
                        continue;
                    }
                }
                self.under_way.push((ticket, command));
            }
        }
    }

    fn answer(&mut self, ticket: Ticket, command: Command, how: How) {
        let store = self.store.clone();
        let answer = match command {
            Command::Define => Answer::Defined(now(store.destinations())),
            Command::Acquire(request) => Answer::Acquired(now(store.acquire(&request))),
            Command::Renew(request) => Answer::Renewed(now(store.renew(&request))),
            Command::Release(leases) => Answer::Released(now(store.release(&leases))),
            Command::Report(relay, told) => Answer::Reported(now(store.report(&relay, &told))),
            Command::Load(lease, id) => Answer::Loaded(now(store.load(&lease, &id))),
            Command::Head(lease) => Answer::Head(now(store.head(&lease))),
            Command::Admit(lease, rows) => Answer::Admitted(now(store.admit(&lease, rows))),
            Command::CarryOut(request) => Answer::CarriedOut(now(store.carry_out(&request))),
            Command::Retire(request) => Answer::Retired(now(store.retire(&request))),
            Command::Count(id) => Answer::Counted(now(store.counts(&id))),
            Command::Fetch(request) => Answer::Fetched(match how {
                How::Refused | How::Lost => failed(ErrorKind::Unavailable),
                How::Well | How::Mixed(_) => {
                    let page = now(store.fetch(&request));
                    self.ledger.fetched(&request, page.as_ref().unwrap());
                    page
                }
            }),
            Command::Due(request) => Answer::Due(match how {
                How::Refused | How::Lost => failed(ErrorKind::Unavailable),
                How::Well | How::Mixed(_) => now(store.due(&request)),
            }),
            Command::Settle(settlement) => Answer::Settled(match how {
                How::Refused => failed(ErrorKind::Unavailable),
                How::Lost => {
                    now(store.settle(&settlement)).unwrap();
                    self.ledger.met.insert("a save was lost");
                    failed(ErrorKind::Timeout)
                }
                How::Well | How::Mixed(_) => {
                    self.ledger.settled();
                    now(store.settle(&settlement))
                }
            }),
            Command::Publish { batch, .. } => {
                self.ledger.answered(ticket);
                Answer::Published(self.publish(ticket, batch, how))
            }
        };
        self.engine.step(self.clock.tick(), Input::Answered(ticket, answer));
    }

    fn publish(&mut self, ticket: Ticket, batch: Vec<Outgoing>, how: How) -> Result<Vec<Outcome>> {
        let outcomes = match how {
            How::Well => vec![Outcome::Acked; batch.len()],
            How::Refused => return failed(ErrorKind::Unavailable),
            How::Lost => {
                self.ledger.met.insert("an answer was lost");
                self.late.push((ticket, batch));
                return failed(ErrorKind::Timeout);
            }
            How::Mixed(bits) => outcomes(&batch, bits),
        };
        self.ledger.told(&batch, &outcomes);
        Ok(outcomes)
    }

    /// Everything is answered well, until nothing is left to do; then all that was committed is with
    /// the broker, dead, or parked behind what is dead.
    pub(super) fn make_peace(&mut self) -> Checked {
        /// More than any play needs: a pause ends within 30 s.
        const ROUNDS_MAX: u32 = 150;
        for _ in 0..ROUNDS_MAX {
            while let Some((ticket, command)) = self.under_way.pop() {
                self.answer(ticket, command, How::Well);
                self.turn()?;
            }
            if self.left_over().is_none() {
                return Ok(());
            }
            self.clock.advance(Duration::from_millis(700));
            self.turn()?;
        }
        self.left_over().map_or(Ok(()), |what| Err(TestCaseError::fail(what)))
    }

    /// What is not where it is to be in the end.
    fn left_over(&self) -> Option<String> {
        let waiting = self.store.waiting(&destination().id);
        let stands = |id| waiting.iter().find(|row| row.row.id == id);
        for (before, id) in self.ledger.all() {
            let Some(row) = stands(id) else {
                if self.ledger.acked.contains(&id) {
                    continue;
                }
                return Some(format!("{id} is neither sent nor waiting"));
            };
            let state = row.state.as_str();
            let behind = before.iter().any(|id| stands(*id).is_some());
            if state != "dead" && !(state == "parked" && behind) {
                return Some(format!("{row:?} is stuck"));
            }
        }
        self.ledger.unsaved_rows()
    }
}

/// Two bits for each event. Where an event is not acknowledged, nothing behind it of its key is.
fn outcomes(batch: &[Outgoing], bits: u32) -> Vec<Outcome> {
    let mut stopped = BTreeSet::new();
    let outcome = |(index, outgoing): (usize, &Outgoing)| {
        let key = outgoing.event.key().to_string();
        if stopped.contains(&key) {
            return Outcome::Skipped;
        }
        let outcome = match (bits >> (2 * (index % 16))) & 3 {
            0 | 1 => return Outcome::Acked,
            2 => Outcome::Retry { fault: fault(), after: None },
            _ if bits.count_ones().is_multiple_of(4) => Outcome::Rejected(fault()),
            _ => Outcome::Retry { fault: fault(), after: Some(Duration::from_millis(300)) },
        };
        stopped.insert(key);
        outcome
    };
    batch.iter().enumerate().map(outcome).collect()
}
