//! A broker, handlers, and time as the machine sees them, driven by a seed; and the checker.
//!
//! The broker keeps no order of any kind: what is due comes in random order, so that every order
//! that is seen is the machine's own work.

mod check;
pub(crate) mod controls;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Verdict;
use postrider_core::subscription::{Receipt, SubscriptionCapabilities};
use postrider_core::{
    Delivery, Error, ErrorKind, Event, EventId, Fault, Jitter, Result, RetryPolicy, Tick,
};
use postrider_inbox::command::{Answer, Command, DeliveryNo, Input};
use postrider_inbox::{ConsumerOptions, Machine};

pub(crate) const VISIBILITY: Duration = Duration::from_secs(20);

pub(crate) fn options() -> ConsumerOptions {
    ConsumerOptions {
        in_flight_max: 4,
        prefetch_max: 8,
        receive_max: 6,
        lane_max: 3,
        pause_max: Duration::from_secs(2),
        handler_time_max: Duration::from_secs(15),
        retry: RetryPolicy {
            attempts_max: 4,
            delay_max: Duration::from_secs(5),
            ..RetryPolicy::default()
        },
        ..ConsumerOptions::default()
    }
}

/// What stands between the world and a decision: the machine, or something worse.
pub(crate) trait Engine {
    fn step(&mut self, now: Tick, input: Input) -> Vec<Command>;
    fn is_stopped(&self) -> bool;
}

impl Engine for Machine {
    fn step(&mut self, now: Tick, input: Input) -> Vec<Command> {
        Machine::step(self, now, input)
    }
    fn is_stopped(&self) -> bool {
        Machine::is_stopped(self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Ready(Tick),
    Out(Tick),
    Done,
}

#[derive(Debug)]
struct Message {
    key: u64,
    event: Result<Arc<Event>, Fault>,
    late: bool,
    at: At,
    count: u32,
    token: u64,
}

/// What the machine did with one delivery.
#[derive(Debug)]
struct Track {
    message: usize,
    token: u64,
    in_work: bool,
    alone: bool,
    settled: bool,
}

pub(crate) struct World<E> {
    pub(crate) engine: E,
    pub(crate) now: Tick,
    pub(crate) log: Vec<Command>,
    /// How often each kind of thing happened, so that no run is empty.
    pub(crate) dispatched: usize,
    pub(crate) returned: usize,
    rng: Jitter,
    messages: Vec<Message>,
    tracks: BTreeMap<DeliveryNo, Track>,
    /// Deliveries in the order in which the machine numbers them.
    arrivals: u64,
    receive: Option<usize>,
    pending: Vec<Command>,
    wake: Option<Tick>,
    /// First sight of each key's messages.
    seen: BTreeMap<u64, Vec<usize>>,
    over: BTreeSet<usize>,
    /// Keys with a message that stayed away longer than it is remembered.
    unordered: BTreeSet<u64>,
    stopping: bool,
}

impl<E: Engine> World<E> {
    pub(crate) fn new(engine: E, seed: u64, messages: usize, keys: u64) -> World<E> {
        let mut rng = Jitter::seeded(seed);
        let messages = (0..messages).map(|index| message(index, keys, &mut rng)).collect();
        World {
            engine,
            now: Tick(1),
            log: Vec::new(),
            dispatched: 0,
            returned: 0,
            rng,
            messages,
            tracks: BTreeMap::new(),
            arrivals: 0,
            receive: None,
            pending: Vec::new(),
            wake: None,
            seen: BTreeMap::new(),
            over: BTreeSet::new(),
            unordered: BTreeSet::new(),
            stopping: false,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.rng.bits() % bound.max(1) as u64) as usize
    }

    pub(crate) fn input(&mut self, input: Input) -> Result<(), String> {
        self.stopping |= matches!(input, Input::Drain { .. } | Input::Abort);
        for command in self.engine.step(self.now, input) {
            self.log.push(command.clone());
            self.check(command)?;
        }
        Ok(())
    }

    /// One random thing happens.
    pub(crate) fn act(&mut self) -> Result<(), String> {
        match self.below(10) {
            0 | 1 => {
                let span = Duration::from_millis(self.below(1_500) as u64);
                self.pass(span)
            }
            2..=4 => self.deliver(),
            5 => {
                let fault = Error::new(ErrorKind::Unavailable, "receive");
                match (self.below(8), self.receive.take()) {
                    (0, Some(_)) => self.input(Input::ReceiveFailed(fault)),
                    (_, receive) => {
                        self.receive = receive;
                        self.input(Input::Woke)
                    }
                }
            }
            _ => self.answer(true),
        }
    }

    /// Time passes, and nothing else goes wrong until everything is done, or until it stopped.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        for _ in 0..20_000 {
            while !self.pending.is_empty() {
                self.answer(false)?;
            }
            self.deliver()?;
            let open = self.messages.iter().any(|message| message.at != At::Done);
            if self.engine.is_stopped() || (!open && self.pending.is_empty()) {
                return Ok(());
            }
            if self.pending.is_empty() {
                self.pass(Duration::from_millis(50))?;
            }
        }
        let open = self.messages.iter().position(|message| message.at != At::Done);
        Err(format!("no progress of message {open:?}, wakes {:?}", self.wake))
    }

    /// Every delivery that came in was settled.
    pub(crate) fn all_settled(&self) -> Result<(), String> {
        match self.tracks.iter().find(|(_, track)| !track.settled) {
            Some(left) => Err(format!("not settled: {left:?}")),
            None => Ok(()),
        }
    }

