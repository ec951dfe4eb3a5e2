//! Faults that strike at a time: somebody dies, stands still, or loses what it relied on.

use postrider_testkit::memory::Kind;
use serde::{Deserialize, Serialize};

use crate::app::TYPES;
use crate::dice::Dice;
use crate::scenario::Scenario;

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incident {
    /// When, in milliseconds of the world's time.
    pub at_ms: u64,
    /// What.
    pub what: What,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// A relay dies after so many more of its steps, and another takes its place after a while.
    KillRelay {
        /// Which.
        relay: u8,
        /// After how many more of its steps.
        steps: u32,
        /// When another one starts, in milliseconds.
        again_ms: u64,
    },
    /// A relay is told to stop, as a deployment does, and another takes its place.
    DrainRelay {
        /// Which.
        relay: u8,
        /// When another one starts, in milliseconds.
        again_ms: u64,
    },
    /// A relay stands still while time goes on.
    PauseRelay {
        /// Which.
        relay: u8,
        /// After how many more of its steps.
        steps: u32,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// A relay's network to the store is cut.
    CutRelay {
        /// Which.
        relay: u8,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// A relay's wall clock jumps.
    JumpClock {
        /// Which.
        relay: u8,
        /// By how much, in milliseconds.
        by_ms: i64,
    },
    /// An application dies after so many more of its steps, and starts again.
    KillApp {
        /// Which.
        app: u8,
        /// After how many more of its steps.
        steps: u32,
        /// When it starts again, in milliseconds.
        again_ms: u64,
    },
    /// A consumer dies after so many more of its steps, and starts again.
    KillConsumer {
        /// Which.
        consumer: u8,
        /// After how many more of its steps.
        steps: u32,
        /// When it starts again, in milliseconds.
        again_ms: u64,
    },
    /// A consumer stands still while time goes on.
    PauseConsumer {
        /// Which.
        consumer: u8,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// A consumer's wall clock jumps.
    JumpConsumer {
        /// Which.
        consumer: u8,
        /// By how much, in milliseconds.
        by_ms: i64,
    },
    /// A broker is not reachable.
    BrokerDown {
        /// Of which destination.
        place: u8,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// One endpoint takes nothing.
    TopicDown {
        /// Of which destination.
        place: u8,
        /// Which of the event types' topics.
        topic: u8,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// One endpoint answers each event with a failure of its own.
    TopicSick {
        /// Of which destination.
        place: u8,
        /// Which of the event types' topics.
        topic: u8,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// A part of one endpoint, a third of its keys, takes nothing: a partition without a leader.
    TopicLimps {
        /// Of which destination.
        place: u8,
        /// Which of the event types' topics.
        topic: u8,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// One endpoint refuses each event for good, as where a schema is not registered.
    TopicStrict {
        /// Of which destination.
        place: u8,
        /// Which of the event types' topics.
        topic: u8,
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// One endpoint says that it is gone, until an operator enables it.
    TopicGone {
        /// Of which destination.
        place: u8,
        /// Which of the event types' topics.
        topic: u8,
    },
    /// A broker forgets which events it has seen.
    ForgetDedup {
        /// Of which destination.
        place: u8,
    },
    /// The server of the store crashes: what is under way is lost, open transactions are rolled back.
    CrashServer {
        /// For how long it is away, in milliseconds.
        for_ms: u64,
    },
    /// The server is lost, and a standby that lags behind takes its place.
    FailOver {
        /// How far it lags, in milliseconds.
        lag_ms: u64,
        /// For how long no server answers, in milliseconds.
        for_ms: u64,
    },
    /// The server's disk is full: what grows is refused.
    DiskFull {
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// The server refuses every write.
    ReadOnly {
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// The destinations change, and the relays follow one by one.
    Deploy {
        /// How.
        change: Change,
        /// How long each relay takes, in milliseconds.
        each_ms: u64,
    },
}

/// How destinations change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// One more.
    Add,
    /// The last one goes.
    Remove,
    /// The last one has another name, and the same broker.
    Rename,
    /// One takes some types only.
    Routes,
}

impl Incident {
    /// The incidents of a scenario.
    pub fn draw(dice: &mut Dice, scenario: &Scenario) -> Vec<Incident> {
        let count = dice.below(if scenario.store == Kind::Snapshot { 14 } else { 9 });
        let mut incidents: Vec<Incident> = (0..count)
            .map(|_| Incident {
                at_ms: dice.below(scenario.span_ms),
                what: What::draw(dice, scenario),
            })
            .collect();
        incidents.sort_by_key(|incident| incident.at_ms);
        incidents
    }

    /// Nothing but short crashes of the server, which relays outlive with what they remember.
    pub fn crashes(dice: &mut Dice, scenario: &Scenario) -> Vec<Incident> {
        let mut incidents: Vec<Incident> = (0..12)
            .map(|_| Incident {
                at_ms: dice.below(scenario.span_ms),
                what: What::CrashServer { for_ms: dice.between(20, 1_500) },
            })
            .collect();
        incidents.sort_by_key(|incident| incident.at_ms);
        incidents
    }
}

impl What {
    /// The name under which it is counted.
    pub const fn name(&self) -> &'static str {
        match self {
            What::KillRelay { .. } => "relay_killed",
            What::DrainRelay { .. } => "relay_drained",
            What::PauseRelay { .. } => "relay_paused",
            What::CutRelay { .. } => "relay_cut_off",
            What::JumpClock { .. } => "clock_jumped",
            What::KillApp { .. } => "app_killed",
            What::KillConsumer { .. } => "consumer_killed",
            What::PauseConsumer { .. } => "consumer_paused",
            What::JumpConsumer { .. } => "consumer_clock_jumped",
            What::BrokerDown { .. } => "broker_down",
            What::TopicDown { .. } => "topic_down",
            What::TopicSick { .. } => "topic_sick",
            What::TopicLimps { .. } => "topic_limping",
            What::TopicStrict { .. } => "topic_strict",
            What::TopicGone { .. } => "topic_gone",
            What::ForgetDedup { .. } => "dedup_forgotten",
            What::CrashServer { .. } => "server_crashed",
            What::FailOver { .. } => "server_failed_over",
            What::DiskFull { .. } => "disk_full",
            What::ReadOnly { .. } => "read_only",
            What::Deploy { .. } => "deployed",
        }
    }

    fn draw(dice: &mut Dice, scenario: &Scenario) -> What {
        let one_of = |dice: &mut Dice, of: u8| u8::try_from(dice.below(u64::from(of))).unwrap_or(0);
        let relay = one_of(dice, scenario.relays);
        let place = one_of(dice, scenario.destinations);
        let topic = one_of(dice, u8::try_from(TYPES.len()).unwrap_or(1));
        let long = scenario.span_ms > 3_600_000;
        let for_ms = dice.between(500, 60_000) * if long { 60 } else { 1 };
        let again_ms = dice.between(0, 20_000);
        let by_ms = i64::try_from(dice.below(7_200_000)).unwrap_or(0) - 3_600_000;
        let consumer = one_of(dice, 2 * scenario.consumers.max(1));
        if scenario.store == Kind::Snapshot && dice.chance(4_000) {
            // Where a crash has to be noticed by a token: several, short, with relays that live on.
            return What::CrashServer { for_ms: dice.between(20, 1_500) };
        }
        match dice.below(if scenario.consumers > 0 { 29 } else { 24 }) {
            0..=3 => What::KillRelay { relay, steps: steps(dice), again_ms },
            4 => What::DrainRelay { relay, again_ms },
            5..=7 => What::PauseRelay { relay, steps: steps(dice), for_ms },
            8..=9 => What::CutRelay { relay, for_ms },
            10 => What::JumpClock { relay, by_ms },
            11 => What::KillApp { app: one_of(dice, scenario.apps), steps: steps(dice), again_ms },
            12..=13 => What::BrokerDown { place, for_ms },
            14 => What::TopicDown { place, topic, for_ms },
            // Both by a draw that is made already, so that a seed's other worlds stay what they were.
            15 if for_ms.is_multiple_of(4) => What::TopicStrict { place, topic, for_ms },
            15 if for_ms.is_multiple_of(2) => What::TopicLimps { place, topic, for_ms },
            15 => What::TopicSick { place, topic, for_ms },
            16 => What::TopicGone { place, topic },
            17 => What::ForgetDedup { place },
            // Mostly back before anybody's lease has run out: what was remembered must be noticed as void.
            18..=19 => What::CrashServer { for_ms: for_ms / 30 },
            // What a consumer did for a message that the store then lost is judged by nobody.
            20 if matches!(scenario.store, Kind::Snapshot | Kind::ChangeLog | Kind::RowState)
                && scenario.consumers == 0 =>
            {
                What::FailOver { lag_ms: dice.between(0, 5_000), for_ms: for_ms / 2 }
            }
            20 => What::CrashServer { for_ms: for_ms / 3 },
            21 => What::DiskFull { for_ms },
            22 => What::ReadOnly { for_ms },
            24..=25 => What::KillConsumer { consumer, steps: steps(dice), again_ms },
            26..=27 => What::PauseConsumer { consumer, for_ms },
            28 => What::JumpConsumer { consumer, by_ms },
            _ => {
                let changes = [Change::Add, Change::Remove, Change::Rename, Change::Routes];
                What::Deploy { change: *dice.pick(&changes), each_ms: dice.between(0, 30_000) }
            }
        }
    }
}

fn steps(dice: &mut Dice) -> u32 {
    u32::try_from(dice.between(1, 80)).unwrap_or(1)
}
