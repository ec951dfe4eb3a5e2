//! The operator's side of the store: what is there, what waits and why, and what may be done about
//! it.
//!
//! Invariants: a reading is one snapshot and bounded; a change is one transaction that has the write
//! lock from its start and leaves its row of the audit table; and nothing here settles, un-parks, or
//! publishes. What would is written down as a request for the partition's owner.

mod audit;
mod delivery;
mod event;
mod filter;
mod overview;
mod request;
mod scheduled;
mod sql;
mod value;
mod waiting;

use postrider_core::operate::{
    AuditEntry, BacklogGroup, Cancelled, Difference, Erasure, EventDetail, EventView, Filter,
    Finding, Forgotten, InboxFilter, InboxName, InboxView, Listed, Marked, Note, Operator,
    Overview, PageRequest, RequestId, RequestState, ScheduledView, Submission, WaitingView,
};
use postrider_core::source::DefinitionChange;
use postrider_core::{
    BoxFuture, DestinationId, DestinationState, Error, ErrorKind, EventId, NewEvent, PartitionId,
    Result, Timestamp,
};

use crate::store::SqliteStore;

impl Operator for SqliteStore {
    fn overview(&self) -> BoxFuture<'_, Result<Overview>> {
        let name = format!("sqlite:{}", self.file.name());
        Box::pin(self.read("overview", move |tx| overview::read(tx, name)))
    }

    fn backlog<'a>(
        &'a self,
        destination: &'a DestinationId,
        rows_max: u64,
    ) -> BoxFuture<'a, Result<Vec<BacklogGroup>>> {
        let destination = destination.clone();
        Box::pin(self.read("backlog", move |tx| overview::backlog(tx, &destination, rows_max)))
    }

    fn events<'a>(
        &'a self,
        filter: &'a Filter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<EventView>>> {
        let (filter, page) = (filter.clone(), page.clone());
        Box::pin(self.read("events", move |tx| event::list(tx, &filter, &page)))
    }

    fn event(&self, id: EventId) -> BoxFuture<'_, Result<EventDetail>> {
        Box::pin(self.read("event", move |tx| event::detail(tx, id)))
    }

    fn waiting<'a>(
        &'a self,
        filter: &'a Filter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<WaitingView>>> {
        let (filter, page) = (filter.clone(), page.clone());
        Box::pin(self.read("waiting", move |tx| waiting::list(tx, &filter, &page)))
    }

    fn scheduled<'a>(
        &'a self,
        filter: &'a Filter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<ScheduledView>>> {
        let (filter, page) = (filter.clone(), page.clone());
        Box::pin(self.read("scheduled", move |tx| scheduled::list(tx, &filter, &page)))
    }

    fn cancel<'a>(&'a self, id: EventId, note: &'a Note) -> BoxFuture<'a, Result<Cancelled>> {
        let note = note.clone();
        Box::pin(self.write("cancel", move |tx| scheduled::cancel(tx, id, &note)))
    }

    fn submit<'a>(&'a self, submission: &'a Submission) -> BoxFuture<'a, Result<RequestId>> {
        Box::pin(request::submit(self, submission))
    }

    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<RequestState>> {
        Box::pin(self.read("request", move |tx| request::read(tx, id)))
    }

    fn open_requests(&self) -> BoxFuture<'_, Result<Vec<RequestState>>> {
        Box::pin(self.read("open requests", |tx| request::open(tx)))
    }

    fn audit<'a>(&'a self, page: &'a PageRequest) -> BoxFuture<'a, Result<Listed<AuditEntry>>> {
        let page = page.clone();
        Box::pin(self.read("audit", move |tx| audit::list(tx, &page)))
    }

    fn apply<'a>(&'a self, _: &'a DefinitionChange, _: &'a Note) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async { Err(missing("apply")) })
    }

    fn rename<'a>(
        &'a self,
        _: &'a DestinationId,
        _: &'a DestinationId,
        _: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(missing("rename")) })
    }

    fn set_destination<'a>(
        &'a self,
        _: &'a DestinationId,
        _: DestinationState,
        _: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(missing("set destination")) })
    }

    fn set_partition<'a>(
        &'a self,
        _: PartitionId,
        _: bool,
        _: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(missing("set partition")) })
    }

    fn erasable<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Erasure>> {
        Box::pin(async { Err(missing("erasable")) })
    }

    fn erase<'a>(&'a self, _: &'a str, _: &'a Note) -> BoxFuture<'a, Result<Erasure>> {
        Box::pin(async { Err(missing("erase")) })
    }

    fn recount<'a>(&'a self, _: &'a DestinationId) -> BoxFuture<'a, Result<Vec<Difference>>> {
        Box::pin(async { Err(missing("recount")) })
    }

    fn repair_sequence<'a>(&'a self, _: &'a Note) -> BoxFuture<'a, Result<(u64, u64)>> {
        Box::pin(async { Err(missing("repair sequence")) })
    }

    fn adopt<'a>(&'a self, _: &'a Note) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(missing("adopt")) })
    }

    fn inbox<'a>(
        &'a self,
        _: &'a InboxFilter,
        _: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<InboxView>>> {
        Box::pin(async { Err(missing("inbox")) })
    }

    fn forget<'a>(&'a self, _: &'a InboxName, _: &'a Note) -> BoxFuture<'a, Result<Forgotten>> {
        Box::pin(async { Err(missing("forget")) })
    }

    fn mark_processed<'a>(
        &'a self,
        _: &'a InboxName,
        _: &'a Note,
    ) -> BoxFuture<'a, Result<Marked>> {
        Box::pin(async { Err(missing("mark processed")) })
    }

    fn stage<'a>(&'a self, _: &'a [NewEvent]) -> BoxFuture<'a, Result<Vec<EventId>>> {
        Box::pin(async { Err(missing("stage")) })
    }

    fn doctor(&self, _: Timestamp) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(async { Err(missing("doctor")) })
    }
}

/// The error of what is still to be written.
fn missing(operation: &'static str) -> Error {
    Error::new(ErrorKind::Internal, operation).message("this store does not do that yet")
}
