//! The machine: every decision of the relay, as a pure function of what happened and when.
//!
//! Inputs go in with the time, commands come out; there is no clock, no task, and no I/O inside, so
//! the same inputs give the same commands. This file holds the state and the main loop; each verb
//! has a module that adds its part: [`lease`](crate::lease), [`fetch`](crate::fetch),
//! [`publish`](crate::publish), [`settle`](crate::settle), [`due`](crate::due),
//! [`gauge`](crate::gauge), [`drain`](crate::drain).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::source::Definitions;
use postrider_core::{
    BrokerCapabilities, Destination, DestinationId, ErrorKind, Jitter, KeyHash, Lease, PartitionId,
    Presence, RelayId, Tick, reach,
};

use crate::again::Again;
use crate::carry::Carrying;
use crate::command::{Answer, Command, Input, Ticket};
use crate::drain::Mode;
use crate::gauge::Gauge;
use crate::health::{Blocker, Stats};
use crate::late::LateBatch;
use crate::lease::Tenancy;
use crate::notice::{Notice, Notices};
use crate::outlet::Outlet;
use crate::owned::{FlowState, Owned};
use crate::report::Reporting;
use crate::routes::Routes;
use crate::settings::Settings;
use crate::trouble::{Told, Work};

/// The relay's decisions.
///
/// ```
/// use postrider_core::{RelayId, Tick};
/// use postrider_relay::{Command, Input, Machine, Settings, Target};
/// let mut machine = Machine::new(RelayId::mint(), 1, None, Vec::new(), Settings::default(), Target::Forever);
/// machine.step(Tick(0), Input::Passed);
/// let commands: Vec<_> = machine.take_commands().collect();
/// assert!(matches!(commands[..], [(_, Command::Define)]));
/// ```
#[derive(Debug)]
pub struct Machine {
    pub(crate) settings: Settings,
    pub(crate) owner: RelayId,
    pub(crate) partitions: u16,
    pub(crate) presence: Option<Presence>,
    pub(crate) now: Tick,
    pub(crate) jitter: Jitter,
    /// When the store is asked again.
    pub(crate) again: Again,
    pub(crate) mode: Mode,
    /// What this relay can serve: its own definitions, with what their brokers can do.
    pub(crate) local: BTreeMap<DestinationId, (Arc<Destination>, BrokerCapabilities)>,
    pub(crate) definitions: Definitions,
    pub(crate) defining: Defining,
    /// The definitions were read once at least.
    pub(crate) has_defined: bool,
    /// The version that was heard of while the definitions were being read.
    pub(crate) heard: Option<u64>,
    pub(crate) carrying: Carrying,
    pub(crate) routes: Routes,
    pub(crate) outlets: BTreeMap<DestinationId, Outlet>,
    /// Destinations that are wanted now, by the store's definitions and our own.
    pub(crate) wanted: BTreeMap<DestinationId, (Arc<Destination>, BrokerCapabilities)>,
    /// What was told of destinations that are not served.
    pub(crate) unserved: Vec<Blocker>,
    pub(crate) tenancy: Tenancy,
    pub(crate) reporting: Reporting,
    pub(crate) owned: BTreeMap<PartitionId, Owned>,
    /// How many events of each destination wait.
    pub(crate) gauges: BTreeMap<DestinationId, Gauge>,
    pub(crate) stats: Stats,
    pub(crate) notices: Notices,
    pub(crate) told: Told,
    /// Until when what is in step polls fast, because a row was found somewhere.
    pub(crate) busy_until: Tick,
    /// How far apart the store wants saves of cursors; nothing where it does not mind.
    pub(crate) saves_apart: Duration,
    /// A page is being read for a range of some key.
    pub(crate) reading_range: bool,
    /// Old events of some partition are being deleted.
    pub(crate) purging: bool,
    /// Batches whose deadline has passed and whose answer may still come.
    pub(crate) late: BTreeMap<Ticket, LateBatch>,
    asked: BTreeMap<Ticket, Asked>,
    commands: VecDeque<(Ticket, Command)>,
    next_ticket: u64,
}

/// Whether the definitions are read, being read, or to be read again at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defining {
    Wanted(Tick),
    /// With this ticket.
    Asked(u64),
    Known,
}

/// One lane's share of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchItem {
    pub(crate) partition: PartitionId,
    pub(crate) token: u64,
    pub(crate) key: KeyHash,
    pub(crate) entries: u32,
}

