//! Destinations: rows with versions, and one cursor per partition each.

use postrider_core::source::{DefinitionChange, Definitions};
use postrider_core::{
    Destination, DestinationId, DestinationRow, DestinationState, Error, ErrorKind, PartitionId,
    Result, Start,
};

use super::MemoryStore;
use super::state::State;

impl MemoryStore {
    /// Lets a destination's events flow, or pauses them.
    ///
    /// # Errors
    /// `NotFound` if there is no such destination.
    pub fn set_state(&self, destination: &DestinationId, to: DestinationState) -> Result<()> {
        let mut state = self.state();
        let Some(row) = state.destinations.get_mut(destination) else {
            return Err(not_found(destination));
        };
        row.state = to;
        state.definitions += 1;
        Ok(())
    }

    /// Lets a partition be owned, or not.
    ///
    /// # Errors
    /// `NotFound` if there is no such partition.
    pub fn set_partition(&self, partition: PartitionId, paused: bool) -> Result<()> {
        let mut state = self.state();
        if partition.0 >= self.shared.partitions {
            return Err(
                Error::new(ErrorKind::NotFound, "find partition").context("partition", partition.0)
            );
        }
        match paused {
            true => _ = state.paused.insert(partition.0),
            false => _ = state.paused.remove(&partition.0),
        }
        state.definitions += 1;
        Ok(())
    }
}

pub(super) fn not_found(destination: &DestinationId) -> Error {
    Error::new(ErrorKind::NotFound, "find destination")
        .message("the store has no such destination")
        .context("destination", destination)
}

impl State {
    pub(super) fn register(&mut self, definitions: &[Destination]) {
        if !self.destinations.is_empty() {
            return;
        }
        self.definitions += 1;
        self.add(Destination::unrouted(), Start::Beginning);
        for definition in definitions {
            self.add(definition.clone(), Start::Beginning);
        }
    }

    pub(super) fn apply(&mut self, change: &DefinitionChange) -> Result<u64> {
        self.check_change(change)?;
        let mut changed = false;
        if self.destinations.is_empty() && !change.put.is_empty() {
            self.add(Destination::unrouted(), Start::Now);
        }
        for (definition, start) in &change.put {
            changed |= self.put(definition, *start);
        }
        for id in &change.remove {
            changed |= self.destinations.remove(id).is_some();
            self.drop_cursors(id);
            self.waiting.retain(|(destination, _), _| destination != id);
            self.settled.remove(id);
            self.endpoints.retain(|(destination, _), _| destination != id);
            self.replay.retain(|(destination, _), _| destination != id);
            self.ranges.retain(|(destination, _), _| destination != id);
        }
        if changed {
            self.definitions += 1;
        }
        Ok(self.definitions)
    }

    pub(super) fn definitions(&self) -> Definitions {
        Definitions {
            version: self.definitions,
            rows: self.destinations.values().cloned().collect(),
            disabled: self.endpoints.keys().cloned().collect(),
            paused: self.paused.iter().map(|partition| PartitionId(*partition)).collect(),
        }
    }

    fn check_change(&self, change: &DefinitionChange) -> Result<()> {
        if let Some(expected) = change.expected
            && expected != self.definitions
        {
            return Err(Error::new(ErrorKind::Conflict, "apply destinations").message(format!(
                "the definitions have version {}, not {expected}; nothing was changed",
                self.definitions
            )));
        }
        if change.remove.iter().any(|id| id.as_str() == Destination::UNROUTED) {
            return Err(Error::new(ErrorKind::Invalid, "apply destinations")
                .message("`unrouted` is built in and cannot be removed; nothing was changed"));
        }
        Ok(())
    }

    fn put(&mut self, definition: &Destination, start: Start) -> bool {
        match self.destinations.get_mut(&definition.id) {
            None => self.add(definition.clone(), start),
            Some(row) if row.definition == *definition => return false,
            Some(row) => {
                row.definition = definition.clone();
                row.version += 1;
            }
        }
        true
    }

    fn add(&mut self, definition: Destination, start: Start) {
        let id = definition.id.clone();
        self.add_cursors(&id, start);
        self.destinations.entry(id).or_insert(DestinationRow {
            definition,
            version: 1,
            state: DestinationState::Active,
        });
    }
}
