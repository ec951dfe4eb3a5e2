//! Health is progress: empty or moving is healthy; otherwise health names who holds it (INV-8).

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use postrider_core::{Code, DestinationId, PartitionId, RelayId, Tick};

use crate::drain::Ending;
use crate::machine::Machine;
use crate::owned::Owned;
use crate::trouble::{Troubles, causes};
use crate::violation::Violations;

/// Endpoints of one destination that are named, of those that are disabled and of those that fail: a screen of them says
/// enough.
pub(crate) const NAMED_MAX: usize = 100;

/// Counters of one relay, since it started.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) delivered: u64,
    pub(crate) failures: u64,
    pub(crate) endpoint_failures: u64,
    pub(crate) dead: u64,
    pub(crate) rows_read: u64,
    pub(crate) fetches: u64,
    pub(crate) batches: u64,
    pub(crate) settlements: u64,
    pub(crate) leases_taken: u64,
    pub(crate) leases_lost: u64,
    pub(crate) fenced: u64,
    /// Rows of requests that were carried out.
    pub(crate) carried: u64,
    pub(crate) retired: u64,
    pub(crate) tallies: BTreeMap<DestinationId, Tally>,
    pub(crate) violations: Violations,
    /// When something was last delivered, given up, or saved.
    pub(crate) progressed_at: Tick,
    /// When it was last looked which destinations have nothing to deliver.
    pub(crate) looked_at: Tick,
    /// When it was last seen that no destination stood.
    pub(crate) calm_at: Tick,
    /// What the store said last, where it concerns no partition.
    pub(crate) trouble: Troubles,
    /// What held it when it gave up, before it let its leases go.
    pub(crate) at_end: Vec<Blocker>,
    /// How a one-shot run ends, once its leases are let go.
    pub(crate) once: Option<Ending>,
}

/// How a relay does, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// In a word.
    pub state: State,
    /// Who or what holds it, or some destination while others move: each with what to look at.
    pub blockers: Vec<Blocker>,
    /// Destinations whose events do not move, though those of others may.
    pub standing: Vec<DestinationId>,
    /// Partitions owned.
    pub partitions: u16,
    /// Rows read and not saved.
    pub window_rows: u64,
    /// Bytes of the same.
    pub window_bytes: u64,
    /// Bytes in memory: of events without an outcome and of those that enter `waiting`, and what remains of the
    /// others until they are saved. Events that destinations share count for each.
    pub memory_bytes: u64,
    /// Keys with waiting events.
    pub waiting_keys: u64,
    /// So many events of a destination may wait. [`Settings::waiting_max`](crate::Settings).
    pub waiting_max: u64,
    /// Events acknowledged since the start.
    pub delivered: u64,
    /// Attempts that counted against an event.
    pub failures: u64,
    /// Failures of endpoints, which count against no event.
    pub endpoint_failures: u64,
    /// Dead letters made since the start.
    pub dead: u64,
    /// Rows read.
    pub rows_read: u64,
    /// Queries that read them.
    pub fetches: u64,
    /// Batches sent.
    pub batches: u64,
    /// Settlements written or tried.
    pub settlements: u64,
    /// Leases taken.
    pub leases_taken: u64,
    /// Leases lost.
    pub leases_lost: u64,
    /// Writes that a store refused because of a stale token.
    pub fenced: u64,
    /// Rows of operators' requests that were carried out or skipped.
    pub carried: u64,
    /// Old events that were deleted.
    pub retired: u64,
    /// What was counted of each destination, since the start.
    pub destinations: BTreeMap<DestinationId, Tally>,
    /// Promises that the relay saw broken. All of these stay 0.
    pub violations: Violations,
    /// Notices that nobody took in time.
    pub notices_lost: u64,
}

/// What was counted of one destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events acknowledged.
    pub delivered: u64,
    /// Attempts that counted against an event.
    pub failures: u64,
    /// Failures of endpoints, which count against no event.
    pub endpoint_failures: u64,
    /// Dead letters made.
    pub dead: u64,
}

/// A relay's health in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has no partition yet, or is loading.
    Starting,
    /// Others own all partitions: it stands by.
    Standby,
    /// There is nothing to deliver.
    Empty,
    /// Some destination moved within the last while, or has just been given something. Others may stand: beside these one counts
    /// that moved before, or has moved for five seconds, until it has been silent for fifteen.
    Moving,
    /// There is something to deliver, and none of it moves.
    Blocked,
}