/// What was asked, to make sense of the answer.
#[derive(Debug)]
pub(crate) enum Asked {
    Define,
    Acquire { sent: Tick },
    Renew { sent: Tick, leases: Vec<Lease> },
    Release(Vec<Lease>, Tick),
    Report,
    Load(PartitionId, u64, DestinationId),
    Head(PartitionId, u64),
    Fetch(PartitionId, u64, Vec<DestinationId>, u32),
    Publish { destination: DestinationId, endpoint: u32, sent: Tick, items: Vec<BatchItem> },
    Settle(PartitionId, u64),
    Due(PartitionId, u64, DestinationId),
    Admit(PartitionId, u64),
    CarryOut(Vec<Lease>),
    ProbeLoad(PartitionId, u64, DestinationId),
    ProbeFetch(PartitionId, u64, DestinationId),
    Retire(PartitionId, u64),
    Count(DestinationId),
    ReadRange { partition: PartitionId, token: u64, destination: DestinationId, page: u64 },
}

impl Machine {
    /// A machine for a store of `partitions` partitions, which can serve the given destinations.
    pub fn new(
        owner: RelayId,
        partitions: u16,
        presence: Option<Presence>,
        local: Vec<(Destination, BrokerCapabilities)>,
        settings: Settings,
        target: crate::Target,
    ) -> Machine {
        let local = local
            .into_iter()
            .map(|(definition, can)| (definition.id.clone(), (Arc::new(definition), can)))
            .collect();
        Machine {
            jitter: Jitter::seeded(settings.seed),
            again: Again::seeded(settings.seed),
            mode: Mode::new(target),
            tenancy: Tenancy::default(),
            reporting: Reporting::default(),
            gauges: BTreeMap::new(),
            stats: Stats::default(),
            notices: Notices::default(),
            told: Told::default(),
            busy_until: Tick::default(),
            saves_apart: Duration::ZERO,
            reading_range: false,
            purging: false,
            late: BTreeMap::new(),
            settings,
            owner,
            partitions,
            presence,
            now: Tick::default(),
            local,
            definitions: Definitions::default(),
            defining: Defining::Wanted(Tick::default()),
            has_defined: false,
            heard: None,
            carrying: Carrying::default(),
            routes: Routes::default(),
            outlets: BTreeMap::new(),
            wanted: BTreeMap::new(),
            unserved: Vec::new(),
            owned: BTreeMap::new(),
            asked: BTreeMap::new(),
            commands: VecDeque::new(),
            next_ticket: 0,
        }
    }

    /// The main loop's body: what happened, then everything that follows from it.
    pub fn step(&mut self, now: Tick, input: Input) {
        self.hear(now, input);
        self.follow();
    }

    /// The first half of [`step`](Machine::step): what happened, and nothing that follows from it. A store
    /// answers for many partitions at once, and what follows is worked out over all of them: so much that
    /// happened together is heard first, and followed once.
    pub fn hear(&mut self, now: Tick, input: Input) {
        self.now = self.now.max(now);
        self.note_idle(self.now);
        match input {
            Input::Passed => {}
            Input::Woken => self.wake(),
            Input::Nudged => self.nudge(),
            Input::Answered(ticket, answer) => self.answer(ticket, answer),
            Input::Late(ticket, outcomes) => self.settle_late(ticket, &outcomes),
            Input::ProvedDead(lease) => self.tenancy.proved_dead(lease),
            Input::Drain => self.mode.drain(self.now),
        }
    }

    /// The second half: everything that follows from what was heard.
    pub fn follow(&mut self) {
        self.define();
        self.keep_leases();
        self.open_outlets();
        self.sweep_endpoints();
        self.gauge();
        self.tend_flows();
        self.carry_out();
        self.empty_disabled();
        self.publish();
        self.take_back_trials();
        self.settle();
        self.purge();
        self.report();
        self.finish();
        self.gather_notices();
    }

    /// What happened since this was last called, for logs and metrics, oldest first.
    pub fn take_notices(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.notices.take()
    }

    /// Whether there is a notice of each delivery. There is unless this says that nobody wants it.
    pub fn note_deliveries(&mut self, wanted: bool) {
        self.notices.no_deliveries = !wanted;
    }

    /// Takes over what flows and troubles have to say.
    fn gather_notices(&mut self) {
        self.told.hear(self.stats.trouble.changes(), &mut self.notices);
        for owned in self.owned.values_mut() {
            self.told.hear(owned.trouble.changes(), &mut self.notices);
            for state in owned.flows.values_mut() {
                if let FlowState::Ready(flow) = state {
                    self.notices.extend(flow.notices.drain(..));
                }
            }
        }
        let (stats, owned) = (&self.stats, &self.owned);
        let stands = |work, kind| {
            stats.trouble.stands(work, kind)
                || owned.values().any(|owned| owned.trouble.stands(work, kind))
        };
        self.told.look(stands, &mut self.notices);
    }

