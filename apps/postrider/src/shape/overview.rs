//! The state of a store: relays, partitions, destinations, and what holds them up.

use postrider_core::operate::{
    DestinationView, ErrorGroup, Finding, Level, PartitionView, RelayView,
};
use postrider_core::{DestinationState, Hindrance, Timestamp};
use serde::Serialize;

use crate::age;
use crate::table::{Cell, Column, Fit, Tabular, Tone};

/// The answer of `status`.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    /// The store's name, without secrets.
    pub(crate) store: String,
    /// The store's clock.
    pub(crate) now: Timestamp,
    /// `healthy` or `unhealthy`: what the exit code says, 0 or 6.
    pub(crate) verdict: Verdict,
    /// What holds events up, most urgent first.
    pub(crate) held_up_by: Vec<Blocker>,
    /// Every destination, `unrouted` included.
    pub(crate) destinations: Vec<Destination>,
    /// The backlog by route, the largest first, as far as it was counted.
    pub(crate) backlog: Vec<Backlog>,
    /// Relays that are alive.
    pub(crate) relays: Vec<Relay>,
    /// Every partition.
    pub(crate) partitions: Vec<Partition>,
    /// How many events were ever committed, as far as the sequence tells: on PostgreSQL the numbers of transactions
    /// that were rolled back count as well.
    pub(crate) enqueued: u64,
    /// How many are in the outbox now, at most: the same numbers count.
    pub(crate) kept: u64,
    /// When the oldest of them was created.
    pub(crate) oldest_at: Option<Timestamp>,
    /// Events committed per second between two readings; `null` with `--rate 0`.
    pub(crate) enqueued_per_second: Option<f64>,
    /// Scheduled events.
    pub(crate) scheduled: u64,
    /// When the next of them is due.
    pub(crate) scheduled_next_at: Option<Timestamp>,
    /// Requests of operators that are not finished.
    pub(crate) requests: u64,
}

/// Whether events flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// They do, or there are none.
    Healthy,
    /// Some do not.
    Unhealthy,
}

/// Something that holds events up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Blocker {
    /// `copy`, `no_relay`, `no_destination`, `lease`, `definitions`, `destination_paused`, `partition_paused`,
    /// `endpoint_disabled`, `endpoint_down`, `dead_letters`, `waiting_full`, `requests`, or `unknown`.
    pub(crate) kind: &'static str,
    /// Whether it makes the verdict `unhealthy`.
    pub(crate) critical: bool,
    /// Who or what it is, and what it holds up.
    pub(crate) message: String,
    /// What to do.
    pub(crate) advice: String,
}

/// A destination: a row of `destinations ls` and of `status`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Destination {
    /// Its name.
    pub(crate) destination: String,
    /// The kind of broker.
    pub(crate) kind: String,
    /// The version of its definition.
    pub(crate) version: u64,
    /// `active` or `paused`.
    pub(crate) state: DestinationState,
    /// Events that its cursors have not passed, about: the sequence may have gaps, and on PostgreSQL many are reckoned from the first ones of each partition.
    pub(crate) pending: u64,
    /// When the oldest of these was created.
    pub(crate) pending_since: Option<Timestamp>,
    /// Waiting events to be tried again.
    pub(crate) retrying: u64,
    /// Waiting events behind an earlier one of their key.
    pub(crate) parked: u64,
    /// Waiting events whose endpoint refuses all events of their type, to be tried again.
    pub(crate) held: u64,
    /// Waiting events of disabled endpoints.
    pub(crate) disabled: u64,
    /// Dead letters.
    pub(crate) dead: u64,
    /// Keys of which more waits than is counted here: so many ranges stand for the rest.
    pub(crate) ranges: u64,
    /// When the oldest waiting event was created, dead letters left out.
    pub(crate) waiting_since: Option<Timestamp>,
    /// When the oldest dead letter became one.
    pub(crate) dead_since: Option<Timestamp>,
    /// When the next waiting event is tried.
    pub(crate) retry_next_at: Option<Timestamp>,
    /// Events acknowledged by the broker, since the history that is kept.
    pub(crate) acked: u64,
    /// Everything its cursors have passed, since the history that is kept.
    pub(crate) settled: u64,
    /// Events acknowledged per second between two readings; `null` where there was only one.
    pub(crate) acked_per_second: Option<f64>,
    /// When the cursor before the oldest of what is pending was last saved; when any was, where nothing is pending.
    pub(crate) saved_at: Option<Timestamp>,
    /// Endpoints that are disabled, at most 100.
    pub(crate) endpoints_disabled: Vec<String>,
    /// The reasons of its waiting events, most frequent first, at most 10.
    pub(crate) errors: Vec<Reason>,
}

impl From<DestinationView> for Destination {
    fn from(view: DestinationView) -> Destination {
        Destination {
            destination: view.id.to_string(),
            kind: view.kind,
            version: view.version,
            state: view.state,
            pending: view.pending,
            pending_since: view.pending_since,
            retrying: view.waiting.retrying,
            parked: view.waiting.parked,
            held: view.waiting.held,
            disabled: view.waiting.disabled,
            dead: view.waiting.dead,
            ranges: view.ranges,
            waiting_since: view.waiting_since,
            dead_since: view.dead_since,
            retry_next_at: view.retry_next,
            acked: view.settled.acked,
            settled: view.settled.count,
            acked_per_second: None,
            saved_at: view.saved_at,
            endpoints_disabled: view.disabled,
            errors: view.errors.into_iter().map(Reason::from).collect(),
        }
    }
}

impl Destination {
    fn state_cell(&self) -> Cell {
        match self.state {
            DestinationState::Active => Cell::toned("active", Tone::Good),
            DestinationState::Paused => Cell::toned("paused", Tone::Bad),
        }
    }
}

