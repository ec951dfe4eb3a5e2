//! The operator's side of the store: what is there, what waits and why, and what may be done about
//! it.
//!
//! Invariants: a reading is one snapshot and bounded; a change is one transaction that leaves its row of
//! the audit table; and nothing here settles, un-parks, or publishes. What would is written down as a
//! request for the partition's owner.

mod audit;
mod backlog;
mod bloat;
mod cancel;
mod delivery;
mod destination;
mod doctor;
mod erase;
mod event;
mod events;
mod find;
mod identity;
mod inbox;
mod inbox_list;
pub(crate) mod note;
mod overview;
mod partition;
mod partitions;
mod producers;
pub(crate) mod rebase;
mod recount;
mod repartition;
mod request;
mod rewind;
mod scheduled;
mod sequence;
mod stage;
mod value;
mod waiting;

use postrider_core::operate::{
    AuditEntry, BacklogGroup, Bloat, Cancelled, Erasure, EventDetail, EventView, Filter, Finding,
    Forgotten, InboxFilter, InboxName, InboxView, Listed, Marked, Note, Operator, Overview,
    PageRequest, Recounted, RequestId, RequestState, ScheduledView, Submission, WaitingView,
};
use postrider_core::source::DefinitionChange;
use postrider_core::{
    BoxFuture, DestinationId, DestinationState, EventId, NewEvent, PartitionId, Result, Timestamp,
};

pub use sequence::SequenceRepair;

use crate::PostgresStore;

impl Operator for PostgresStore {
    fn overview(&self) -> BoxFuture<'_, Result<Overview>> {
        Box::pin(overview::read(self))
    }

    fn bloat(&self) -> BoxFuture<'_, Result<Option<Bloat>>> {
        Box::pin(async { bloat::read(self).await.map(Some) })
    }

    fn backlog<'a>(
        &'a self,
        destination: &'a DestinationId,
        rows_max: u64,
    ) -> BoxFuture<'a, Result<Vec<BacklogGroup>>> {
        Box::pin(backlog::read(self, destination, rows_max))
    }

    fn events<'a>(
        &'a self,
        filter: &'a Filter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<EventView>>> {
        Box::pin(events::list(self, filter, page))
    }

    fn event(&self, id: EventId) -> BoxFuture<'_, Result<EventDetail>> {
        Box::pin(event::detail(self, id))
    }

    fn waiting<'a>(
        &'a self,
        filter: &'a Filter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<WaitingView>>> {
        Box::pin(waiting::list(self, filter, page))
    }

    fn scheduled<'a>(
        &'a self,
        filter: &'a Filter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<ScheduledView>>> {
        Box::pin(scheduled::list(self, filter, page))
    }

    fn cancel<'a>(&'a self, id: EventId, note: &'a Note) -> BoxFuture<'a, Result<Cancelled>> {
        Box::pin(cancel::cancel(self, id, note))
    }

    fn submit<'a>(&'a self, submission: &'a Submission) -> BoxFuture<'a, Result<RequestId>> {
        Box::pin(request::submit(self, submission))
    }

    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<RequestState>> {
        Box::pin(request::read(self, id))
    }

    fn open_requests(&self) -> BoxFuture<'_, Result<Vec<RequestState>>> {
        Box::pin(request::open(self))
    }

    fn apply<'a>(
        &'a self,
        change: &'a DefinitionChange,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(destination::apply(self, change, note))
    }

    fn rename<'a>(
        &'a self,
        from: &'a DestinationId,
        to: &'a DestinationId,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(destination::rename(self, from, to, note))
    }

    fn set_destination<'a>(
        &'a self,
        id: &'a DestinationId,
        state: DestinationState,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(destination::set_state(self, id, state, note))
    }

    fn set_partition<'a>(
        &'a self,
        partition: PartitionId,
        paused: bool,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(partition::set(self, partition, paused, note))
    }

    fn erasable<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Erasure>> {
        Box::pin(erase::erasable(self, key))
    }

    fn erase<'a>(&'a self, key: &'a str, note: &'a Note) -> BoxFuture<'a, Result<Erasure>> {
        Box::pin(erase::erase(self, key, note))
    }

    fn recount<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Recounted>> {
        Box::pin(recount::recount(self, destination))
    }

    fn repair_sequence<'a>(&'a self, note: &'a Note) -> BoxFuture<'a, Result<(u64, u64)>> {
        Box::pin(async move {
            let done = sequence::repair(self, note).await?;
            Ok((done.before, done.after))
        })
    }

    fn adopt<'a>(&'a self, note: &'a Note) -> BoxFuture<'a, Result<()>> {
        Box::pin(identity::adopt(self, note))
    }

    fn inbox<'a>(
        &'a self,
        filter: &'a InboxFilter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<InboxView>>> {
        Box::pin(inbox::list(self, filter, page))
    }

    fn forget<'a>(
        &'a self,
        name: &'a InboxName,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<Forgotten>> {
        Box::pin(inbox::forget(self, name, note))
    }

    fn mark_processed<'a>(
        &'a self,
        name: &'a InboxName,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<Marked>> {
        Box::pin(inbox::mark(self, name, note))
    }

    fn stage<'a>(&'a self, events: &'a [NewEvent]) -> BoxFuture<'a, Result<Vec<EventId>>> {
        Box::pin(stage::stage(self, events))
    }

    fn audit<'a>(&'a self, page: &'a PageRequest) -> BoxFuture<'a, Result<Listed<AuditEntry>>> {
        Box::pin(audit::list(self, page))
    }

    fn doctor(&self, now: Timestamp) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(doctor::examine(self, now))
    }
}