    /// The commands to perform, oldest first.
    pub fn take_commands(&mut self) -> impl Iterator<Item = (Ticket, Command)> + '_ {
        self.commands.drain(..)
    }

    pub(crate) fn command(&mut self, asked: Asked, command: Command) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.asked.insert(ticket, asked);
        self.commands.push_back((ticket, command));
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        let Some(asked) = self.asked.remove(&ticket) else {
            return;
        };
        match (asked, answer) {
            (Asked::Define, Answer::Defined(result)) => self.defined(result),
            (Asked::Acquire { sent }, Answer::Acquired(result)) => self.acquired(sent, result),
            (Asked::Renew { sent, leases }, Answer::Renewed(result)) => {
                self.renewed(sent, &leases, result);
            }
            (Asked::Release(leases, until), Answer::Released(result)) => {
                self.released(leases, until, result);
            }
            (Asked::Report, Answer::Reported(result)) => self.report_answered(&result),
            (Asked::Load(partition, token, destination), Answer::Loaded(result)) => {
                self.loaded(partition, token, destination, result);
            }
            (Asked::Head(partition, token), Answer::Head(result)) => {
                self.head_known(partition, token, result);
            }
            (Asked::Fetch(partition, token, destinations, rows_max), Answer::Fetched(result)) => {
                self.check_page(rows_max, &result);
                self.fetched(partition, token, &destinations, result);
            }
            (Asked::Publish { destination, endpoint, sent, items }, Answer::Published(result)) => {
                if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout) {
                    self.expect_late(ticket, &destination, endpoint, &items);
                }
                self.published(&destination, endpoint, sent, &items, result);
            }
            (Asked::Settle(partition, token), Answer::Settled(result)) => {
                self.settle_answered(partition, token, result);
            }
            (Asked::Due(partition, token, destination), Answer::Due(result)) => {
                self.due_answered(partition, token, &destination, result);
            }
            (Asked::Admit(partition, token), Answer::Admitted(result)) => {
                self.admitted(partition, token, result);
            }
            (Asked::ProbeLoad(partition, token, destination), Answer::Loaded(result)) => {
                self.probe_loaded(partition, token, destination, result);
            }
            (Asked::ProbeFetch(partition, token, destination), Answer::Fetched(result)) => {
                self.probe_fetched(partition, token, &destination, result);
            }
            (Asked::Retire(partition, token), Answer::Retired(result)) => {
                self.retired(partition, token, result);
            }
            (Asked::CarryOut(leases), Answer::CarriedOut(result)) => {
                self.carried_out(&leases, result);
            }
            (Asked::ReadRange { partition, token, destination, page }, Answer::Fetched(result)) => {
                self.range_read((partition, token), &destination, page, result);
            }
            (Asked::Count(destination), Answer::Counted(result)) => {
                self.waiting_counted(&destination, result);
            }
            (asked, answer) => {
                debug_assert!(false, "{answer:?} is no answer to {asked:?}");
            }
        }
    }

    /// Whether a command is under way that must end before the relay may stop.
    pub(crate) fn is_waiting_for_answers(&self) -> bool {
        self.asked.values().any(|asked| {
            matches!(asked, Asked::Publish { .. } | Asked::Settle(..) | Asked::Release(..))
        })
    }

    /// The partition, if it is still owned under the token.
    pub(crate) fn owned_under(&mut self, partition: PartitionId, token: u64) -> Option<&mut Owned> {
        self.owned.get_mut(&partition).filter(|owned| owned.lease.token == token)
    }

    /// Reads the destinations when they are wanted.
    fn define(&mut self) {
        if let Defining::Wanted(at) = self.defining
            && at <= self.now
        {
            self.defining = Defining::Asked(self.next_ticket);
            self.heard = None;
            self.command(Asked::Define, Command::Define);
        }
    }

    /// The ticket of the next command.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.next_ticket
    }

    fn defined(&mut self, result: postrider_core::Result<Definitions>) {
        let asked = match self.defining {
            Defining::Asked(ticket) => ticket,
            _ => u64::MAX,
        };
        match self.stats.trouble.note(Work::Define, None, result) {
            Some(definitions) => {
                // What was heard of meanwhile is newer than this answer: it is asked for again.
                let stale = self.heard.is_some_and(|heard| heard > definitions.version);
                self.has_defined = true;
                self.defining = match stale {
                    true => Defining::Wanted(self.now),
                    // Without any there is no lease to ask for, and nothing else would tell of them.
                    false if definitions.rows.is_empty() => {
                        Defining::Wanted(self.now + self.settings.heartbeat)
                    }
                    false => Defining::Known,
                };
                reach!(DefinitionsRead);
                reach!(DefinitionsReadStale, if stale);
                let rows = definitions.rows.iter().map(|row| row.definition.clone());
                self.routes = Routes(rows.filter(|row| !row.is_unrouted()).collect());
                self.definitions = definitions;
                self.want_destinations();
                self.learn_disabled(asked);
            }
            None => {
                reach!(DefinitionsNotRead);
                self.defining = Defining::Wanted(self.again_within(self.settings.heartbeat));
            }
        }
    }
}
