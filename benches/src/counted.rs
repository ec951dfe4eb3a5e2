//! A store that counts what the relay asks of it, by operation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, Page, RenewRequest, RetireRequest, Retired, SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, Event, Lease, OutboxSource, Result,
};

/// Passes every call on, and counts it.
pub(crate) struct Counted<S> {
    inner: S,
    /// Whether the store may wake the relay. A store that is never asked for it watches nothing.
    wakes: bool,
    calls: Mutex<BTreeMap<&'static str, u64>>,
}

impl<S> Counted<S> {
    pub(crate) fn new(inner: S, wakes: bool) -> Counted<S> {
        Counted { inner, wakes, calls: Mutex::default() }
    }

    /// How often each operation was called so far.
    pub(crate) fn calls(&self) -> BTreeMap<&'static str, u64> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, operation: &'static str) -> &S {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry(operation).or_default() += 1;
        &self.inner
    }
}

impl<S: OutboxSource> OutboxSource for Counted<S> {
    fn capabilities(&self) -> SourceCapabilities {
        self.inner.capabilities()
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        self.count("open").open()
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        self.count("register").register(definitions)
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        self.count("apply").apply(change)
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        self.count("destinations").destinations()
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        self.count("acquire").acquire(request)
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        self.count("renew").renew(request)
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        self.count("release").release(leases)
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        self.count("load").load(lease, destination)
    }

    fn head<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        self.count("head").head(lease)
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        self.count("fetch").fetch(request)
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        self.count("settle").settle(settlement)
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        self.count("due").due(request)
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        self.count("admit").admit(lease, rows_max)
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        self.count("carry_out").carry_out(request)
    }

    fn retirable<'a>(
        &'a self,
        request: &'a RetireRequest,
    ) -> BoxFuture<'a, Result<Vec<Arc<Event>>>> {
        self.count("retirable").retirable(request)
    }

    fn retire<'a>(&'a self, request: &'a RetireRequest) -> BoxFuture<'a, Result<Retired>> {
        self.count("retire").retire(request)
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        self.count("counts").counts(destination)
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        match self.wakes {
            true => self.inner.wake(),
            false => Box::pin(std::future::pending()),
        }
    }
}
