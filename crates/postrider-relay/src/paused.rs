//! Paused destinations: nothing of them is read or sent, and health says whether something waits.
//!
//! Keeps INV-8: a destination that an operator paused with a backlog is named as what it is, and does
//! not read as empty.

use std::collections::BTreeMap;

use postrider_core::source::{FetchRequest, Loaded, Page};
use postrider_core::{Cursor, DestinationId, DestinationState, PartitionId, Result, Tick, reach};

use crate::command::Command;
use crate::machine::{Asked, Machine};
use crate::owned::Owned;

/// What is known of a paused destination in a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// When to look again; `None` while that is under way.
    at: Option<Tick>,
    /// Whether there was something behind its cursor.
    backlog: bool,
}

/// The paused destinations of a partition.
pub(crate) type Probes = BTreeMap<DestinationId, Probe>;

impl Machine {
    /// Looks now and then whether a paused destination has a backlog: one row says so.
    pub(crate) fn probe_paused(&mut self, partition: PartitionId) {
        if self.mode.has_target() {
            return;
        }
        let now = self.now;
        let rows = self.definitions.rows.iter();
        let paused = rows.filter(|row| row.state == DestinationState::Paused);
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        let idle = |id: &&DestinationId| !owned.flows.contains_key(*id);
        let paused: Vec<DestinationId> =
            paused.map(|row| &row.definition.id).filter(idle).cloned().collect();
        owned.probes.retain(|id, _| paused.contains(id));
        let mut wanted = Vec::new();
        for id in paused {
            let new = Probe { at: Some(now), backlog: false };
            let probe = owned.probes.entry(id.clone()).or_insert(new);
            if probe.at.is_some_and(|at| at <= now) {
                probe.at = None;
                wanted.push(id);
            }
        }
        let lease = owned.lease.clone();
        for id in wanted {
            let asked = Asked::ProbeLoad(partition, lease.token, id.clone());
            self.command(asked, Command::Load(lease.clone(), id));
        }
    }

    pub(crate) fn probe_loaded(
        &mut self,
        partition: PartitionId,
        token: u64,
        destination: DestinationId,
        result: Result<Loaded>,
    ) {
        let later = self.now + self.settings.due_every;
        let Some(owned) = self.owned_under(partition, token) else { return };
        let Some(probe) = owned.probes.get_mut(&destination) else { return };
        let Ok(loaded) = result else {
            probe.at = Some(later);
            return;
        };
        let request = first_after(owned, &destination, loaded.cursor);
        self.command(Asked::ProbeFetch(partition, token, destination), Command::Fetch(request));
    }

    pub(crate) fn probe_fetched(
        &mut self,
        partition: PartitionId,
        token: u64,
        destination: &DestinationId,
        result: Result<Page>,
    ) {
        let later = self.now + self.settings.due_every;
        let Some(owned) = self.owned_under(partition, token) else { return };
        let Some(probe) = owned.probes.get_mut(destination) else { return };
        probe.at = Some(later);
        if let Ok(page) = result {
            probe.backlog = !page.rows.is_empty();
            reach!(PausedWithBacklog, if probe.backlog);
        }
    }

    /// Paused destinations with a backlog.
    pub(crate) fn paused_with_backlog(&self) -> impl Iterator<Item = &DestinationId> {
        let probes = self.owned.values().flat_map(|owned| &owned.probes);
        probes.filter(|(_, probe)| probe.backlog).map(|(id, _)| id)
    }
}

impl Owned {
    /// When a paused destination is looked at next.
    pub(crate) fn probe_wake_at(&self) -> Option<Tick> {
        self.probes.values().filter_map(|probe| probe.at).min()
    }
}

fn first_after(owned: &Owned, destination: &DestinationId, after: Cursor) -> FetchRequest {
    FetchRequest {
        lease: owned.lease.clone(),
        destinations: vec![destination.clone()],
        after,
        until: None,
        rows_max: 1,
        bytes_max: 1,
    }
}