/// Who or what holds up deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Blocker {
    /// The store does not answer as it should.
    Store {
        /// What it said.
        message: String,
        /// The page about it.
        code: Option<Code>,
    },
    /// An endpoint does not take anything: for long, or nothing of its destination moves meanwhile.
    Endpoint {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: String,
        /// Failures in a row.
        failures: u32,
    },
    /// A part of an endpoint takes nothing, while others do: a partition without a leader.
    Part {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: String,
        /// What was said of it last.
        detail: String,
    },
    /// An endpoint refuses every event of one type; they wait as held.
    Held {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: String,
        /// Which type.
        event_type: String,
        /// What was answered last.
        detail: String,
    },
    /// Another relay holds a partition.
    Lease {
        /// Which partition.
        partition: PartitionId,
        /// Who.
        owner: RelayId,
    },
    /// An endpoint said that it is gone: its events wait until an operator enables it.
    Disabled {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: String,
    },
    /// As many events of a destination wait as may: nothing new of it is read until some have gone.
    WaitingFull {
        /// Which destination.
        destination: DestinationId,
        /// How many wait, as far as is known.
        waiting: u64,
        /// How many may.
        most: u64,
    },
    /// An operator paused a destination, and there is something to deliver to it.
    Paused {
        /// Which destination.
        destination: DestinationId,
    },
    /// An operator paused a partition: nobody owns it.
    PausedPartition {
        /// Which partition.
        partition: PartitionId,
    },
    /// This relay's definition of a destination is not the store's.
    Definition {
        /// Which destination.
        destination: DestinationId,
    },
    /// The store has a destination that this relay was not given.
    Unnamed {
        /// Which destination.
        destination: DestinationId,
    },
    /// The store has none of this relay's destinations, this one among them: it lost them, or an operator removed
    /// them.
    Absent {
        /// Which destination.
        destination: DestinationId,
    },
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocker::Store { message, code: Some(code) } => write!(f, "store: {message} [{code}]"),
            Blocker::Store { message, code: None } => write!(f, "store: {message}"),
            Blocker::Endpoint { destination, topic, failures } => {
                write!(f, "endpoint {topic} of {destination}: {failures} failures in a row")
            }
            Blocker::Part { destination, topic, detail } => write!(
                f,
                "a part of endpoint {topic} of {destination}, which takes nothing while the rest does: {detail}"
            ),
            Blocker::Held { destination, topic, event_type, detail } => write!(
                f,
                "endpoint {topic} of {destination} refuses every {event_type}, which wait as held: {detail} [{}]",
                Code::TypeHeld
            ),
            Blocker::Lease { partition, owner } => {
                write!(f, "partition {partition} is held by {owner}")
            }
            Blocker::Disabled { destination, topic } => {
                write!(
                    f,
                    "endpoint {topic} of {destination} is disabled [{}]",
                    Code::EndpointDisabled
                )
            }
            Blocker::WaitingFull { destination, waiting, most } => write!(
                f,
                "destination {destination}: {waiting} events wait, of {most} that may, and nothing new is read; \
                 redrive or discard what is dead, or mend what refuses it [{}]",
                Code::WaitingFull
            ),
            Blocker::Paused { destination } => {
                write!(f, "destination {destination} is paused, and has a backlog")
            }
            Blocker::PausedPartition { partition } => {
                write!(f, "partition {partition} is paused")
            }
            Blocker::Definition { destination } => write!(
                f,
                "destination {destination}: this relay's definition is not the store's [{}]",
                Code::DefinitionOutdated
            ),
            Blocker::Unnamed { destination } => write!(
                f,
                "destination {destination} is in the store, and this relay was started without it: its events wait; \
                 start one that has it, or remove it [{}]",
                Code::DefinitionOutdated
            ),
            Blocker::Absent { destination } => write!(
                f,
                "destination {destination} is not in the store, so nothing is sent to it: it was never added \
                 (`postrider destinations apply`), was removed, or another store has taken over that never had it [{}]",
                Code::DefinitionOutdated
            ),
        }
    }
}

impl Stats {
    /// An attempt counted against an event.
    pub(crate) fn count_failure(&mut self, destination: &DestinationId) {
        self.failures += 1;
        self.tally(destination).failures += 1;
    }