    pub(crate) fn pass(&mut self, span: Duration) -> Result<(), String> {
        self.now = self.now + span;
        for message in &mut self.messages {
            match message.at {
                At::Out(until) if until <= self.now => message.at = At::Ready(until),
                // Later than the machine remembers.
                At::Ready(at) if message.token > 0 && at + VISIBILITY <= self.now => {
                    self.unordered.insert(message.key);
                }
                _ => {}
            }
        }
        match self.wake {
            Some(wake) if wake <= self.now => {
                self.wake = None;
                self.input(Input::Woke)
            }
            _ => Ok(()),
        }
    }

    fn deliver(&mut self) -> Result<(), String> {
        let Some(max) = self.receive else {
            return Ok(());
        };
        let now = self.now;
        let due = |message: &Message| matches!(message.at, At::Ready(at) if at <= now);
        let mut due: Vec<usize> =
            (0..self.messages.len()).filter(|index| due(&self.messages[*index])).collect();
        let mut deliveries = Vec::new();
        while deliveries.len() < max && !due.is_empty() {
            let pick = self.below(due.len());
            deliveries.push(self.take(due.swap_remove(pick)));
        }
        if deliveries.is_empty() {
            return Ok(());
        }
        self.receive = None;
        self.input(Input::Received(deliveries))
    }

    fn take(&mut self, index: usize) -> Delivery {
        let message = &mut self.messages[index];
        message.at = At::Out(self.now + VISIBILITY);
        message.count += 1;
        message.token += 1;
        let receipt = Receipt { message: index as u64, token: message.token };
        let mut delivery = Delivery::new(message.event.clone(), Arc::from("orders"), receipt);
        delivery.count = message.count;
        delivery.marks.late = message.late;
        let (message_token, in_work, alone, settled) = (message.token, false, false, false);
        let track = Track { message: index, token: message_token, in_work, alone, settled };
        if !message.late {
            let seen = self.seen.entry(message.key).or_default();
            if !seen.contains(&index) {
                seen.push(index);
            }
        }
        self.tracks.insert(DeliveryNo(self.arrivals), track);
        self.arrivals += 1;
        delivery
    }

    /// Somebody answers one question; badly, if it may be.
    fn answer(&mut self, badly: bool) -> Result<(), String> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pick = self.below(self.pending.len());
        match self.pending.swap_remove(pick) {
            Command::Dispatch { no, .. } => {
                let answer = if badly { self.bad_answer() } else { Answer::Verdict(Verdict::Done) };
                if let Some(track) = self.tracks.get_mut(&no) {
                    track.in_work = false;
                }
                self.input(Input::Answered(no, answer))
            }
            Command::Extend { no, by, .. } => {
                if badly && self.below(6) == 0 {
                    // The visibility is lost: the message comes again, elsewhere or here.
                    let message = self.tracks[&no].message;
                    if matches!(self.messages[message].at, At::Out(_)) {
                        self.messages[message].at = At::Ready(self.now);
                        self.messages[message].token += 1;
                    }
                }
                let until = At::Out(self.now + by);
                let result = self.settle(no, until, true);
                self.input(Input::Extended(no, result))
            }
            settle => {
                let Some(no) = settle.settles() else {
                    return Ok(());
                };
                let at = match settle {
                    Command::Nack { delay, .. } => At::Ready(self.now + delay),
                    _ => At::Done,
                };
                let counted = !matches!(settle, Command::Nack { counted: false, .. });
                let result = self.settle(no, at, counted);
                self.input(Input::Settled(no, result))
            }
        }
    }

    fn bad_answer(&mut self) -> Answer {
        let fault = || Fault::new(ErrorKind::Unavailable, "no");
        Answer::Verdict(match self.below(18) {
            0..=7 => Verdict::Done,
            8 => Verdict::Duplicate,
            9 => Verdict::Busy { retry_in: Duration::from_millis(self.below(3_000) as u64) },
            10 | 11 => Verdict::Retry { after: None, fault: fault(), tries: None },
            12 => Verdict::Reject(fault()),
            13 => return Answer::Failed(Error::new(ErrorKind::Unavailable, "claim")),
            14 => return Answer::Failed(Error::new(ErrorKind::Fenced, "complete")),
            15 | 16 => Verdict::Alone,
            _ => return Answer::Panicked("boom".to_owned()),
        })
    }

    /// The broker's side of a settlement or an extension: a stale receipt is refused.
    fn settle(&mut self, no: DeliveryNo, at: At, counted: bool) -> Result<()> {
        let track = &self.tracks[&no];
        let message = &mut self.messages[track.message];
        if message.token != track.token || !matches!(message.at, At::Out(_)) {
            return Err(Error::new(ErrorKind::Fenced, "settle"));
        }
        message.at = at;
        message.count -= u32::from(!counted);
        Ok(())
    }
}

fn message(index: usize, keys: u64, rng: &mut Jitter) -> Message {
    let key = rng.bits() % keys;
    let id = EventId::from_u128(index as u128 + 1);
    let mut event = Event::new(id, "order", &key.to_string(), "order.placed");
    let unknown = rng.bits().is_multiple_of(40);
    event.source = Arc::from(if unknown { "" } else { "/shop" });
    let broken = rng.bits().is_multiple_of(40);
    Message {
        key,
        event: if broken {
            Err(Fault::new(ErrorKind::Invalid, "not an event"))
        } else {
            Ok(Arc::new(event))
        },
        late: rng.bits().is_multiple_of(20),
        at: At::Ready(Tick(0)),
        count: 0,
        token: 0,
    }
}

pub(crate) fn machine(seed: u64) -> Machine {
    let mut capabilities = SubscriptionCapabilities::least(VISIBILITY);
    capabilities.counts_deliveries = true;
    Machine::new(options(), capabilities, seed)
}
