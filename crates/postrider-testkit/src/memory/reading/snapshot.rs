//! The snapshot cursor. Until its arithmetic stands here, such a store reads like a change log.

use postrider_core::source::{FetchRequest, Loaded, Page};
use postrider_core::{Cursor, DestinationId, Lease, Result, Start};

use super::super::MemoryStore;
use super::super::server::Needs;
use super::super::state::{LogRow, State};
use super::change_log;

pub(super) async fn load(store: &MemoryStore, lease: &Lease, id: &DestinationId) -> Result<Loaded> {
    let load = |state: &mut State| state.load(id, lease.partition.0);
    store.statement("load", Needs::Nothing, load).await
}

pub(super) async fn head(store: &MemoryStore, _lease: &Lease) -> Result<Cursor> {
    store.statement("head", Needs::Nothing, |state| Ok(change_log::head(state))).await
}

pub(super) async fn fetch(store: &MemoryStore, request: &FetchRequest) -> Result<Page> {
    let format = store.format_max;
    let fetch = |state: &mut State| change_log::fetch(state, request, format);
    store.statement("fetch", Needs::Nothing, fetch).await
}

pub(super) fn start(state: &State, partition: u16, start: Start) -> Cursor {
    change_log::start(state, partition, start)
}

pub(super) fn has_passed(cursor: &Cursor, row: &LogRow) -> bool {
    change_log::has_passed(cursor, row)
}

pub(super) fn set_back(state: &mut State, id: &DestinationId, partition: u16, to: &Cursor) -> bool {
    change_log::set_back(state, id, partition, to)
}
