//! The memory store as the relay sees it. Each statement takes the lock once, so each is atomic.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, Page, RenewRequest, RetireRequest, Retired, SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, Event, Hindrance, Lease, OutboxSource, RelayId,
    Result,
};

use super::MemoryStore;
use super::server::Needs;
use super::state::State;

impl OutboxSource for MemoryStore {
    fn capabilities(&self) -> SourceCapabilities {
        self.source_capabilities()
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        let facts =
            StoreFacts { name: "memory".to_owned(), partitions: self.shared.partitions, schema: 1 };
        // It checks that the store can be written to.
        Box::pin(self.statement("open", Needs::Writing, |_| Ok(facts)))
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.statement("register", Needs::Room, |state| {
            state.register(definitions);
            Ok(())
        }))
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.statement("apply", Needs::Room, |state| state.apply(change)))
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        let read = |state: &mut State| Ok(state.definitions());
        Box::pin(self.statement("destinations", Needs::Nothing, read))
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(self.statement("acquire", Needs::Writing, |state| {
            self.leave_token(state);
            Ok(state.acquire(request, self.elapsed()))
        }))
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        Box::pin(
            self.statement("renew", Needs::Writing, |state| {
                Ok(state.renew(request, self.elapsed()))
            }),
        )
    }

    fn report<'a>(
        &'a self,
        relay: &'a RelayId,
        hindrances: &'a [Hindrance],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.statement("report", Needs::Writing, |state| {
            state.report(relay, hindrances);
            Ok(())
        }))
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.statement("release", Needs::Writing, |state| {
            state.release(leases, self.elapsed());
            Ok(())
        }))
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        Box::pin(self.load_cursor(lease, destination))
    }

    fn head<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        Box::pin(self.read_head(lease))
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        Box::pin(self.read_page(request))
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.write_settlement(settlement))
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        Box::pin(self.statement("due", Needs::Nothing, |state| {
            // What waits may be parked by an owner of whom this one has not heard.
            state.fence("due", &request.lease)?;
            Ok(state.due(request, self.elapsed()))
        }))
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(self.statement("admit", Needs::Room, move |state| {
            state.admit(lease, rows_max, self.shared.now(), self.elapsed())
        }))
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        Box::pin(self.statement("carry out", Needs::Room, |state| {
            Ok(state.carry_out(request, self.elapsed()))
        }))
    }

    fn retirable<'a>(
        &'a self,
        request: &'a RetireRequest,
    ) -> BoxFuture<'a, Result<Vec<Arc<Event>>>> {
        Box::pin(self.statement("retirable", Needs::Nothing, |state| {
            Ok(state.retirable(request, self.shared.now()))
        }))
    }

    fn retire<'a>(&'a self, request: &'a RetireRequest) -> BoxFuture<'a, Result<Retired>> {
        Box::pin(
            self.statement("retire", Needs::Writing, |state| {
                state.retire(request, self.shared.now())
            }),
        )
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        Box::pin(self.statement("counts", Needs::Nothing, |state| Ok(state.counts(destination))))
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut commits = self.shared.commits.subscribe();
            let seen = self.woken.load(Ordering::Acquire);
            if let Ok(now) = commits.wait_for(|commits| *commits > seen).await {
                self.woken.store(*now, Ordering::Release);
            }
        })
    }
}
