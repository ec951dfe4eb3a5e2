//! A scenario: everything that a run is made of, drawn from a seed, written down as data.
//!
//! The seed draws the scenario, and the scenario is the run: it can be stored as a fixture, looked
//! at, and made smaller by leaving something out, with all other draws as they were.

use postrider_testkit::memory::Kind;
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::incident::Incident;

/// One world and what happens in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What every actor's stream of chance comes from.
    pub seed: u64,
    /// How the store finds what is new.
    pub store: Kind,
    /// How many partitions.
    pub partitions: u16,
    /// Relays that run at once.
    pub relays: u8,
    /// Destinations of their own, besides `unrouted`.
    pub destinations: u8,
    /// Applications that write.
    pub apps: u8,
    /// Transactions of each application while there are faults.
    pub transactions: u16,
    /// Ordering keys that they share.
    pub keys: u8,
    /// Consumers of each destination; half of them leased, half transactional.
    pub consumers: u8,
    /// How often an operator does something, in ten thousand per second.
    pub operator: u32,
    /// Rows of a relay's window.
    pub window_rows: u32,
    /// How far index and stream of a keyed store lag at most, in milliseconds.
    #[serde(default)]
    pub lag_ms: u64,
    /// So many events may be behind before enqueueing is refused; 0 for no such bound.
    pub outbox_max: u32,
    /// How far apart the store wants saves of cursors, in milliseconds; 0 where it does not mind.
    #[serde(default)]
    pub saves_apart_ms: u64,
    /// So many events of a destination may wait; 0 for the usual bound, which no world meets.
    #[serde(default)]
    pub waiting_max: u32,
    /// Whether retention deletes what is old.
    pub retention: bool,
    /// How long there are faults, in milliseconds of the world's time.
    pub span_ms: u64,
    /// How often calls fail, and how.
    pub rates: Rates,
    /// Faults that strike at a time.
    pub incidents: Vec<Incident>,
}

/// How often something goes wrong, each in ten thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    /// A statement is lost before the server has seen it.
    pub line_lost_there: u32,
    /// The answer of a statement is lost.
    pub line_lost_back: u32,
    /// A settlement or its answer is lost, more often than other statements.
    pub settle_lost: u32,
    /// A statement is slow, up to seconds.
    pub line_slow: u32,
    /// A batch is lost before the broker has seen it.
    pub broker_lost_there: u32,
    /// The broker stores a batch, and the answer is lost.
    pub broker_lost_back: u32,
    /// The broker stores something twice.
    pub broker_twice: u32,
    /// The broker refuses one event of a batch, for now.
    pub broker_refuses_one: u32,
    /// The broker asks for patience.
    pub broker_throttles: u32,
    /// The broker answers late, also after the deadline.
    pub broker_slow: u32,
    /// An event is poison: refused for good, or fails by name each time.
    pub poison: u32,
    /// A transaction is rolled back.
    pub roll_back: u32,
    /// A transaction stays open for long.
    pub linger: u32,
    /// An event is of a format that only newer programs know.
    pub newer_format: u32,
    /// A handler fails, panics, or is slow.
    pub handler_fails: u32,
}

