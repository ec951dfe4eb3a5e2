//! The operator's side of the store: what is there, what waits and why, and what may be done about it.
//!
//! Invariants: a reading is bounded, and says where it ended; a change is one transaction with its entry
//! of the audit log; nothing here settles or publishes; and what this store cannot do is refused by name,
//! never answered with nothing.

mod audit;
mod backlog;
mod delivery;
mod doctor;
mod erase;
mod event;
mod inbox;
mod inboxes;
mod overview;
mod refusal;
pub(crate) mod request;
mod scan;
mod stage;
mod waiting;

use postrider_core::operate::{
    AuditEntry, BacklogGroup, Cancelled, Erasure, EventDetail, EventView, Filter, Finding,
    Forgotten, InboxFilter, InboxName, InboxView, Listed, Marked, Note, Operator, Overview,
    PageRequest, Recounted, RequestId, RequestState, ScheduledView, Submission, WaitingView,
};
use postrider_core::source::DefinitionChange;
use postrider_core::{
    BoxFuture, DestinationId, DestinationState, Error, ErrorKind, EventId, NewEvent, PartitionId,
    Result, Timestamp,
};

use crate::definitions::{self, By};
use crate::removal;
use crate::store::DynamoStore;
use refusal::refused;

impl Operator for DynamoStore {
    fn overview(&self) -> BoxFuture<'_, Result<Overview>> {
        Box::pin(overview::read(self))
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
        Box::pin(async move {
            // Who says what names no source is known from here on.
            self.facts().await?;
            event::list(self, filter, page).await
        })
    }

    fn event(&self, id: EventId) -> BoxFuture<'_, Result<EventDetail>> {
        Box::pin(async move {
            self.facts().await?;
            event::detail(self, id).await
        })
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
        _: &'a Filter,
        _: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<ScheduledView>>> {
        refused("scheduled", refusal::SCHEDULED)
    }

    fn cancel<'a>(&'a self, _: EventId, _: &'a Note) -> BoxFuture<'a, Result<Cancelled>> {
        refused("cancel", refusal::SCHEDULED)
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
        Box::pin(async move {
            let put = change.put.iter().map(|(definition, _)| definition.id.to_string());
            let removed = change.remove.iter().map(|id| format!("{id} removed"));
            let subject = put.chain(removed).collect::<Vec<_>>().join(", ");
            let by = By::Operator { note, what: "destinations apply", subject: &subject };
            removal::apply(self, change, by).await
        })
    }

    fn rename<'a>(
        &'a self,
        _: &'a DestinationId,
        _: &'a DestinationId,
        _: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        refused("rename", refusal::RENAME)
    }

    fn set_destination<'a>(
        &'a self,
        id: &'a DestinationId,
        state: DestinationState,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(definitions::set_state(self.connection(), id, state, note))
    }

    fn set_partition<'a>(
        &'a self,
        partition: PartitionId,
        paused: bool,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if partition.0 >= self.facts().await?.partitions {
                return Err(Error::new(ErrorKind::NotFound, "set partition")
                    .message("there is no such partition; nothing was changed")
                    .context("partition", partition));
            }
            definitions::set_partition(self.connection(), partition, paused, note).await
        })
    }

    fn erasable<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Erasure>> {
        Box::pin(erase::erasable(self, key))
    }

    fn erase<'a>(&'a self, key: &'a str, note: &'a Note) -> BoxFuture<'a, Result<Erasure>> {
        Box::pin(erase::erase(self, key, note))
    }

    fn recount<'a>(&'a self, _: &'a DestinationId) -> BoxFuture<'a, Result<Recounted>> {
        refused("recount", refusal::RECOUNT)
    }

    fn repair_sequence<'a>(&'a self, _: &'a Note) -> BoxFuture<'a, Result<(u64, u64)>> {
        refused("repair sequence", refusal::SEQUENCE)
    }

    fn adopt<'a>(&'a self, _: &'a Note) -> BoxFuture<'a, Result<()>> {
        refused("adopt", refusal::ADOPT)
    }

    fn inbox<'a>(
        &'a self,
        filter: &'a InboxFilter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<InboxView>>> {
        Box::pin(inboxes::list(self, filter, page))
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

    fn stage_max(&self, events: &[NewEvent]) -> usize {
        stage::max(events)
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
