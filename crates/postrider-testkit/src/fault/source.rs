//! A store that fails as told, by operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, Page, RenewRequest, RetireRequest, Retired, SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, ErrorKind, Event, Hindrance, Lease,
    OutboxSource, RelayId, Result,
};

use super::broker::failure;
use super::{Gate, Script, TestSignal};

/// What one call does.
#[derive(Clone, Debug)]
pub enum SourceAction {
    /// As the store does.
    Pass,
    /// Nothing is done.
    FailBefore(ErrorKind),
    /// It is done, and the answer is lost.
    FailAfter(ErrorKind),
    /// Waits at the gate, then does as the store does.
    Hold(Gate),
    /// Does as the store does, and then waits at the gate with the answer.
    HoldAnswer(Gate),
}

impl SourceAction {
    /// The lock was not free: nothing was done, and the same call may succeed later.
    pub fn busy() -> SourceAction {
        SourceAction::FailBefore(ErrorKind::Busy)
    }
}

/// The operations that can be scripted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// `open`
    Open,
    /// `acquire`
    Acquire,
    /// `renew`
    Renew,
    /// `release`
    Release,
    /// `load`
    Load,
    /// `fetch`
    Fetch,
    /// `settle`
    Settle,
    /// `due`
    Due,
    /// `admit`
    Admit,
    /// `carry_out`
    CarryOut,
    /// `retirable`
    Retirable,
    /// `retire`
    Retire,
    /// `counts`
    Counts,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 13] = [
        Operation::Open,
        Operation::Acquire,
        Operation::Renew,
        Operation::Release,
        Operation::Load,
        Operation::Fetch,
        Operation::Settle,
        Operation::Due,
        Operation::Admit,
        Operation::CarryOut,
        Operation::Retirable,
        Operation::Retire,
        Operation::Counts,
    ];
}

/// A store behind scripted faults.
pub struct FaultySource {
    inner: Arc<dyn OutboxSource>,
    operations: BTreeMap<Operation, Scripted>,
}

#[derive(Default)]
struct Scripted {
    script: Script<SourceAction>,
    answered: TestSignal,
}

impl FaultySource {
    /// Wraps a store. With empty scripts nothing changes.
    pub fn new(inner: Arc<dyn OutboxSource>) -> FaultySource {
        let operations =
            Operation::ALL.into_iter().map(|operation| (operation, Scripted::default())).collect();
        FaultySource { inner, operations }
    }

    /// What the next calls of an operation do.
    pub fn script(&self, operation: Operation) -> &Script<SourceAction> {
        &self.of(operation).script
    }

    /// Happens whenever a call of the operation was answered.
    pub fn answered(&self, operation: Operation) -> &TestSignal {
        &self.of(operation).answered
    }

    fn of(&self, operation: Operation) -> &Scripted {
        self.operations.get(&operation).expect("invariant: every operation has a script")
    }

    fn play<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        call: impl FnOnce() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            let scripted = self.of(operation);
            let result = match scripted.script.play().unwrap_or(SourceAction::Pass) {
                SourceAction::Pass => call().await,
                SourceAction::FailBefore(kind) => Err(failure(kind)),
                SourceAction::FailAfter(kind) => match call().await {
                    Ok(_) => Err(failure(kind)),
                    Err(error) => Err(error),
                },
                SourceAction::Hold(gate) => {
                    gate.pass().await;
                    call().await
                }
                SourceAction::HoldAnswer(gate) => {
                    let result = call().await;
                    gate.pass().await;
                    result
                }
            };
            scripted.answered.happened();
            result
        })
    }
}

impl OutboxSource for FaultySource {
    fn capabilities(&self) -> SourceCapabilities {
        self.inner.capabilities()
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        self.play(Operation::Open, || self.inner.open())
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        self.inner.register(definitions)
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        self.inner.apply(change)
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        self.inner.destinations()
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        self.play(Operation::Acquire, || self.inner.acquire(request))
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        self.play(Operation::Renew, || self.inner.renew(request))
    }

    fn report<'a>(
        &'a self,
        relay: &'a RelayId,
        hindrances: &'a [Hindrance],
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.report(relay, hindrances)
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        self.play(Operation::Release, || self.inner.release(leases))
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        self.play(Operation::Load, || self.inner.load(lease, destination))
    }

    fn head<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        self.inner.head(lease)
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        self.play(Operation::Fetch, || self.inner.fetch(request))
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        self.play(Operation::Settle, || self.inner.settle(settlement))
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        self.play(Operation::Due, || self.inner.due(request))
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        self.play(Operation::Admit, move || self.inner.admit(lease, rows_max))
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        self.play(Operation::CarryOut, || self.inner.carry_out(request))
    }

    fn retirable<'a>(
        &'a self,
        request: &'a RetireRequest,
    ) -> BoxFuture<'a, Result<Vec<Arc<Event>>>> {
        self.play(Operation::Retirable, || self.inner.retirable(request))
    }

    fn retire<'a>(&'a self, request: &'a RetireRequest) -> BoxFuture<'a, Result<Retired>> {
        self.play(Operation::Retire, || self.inner.retire(request))
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        self.play(Operation::Counts, || self.inner.counts(destination))
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        self.inner.wake()
    }
}