    /// A failure that counts against nobody's event.
    pub(crate) fn count_endpoint_failure(&mut self, destination: &DestinationId) {
        self.endpoint_failures += 1;
        self.tally(destination).endpoint_failures += 1;
    }

    /// The counters of a destination.
    pub(crate) fn tally(&mut self, destination: &DestinationId) -> &mut Tally {
        self.tallies.entry(destination.clone()).or_default()
    }
}

impl Blocker {
    /// Whether deliveries stand still because of it though nobody decided so: not who merely comes
    /// first, nor an endpoint or a partition that was taken out of service on purpose.
    pub(crate) fn hinders(&self) -> bool {
        !matches!(
            self,
            Blocker::Lease { .. } | Blocker::Disabled { .. } | Blocker::PausedPartition { .. }
        )
    }
}

impl Machine {
    /// How the relay does now.
    pub fn health(&self) -> Health {
        let standing: Vec<DestinationId> = self.standing().cloned().collect();
        let blockers = self.blockers(&standing);
        let stats = &self.stats;
        let flows = || self.owned.values().flat_map(Owned::ready).map(|(_, flow)| flow);
        Health {
            state: self.state(&blockers, &standing),
            blockers,
            standing,
            partitions: u16::try_from(self.owned.len()).unwrap_or(u16::MAX),
            window_rows: flows().map(|flow| flow.window.len() as u64).sum(),
            window_bytes: flows().map(|flow| flow.window.bytes()).sum(),
            memory_bytes: flows().map(|flow| flow.open_bytes() + flow.window.slot_bytes()).sum(),
            waiting_keys: flows().map(|flow| flow.waiting_keys() as u64).sum(),
            waiting_max: self.settings.waiting_max,
            delivered: stats.delivered,
            failures: stats.failures,
            endpoint_failures: stats.endpoint_failures,
            dead: stats.dead,
            rows_read: stats.rows_read,
            fetches: stats.fetches,
            batches: stats.batches,
            settlements: stats.settlements,
            leases_taken: stats.leases_taken,
            leases_lost: stats.leases_lost,
            fenced: stats.fenced,
            carried: stats.carried,
            retired: stats.retired,
            destinations: stats.tallies.clone(),
            violations: stats.violations,
            notices_lost: self.notices.lost,
        }
    }

    fn blockers(&self, standing: &[DestinationId]) -> Vec<Blocker> {
        let troubles = self.owned.values().flat_map(|owned| owned.trouble.iter());
        let stores = causes(self.stats.trouble.iter().chain(troubles))
            .map(|(message, code)| Blocker::Store { message, code });
        let endpoints = self.failing(standing).map(|(destination, endpoint)| Blocker::Endpoint {
            destination: destination.clone(),
            topic: endpoint.topic.to_string(),
            failures: endpoint.failures(),
        });
        let parts = self.hindered().map(|(destination, endpoint, said)| Blocker::Part {
            destination: destination.clone(),
            topic: endpoint.topic.to_string(),
            detail: said.to_owned(),
        });
        let endpoints = endpoints.chain(parts).chain(self.held_types());
        let share = self.owned.is_empty();
        let leases = self.held_by_others().iter().filter(|_| share).map(|held| Blocker::Lease {
            partition: held.lease.partition,
            owner: held.lease.owner.clone(),
        });
        let definitions = self.of_others().chain(self.absent());
        let disabled = self.outlets.iter().flat_map(|(destination, outlet)| {
            let topics = outlet.disabled.keys().take(NAMED_MAX);
            topics.map(|topic| Blocker::Disabled {
                destination: destination.clone(),
                topic: topic.to_string(),
            })
        });
        let most = self.settings.waiting_max;
        let full = self.full_destinations().map(|(id, waiting)| Blocker::WaitingFull {
            destination: id.clone(),
            waiting,
            most,
        });
        let paused = self.paused_with_backlog();
        let paused = paused.map(|id| Blocker::Paused { destination: id.clone() });
        let partitions = self.definitions.paused.iter();
        let partitions = partitions.map(|id| Blocker::PausedPartition { partition: *id });
        let operator = full.chain(disabled).chain(paused).chain(partitions);
        let last = self.stats.at_end.iter().cloned();
        let all =
            last.chain(stores).chain(endpoints).chain(leases).chain(definitions).chain(operator);
        // Many partitions meet the same obstacle: it is named once.
        let mut named = HashSet::new();
        all.filter(|blocker| named.insert(blocker.clone())).collect()
    }
}