impl Rates {
    /// Each rate, by name, to be set.
    pub fn each(&mut self) -> [(&'static str, &mut u32); 15] {
        [
            ("settle_lost", &mut self.settle_lost),
            ("line_lost_there", &mut self.line_lost_there),
            ("line_lost_back", &mut self.line_lost_back),
            ("line_slow", &mut self.line_slow),
            ("broker_lost_there", &mut self.broker_lost_there),
            ("broker_lost_back", &mut self.broker_lost_back),
            ("broker_twice", &mut self.broker_twice),
            ("broker_refuses_one", &mut self.broker_refuses_one),
            ("broker_throttles", &mut self.broker_throttles),
            ("broker_slow", &mut self.broker_slow),
            ("poison", &mut self.poison),
            ("roll_back", &mut self.roll_back),
            ("linger", &mut self.linger),
            ("newer_format", &mut self.newer_format),
            ("handler_fails", &mut self.handler_fails),
        ]
    }
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Scenario {
        let mut dice = Dice::new(seed, "scenario");
        let store = *dice.pick(&Kind::ALL);
        // A few last for hours, with little to do: what is down for long is down as a whole.
        let hours = dice.chance(100);
        let seconds = if hours { dice.between(3_700, 9_000) } else { dice.between(10, 100) };
        let span_ms = seconds * 1_000;
        let mut rates = Rates::default();
        // The first is drawn last, with what belongs to it.
        for (_, rate) in rates.each().into_iter().skip(1) {
            // Most runs have some of the faults, few have all: each alone must be found too.
            if dice.chance(4_500) {
                *rate = u32::try_from(dice.between(20, 800)).unwrap_or_default();
            }
        }
        let relays = u8::try_from(dice.between(1, if hours { 2 } else { 5 })).unwrap_or(1);
        let many = store.many_destinations();
        let mut scenario = Scenario {
            seed,
            store,
            partitions: if store.many_partitions() && !hours { 1 << dice.below(4) } else { 1 },
            relays,
            destinations: if many { u8::try_from(dice.between(1, 3)).unwrap_or(1) } else { 1 },
            apps: u8::try_from(dice.between(1, 4)).unwrap_or(1),
            transactions: u16::try_from(dice.between(4, 24)).unwrap_or(4),
            keys: u8::try_from(dice.between(1, 12)).unwrap_or(1),
            consumers: u8::try_from(dice.below(3)).unwrap_or(0),
            operator: if dice.chance(5_000) { 2_000 } else { 0 },
            window_rows: u32::try_from(dice.between(8, 120)).unwrap_or(64),
            lag_ms: dice.between(0, 3_000),
            outbox_max: if dice.chance(1_000) {
                u32::try_from(dice.between(3, 12)).unwrap_or(3)
            } else {
                0
            },
            saves_apart_ms: saves_apart_ms(seed),
            waiting_max: 0,
            retention: dice.chance(3_000),
            span_ms,
            rates,
            incidents: Vec::new(),
        };
        scenario.incidents = Incident::draw(&mut dice, &scenario);
        // A dead letter, an answer that is lost about it, and somebody who acts meanwhile: each of them is
        // rare, and what only all of them show would hardly ever be seen.
        if dice.chance(1_000) {
            scenario.rates.poison = scenario.rates.poison.max(1_000);
            scenario.rates.settle_lost = 2_000;
            scenario.operator = scenario.operator.max(2_000);
        }
        // So is what several relays remember of a server that crashes again and again, and of nothing else.
        if store == Kind::Snapshot && scenario.relays > 1 && dice.chance(1_500) {
            scenario.incidents = Incident::crashes(&mut dice, &scenario);
            scenario.rates.linger = scenario.rates.linger.max(1_000);
        }
        if dice.chance(800) {
            scenario.fill(&mut dice);
        }
        scenario
    }

    /// A world in which much waits, few events may, and nobody lets any of them go before the faults are over.
    fn fill(&mut self, dice: &mut Dice) {
        self.waiting_max = u32::try_from(dice.between(3, 12)).unwrap_or(3);
        (self.window_rows, self.operator, self.outbox_max) = (8, 0, 0);
        (self.partitions, self.relays) = (self.partitions.min(2), self.relays.min(2));
        (self.keys, self.transactions) = (self.keys.min(4), self.transactions.max(16));
        self.rates.poison = self.rates.poison.max(2_000);
        // Somebody who watches the dead letters would send them again.
        self.rates.settle_lost = 0;
    }
}

/// In a third of the worlds. From a stream of its own, so that the other draws are as they were before.
fn saves_apart_ms(seed: u64) -> u64 {
    let mut dice = Dice::new(seed, "saves");
    if dice.chance(3_333) { dice.between(2_000, 60_000) } else { 0 }
}