impl Tabular for Destination {
    fn columns() -> &'static [Column] {
        &[
            ("DESTINATION", Fit::Text),
            ("STATE", Fit::Whole),
            ("PENDING", Fit::Number),
            ("RETRYING", Fit::Number),
            ("PARKED", Fit::Number),
            ("DEAD", Fit::Number),
            ("OLDEST", Fit::Extra),
            ("ACKED", Fit::ExtraNumber),
            ("KIND", Fit::Extra),
            ("VERSION", Fit::ExtraNumber),
            ("HELD", Fit::ExtraNumber),
            ("DISABLED", Fit::ExtraNumber),
        ]
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        vec![
            (&*self.destination).into(),
            self.state_cell(),
            self.pending.into(),
            self.retrying.into(),
            self.parked.into(),
            bad_unless_zero(self.dead),
            self.pending_since.map(|time| age::relative(time, now)).as_deref().into(),
            self.acked.into(),
            (&*self.kind).into(),
            self.version.into(),
            self.held.into(),
            self.disabled.into(),
        ]
    }
}

/// A number that should be zero.
pub(crate) fn bad_unless_zero(number: u64) -> Cell {
    let tone = if number > 0 { Tone::Bad } else { Tone::Plain };
    Cell::toned(&crate::terminal::count(number), tone)
}

/// Waiting events with the same reason and answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Reason {
    /// The reason's name.
    pub(crate) reason: String,
    /// What was answered, its first line.
    pub(crate) detail: String,
    /// How many.
    pub(crate) count: u64,
}

impl From<ErrorGroup> for Reason {
    fn from(group: ErrorGroup) -> Reason {
        Reason { reason: group.reason, detail: group.detail, count: group.count }
    }
}

/// A part of the backlog that one route takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Backlog {
    /// At which destination.
    pub(crate) destination: String,
    /// The topic of the route, as its template stands in the definition; `null` where no route takes
    /// the events.
    pub(crate) topic: Option<String>,
    /// How many.
    pub(crate) count: u64,
    /// When the oldest was created.
    pub(crate) oldest_at: Timestamp,
    /// Whether only the oldest part of the backlog was counted.
    pub(crate) at_least: bool,
}

/// A relay that is alive.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Relay {
    /// Its name, random for each process.
    pub(crate) relay: String,
    /// Whether its definitions are the store's.
    pub(crate) current: bool,
    /// How long until it counts as gone.
    pub(crate) expires_in_seconds: f64,
    /// What keeps it from delivering, in its own words.
    pub(crate) hindrances: Vec<String>,
}

impl From<RelayView> for Relay {
    fn from(view: RelayView) -> Relay {
        Relay {
            relay: view.owner.to_string(),
            current: view.current,
            expires_in_seconds: view.expires_in.as_secs_f64(),
            hindrances: view.hindrances.iter().map(words).collect(),
        }
    }
}

/// A hindrance, with whose it is.
pub(crate) fn words(hindrance: &Hindrance) -> String {
    match &hindrance.destination {
        Some(destination) => format!("{destination}: {}", hindrance.words),
        None => format!("store: {}", hindrance.words),
    }
}

/// A partition: a row of `partitions ls`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Partition {
    /// Its number, from 0.
    pub(crate) partition: u16,
    /// An operator paused it.
    pub(crate) paused: bool,
    /// The relay that owns it, while its lease runs.
    pub(crate) owner: Option<String>,
    /// On which host, if it said so.
    pub(crate) host: Option<String>,
    /// How long until the lease ends.
    pub(crate) expires_in_seconds: Option<f64>,
    /// How often in a row it was taken over from owners that died, with nothing settled between.
    pub(crate) takeovers: u32,
}

impl From<PartitionView> for Partition {
    fn from(view: PartitionView) -> Partition {
        Partition {
            partition: view.partition.0,
            paused: view.paused,
            owner: view.owner.map(|owner| owner.to_string()),
            host: view.host,
            expires_in_seconds: view.expires_in.map(|left| left.as_secs_f64()),
            takeovers: view.takeovers,
        }
    }
}

impl Tabular for Partition {
    fn columns() -> &'static [Column] {
        &[
            ("PARTITION", Fit::Number),
            ("STATE", Fit::Whole),
            ("OWNER", Fit::Text),
            ("HOST", Fit::Extra),
            ("LEASE", Fit::ExtraNumber),
            ("TAKEOVERS", Fit::ExtraNumber),
        ]
    }

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        let state = match (self.paused, &self.owner) {
            (true, _) => Cell::toned("paused", Tone::Bad),
            (false, Some(_)) => Cell::toned("owned", Tone::Good),
            (false, None) => Cell::toned("free", Tone::Notable),
        };
        vec![
            self.partition.to_string().into(),
            state,
            self.owner.as_deref().into(),
            self.host.as_deref().into(),
            self.expires_in_seconds.map(|left| format!("{left:.0}s")).as_deref().into(),
            self.takeovers.into(),
        ]
    }
}

/// A finding of `doctor`.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    /// `good`, `warning`, or `critical`.
    pub(crate) level: &'static str,
    /// What was examined.
    pub(crate) subject: String,
    /// What was found.
    pub(crate) message: String,
    /// What to do.
    pub(crate) advice: Option<String>,
    /// The operator code: the page about it.
    pub(crate) code: Option<String>,
}

impl From<Finding> for Found {
    fn from(finding: Finding) -> Found {
        Found {
            level: match finding.level {
                Level::Good => "good",
                Level::Warning => "warning",
                Level::Critical => "critical",
            },
            subject: finding.subject,
            message: finding.message,
            advice: finding.advice,
            code: finding.code.map(|code| code.to_string()),
        }
    }
}
