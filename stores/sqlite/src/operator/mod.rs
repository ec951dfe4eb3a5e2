//! The operator's side of the store: what is there, what waits and why, and what may be done about
//! it.
//!
//! Invariants: a reading is one snapshot and bounded; a change is one transaction that has the write
//! lock from its start and leaves its row of the audit table; and nothing here settles, un-parks, or
//! publishes. What would is written down as a request for the partition's owner.

mod audit;
mod delivery;
mod destination;
mod doctor;
mod erase;
mod event;
pub(crate) mod identity;
mod inbox;
mod merge;
mod overview;
mod range;
mod recount;
mod request;
mod scheduled;
mod sequence;
mod sql;
mod value;
mod waiting;

use std::sync::Arc;

use postrider_core::operate::{
    AuditEntry, BacklogGroup, Cancelled, Erasure, EventDetail, EventView, Filter, Finding,
    Forgotten, InboxFilter, InboxName, InboxView, Listed, Marked, Note, Operator, Overview,
    PageRequest, Recounted, RequestId, RequestState, ScheduledView, Submission, WaitingView,
};
use postrider_core::source::DefinitionChange;
use postrider_core::{
    BoxFuture, DestinationId, DestinationState, EventId, NewEvent, PartitionId, Result, Timestamp,
};
use rusqlite::Connection;

use crate::error::During;
use crate::outbox::Outbox;
use crate::store::SqliteStore;
use crate::worker::Worker;

/// Events that are staged in one transaction: a fraction of a second of the write lock.
const STAGED_MAX: usize = 10_000;

impl Operator for SqliteStore {
    fn overview(&self) -> BoxFuture<'_, Result<Overview>> {
        let name = format!("sqlite:{}", self.file.name());
        let path = self.file.path().to_owned();
        Box::pin(self.read("overview", move |tx| overview::read(tx, &path, name)))
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

    fn apply<'a>(
        &'a self,
        change: &'a DefinitionChange,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<u64>> {
        let (change, note) = (change.clone(), note.clone());
        Box::pin(self.write("apply", move |tx| destination::apply(tx, &change, &note)))
    }

    fn rename<'a>(
        &'a self,
        from: &'a DestinationId,
        to: &'a DestinationId,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        let (from, to, note) = (from.clone(), to.clone(), note.clone());
        Box::pin(self.write("rename", move |tx| destination::rename(tx, &from, &to, &note)))
    }

    fn set_destination<'a>(
        &'a self,
        id: &'a DestinationId,
        state: DestinationState,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        let (id, note) = (id.clone(), note.clone());
        Box::pin(
            self.write("set destination", move |tx| destination::set_state(tx, &id, state, &note)),
        )
    }

    fn set_partition<'a>(
        &'a self,
        partition: PartitionId,
        paused: bool,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<()>> {
        let note = note.clone();
        Box::pin(self.write("set partition", move |tx| {
            destination::set_partition(tx, partition, paused, &note)
        }))
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
        let note = note.clone();
        Box::pin(self.write("repair sequence", move |tx| sequence::repair(tx, &note)))
    }

    fn adopt<'a>(&'a self, note: &'a Note) -> BoxFuture<'a, Result<()>> {
        let (path, note) = (self.file.path().to_owned(), note.clone());
        Box::pin(self.write("adopt", move |tx| identity::adopt(tx, &path, &note)))
    }

    fn inbox<'a>(
        &'a self,
        filter: &'a InboxFilter,
        page: &'a PageRequest,
    ) -> BoxFuture<'a, Result<Listed<InboxView>>> {
        let (filter, page) = (filter.clone(), page.clone());
        Box::pin(self.read("inbox", move |tx| inbox::list(tx, &filter, &page)))
    }

    fn forget<'a>(
        &'a self,
        name: &'a InboxName,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<Forgotten>> {
        let (name, note) = (name.clone(), note.clone());
        Box::pin(self.write("forget", move |tx| inbox::forget(tx, &name, &note)))
    }

    fn mark_processed<'a>(
        &'a self,
        name: &'a InboxName,
        note: &'a Note,
    ) -> BoxFuture<'a, Result<Marked>> {
        let (name, note) = (name.clone(), note.clone());
        Box::pin(self.write("mark processed", move |tx| inbox::mark(tx, &name, &note)))
    }

    fn stage<'a>(&'a self, events: &'a [NewEvent]) -> BoxFuture<'a, Result<Vec<EventId>>> {
        let events = events.to_vec();
        Box::pin(async move {
            if events.len() > STAGED_MAX {
                return Err(value::invalid(
                    "stage",
                    format!("at most {STAGED_MAX} events are staged at once"),
                ));
            }
            self.write("stage", move |tx| Outbox::new().preflight().enqueue_many(tx, &events)).await
        })
    }

    fn doctor(&self, now: Timestamp) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            // On a thread of its own: to read a whole file takes seconds, in which a relay goes on.
            let path = file.real_path();
            let worker = Worker::start("doctor", file)?;
            let examine = move |connection: &mut Connection| {
                let tx = connection.transaction().during("doctor")?;
                doctor::examine(&tx, &path, now)
            };
            let examined = worker.call("doctor", examine).await;
            examined.or_else(doctor::unreadable)
        })
    }
}
