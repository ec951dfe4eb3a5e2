//! The world's shell: commands become calls of a store, an archive, and brokers.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::source::{RetireRequest, Retired};
use postrider_core::{
    Archive, BoxFuture, Broker, DestinationId, OutboxSource, Outcome, Result, Tick,
};
use postrider_relay::{Answer, Command};
use postrider_testkit::fault::{FaultyBroker, FaultySource};
use postrider_testkit::memory::MemoryArchive;

/// What the shell does to delete what is old.
async fn retire(
    source: Arc<FaultySource>,
    archive: Option<MemoryArchive>,
    mut request: RetireRequest,
) -> Result<Retired> {
    let Some(archive) = archive else { return source.retire(&request).await };
    let events = source.retirable(&request).await?;
    if events.is_empty() {
        return Ok(Retired::default());
    }
    archive.append(&events).await?;
    request.only = Some(events.iter().map(|event| event.id).collect());
    let retired = source.retire(&request).await?;
    Ok(Retired { more: events.len() >= request.rows_max as usize, ..retired })
}

/// Performs a command against the world's store and brokers.
pub(crate) fn perform(
    source: Arc<FaultySource>,
    archive: Option<MemoryArchive>,
    brokers: &BTreeMap<DestinationId, Arc<FaultyBroker>>,
    tick: Tick,
    command: Command,
) -> BoxFuture<'static, Answer> {
    let broker = match &command {
        Command::Publish { destination, .. } => brokers.get(destination).cloned(),
        _ => None,
    };
    Box::pin(async move {
        match command {
            Command::Define => Answer::Defined(source.destinations().await),
            Command::Acquire(request) => Answer::Acquired(source.acquire(&request).await),
            Command::Renew(request) => Answer::Renewed(source.renew(&request).await),
            Command::Release(leases) => Answer::Released(source.release(&leases).await),
            Command::Load(lease, id) => Answer::Loaded(source.load(&lease, &id).await),
            Command::Head(lease) => Answer::Head(source.head(&lease).await),
            Command::Fetch(request) => Answer::Fetched(source.fetch(&request).await),
            Command::Publish { start_by, batch, .. } if tick > start_by => {
                Answer::Published(Ok(vec![Outcome::Skipped; batch.len()]))
            }
            Command::Publish { batch, .. } => {
                Answer::Published(broker.expect("a broker").publish(&batch).await)
            }
            Command::Settle(settlement) => Answer::Settled(source.settle(&settlement).await),
            Command::Due(request) => Answer::Due(source.due(&request).await),
            Command::Admit(lease, rows) => Answer::Admitted(source.admit(&lease, rows).await),
            Command::CarryOut(request) => Answer::CarriedOut(source.carry_out(&request).await),
            Command::Retire(request) => Answer::Retired(retire(source, archive, request).await),
        }
    })
}
