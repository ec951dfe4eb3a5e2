//! The memory store as the relay sees it. Each call takes the lock once, so each is atomic.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, Page, RenewRequest, RetireRequest, Retired, SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{
    BoxFuture, Clock, Cursor, Destination, DestinationId, Event, Lease, OutboxSource, Result,
};

use super::MemoryStore;

impl OutboxSource for MemoryStore {
    fn capabilities(&self) -> SourceCapabilities {
        self.source_capabilities()
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        Box::pin(async {
            Ok(StoreFacts {
                name: "memory".to_owned(),
                partitions: self.shared.partitions,
                schema: 1,
            })
        })
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.state().register(definitions);
            Ok(())
        })
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async { self.state().apply(change) })
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        Box::pin(async { Ok(self.state().definitions()) })
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async { Ok(self.state().acquire(request, self.elapsed())) })
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        Box::pin(async { Ok(self.state().renew(request, self.elapsed())) })
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.state().release(leases, self.elapsed());
            Ok(())
        })
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        Box::pin(async { self.state().load(lease.partition, destination) })
    }

    fn head<'a>(&'a self, _lease: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        Box::pin(async { Ok(self.state().head()) })
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async { self.state().fetch(request) })
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { self.state().settle(settlement, self.elapsed()) })
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        Box::pin(async { Ok(self.state().due(request, self.elapsed())) })
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(async move {
            let now = self.shared.clock.now();
            self.state().admit(lease, rows_max, now, self.shared.partitions)
        })
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        Box::pin(async { Ok(self.state().carry_out(request, self.elapsed())) })
    }

    fn retirable<'a>(
        &'a self,
        request: &'a RetireRequest,
    ) -> BoxFuture<'a, Result<Vec<Arc<Event>>>> {
        Box::pin(async { Ok(self.state().retirable(request, self.shared.clock.now())) })
    }

    fn retire<'a>(&'a self, request: &'a RetireRequest) -> BoxFuture<'a, Result<Retired>> {
        Box::pin(async { self.state().retire(request, self.shared.clock.now()) })
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        Box::pin(async { Ok(self.state().counts(destination)) })
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
