//! The store as the relay calls it: each method of the contract, and where its work is done.

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, OutboxSource, Page, RenewRequest, SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, Hindrance, Lease, RelayId, Result, Timestamp,
};

use crate::definitions::By;
use crate::store::DynamoStore;
use crate::{carry_out, definitions, due, fetch, heartbeat, lease, removal, settle};

impl OutboxSource for DynamoStore {
    fn capabilities(&self) -> SourceCapabilities {
        let mut can = SourceCapabilities::least();
        can.overlapping_writers = true;
        can.many_partitions = true;
        can.refuses_malformed = true;
        can.wakes = self.options().stream;
        // A page is of the events' index and table, and the definitions are an item of another one.
        can.reads_when_gone = true;
        can
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        Box::pin(self.open_all())
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            definitions::register(self.connection(), definitions).await?;
            self.tidy().await;
            Ok(())
        })
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        Box::pin(removal::apply(self, change, By::Program))
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        Box::pin(definitions::read(self.connection()))
    }

    fn report<'a>(
        &'a self,
        relay: &'a RelayId,
        hindrances: &'a [Hindrance],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(heartbeat::report(self.connection(), relay, hindrances))
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async {
            let partitions = self.facts().await?.partitions;
            Ok(lease::acquire(self, partitions, request, None).await?.acquired)
        })
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        Box::pin(lease::renew(self, request, false))
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.let_go(leases))
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        Box::pin(self.load_one(lease, destination))
    }

    /// The time now, by this machine's clock: what was written later, by its writer's clock, is no part
    /// of the drain.
    fn head<'a>(&'a self, _: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        Box::pin(async {
            let now = Timestamp::now().as_micros();
            Ok(Cursor::number(u64::try_from(now).unwrap_or_default()))
        })
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        Box::pin(fetch::fetch(self, request))
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        Box::pin(settle::settle(self, settlement))
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        Box::pin(due::due(self, request))
    }

    fn admit<'a>(&'a self, _: &'a Lease, _: u32) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(async { Ok(Admitted::default()) })
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        Box::pin(carry_out::carry_out(self, request))
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        Box::pin(self.count(destination))
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.woken())
    }
}
