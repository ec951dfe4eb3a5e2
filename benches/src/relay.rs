//! A relay as production has it: default settings, a runtime with a thread per processor.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{Broker, Destination, DestinationId, OutboxSource, Route, Template};
use postrider_relay::{Ending, Health, Relay, RelayHandle, Settings, State, Target};
use postrider_sqlite::SqliteStore;
use tokio::runtime::Runtime;

use crate::Result;
use crate::measure::{rate, written_bytes};

/// How long a relay may take to be ready, or to finish something small.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where events go, unless a benchmark says otherwise.
const TOPIC: &str = "orders";

/// What a drain came to.
pub(crate) struct Drained {
    pub(crate) per_s: f64,
    pub(crate) health: Health,
    /// Bytes that this process wrote meanwhile: log, checkpoints, and a few for wake-ups.
    pub(crate) written_bytes: u64,
}

pub(crate) fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Delivers everything, from opening the store to letting the leases go, and checks that it did.
pub(crate) fn drain(
    runtime: &Runtime,
    path: &Path,
    broker: Arc<dyn Broker>,
    rows: u64,
) -> Result<Drained> {
    drain_store(runtime, Arc::new(SqliteStore::new(path)?), broker, rows)
}

/// The same from any store.
pub(crate) fn drain_store(
    runtime: &Runtime,
    store: Arc<dyn OutboxSource>,
    broker: Arc<dyn Broker>,
    rows: u64,
) -> Result<Drained> {
    drain_route(runtime, store, broker, rows, everywhere()?, Settings::default())
}

/// The same along a route, with settings that are not the defaults.
pub(crate) fn drain_route(
    runtime: &Runtime,
    store: Arc<dyn OutboxSource>,
    broker: Arc<dyn Broker>,
    rows: u64,
    route: Route,
    settings: Settings,
) -> Result<Drained> {
    let written = written_bytes();
    let start = Instant::now();
    let report = runtime.block_on(async {
        let destination = destination("bench", route)?;
        let builder = Relay::builder(store).destination(destination, broker).settings(settings);
        let relay = builder.target(Target::Once).start().await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(relay.stopped().await)
    })?;
    let per_s = rate(rows, start);
    let health = report.health;
    if report.ending != Some(Ending::Done) || health.delivered != rows || health.dead > 0 {
        return Err(format!(
            "the relay ended with {:?} after {} of {rows} events, {} of them dead",
            report.ending, health.delivered, health.dead
        )
        .into());
    }
    Ok(Drained { per_s, health, written_bytes: written_bytes().saturating_sub(written) })
}

/// Starts a relay that runs until it is told to stop, and waits until it has nothing to do.
pub(crate) fn start(
    runtime: &Runtime,
    path: &Path,
    broker: Arc<dyn Broker>,
) -> Result<RelayHandle> {
    start_store(runtime, Arc::new(SqliteStore::new(path)?), broker)
}

/// The same on any store.
pub(crate) fn start_store(
    runtime: &Runtime,
    store: Arc<dyn OutboxSource>,
    broker: Arc<dyn Broker>,
) -> Result<RelayHandle> {
    let relay = start_destinations(runtime, store, vec![("bench", broker)])?;
    runtime.block_on(ready(relay))
}

/// The same along a route that takes every event.
#[cfg(feature = "brokers")]
pub(crate) fn start_route(
    runtime: &Runtime,
    store: Arc<dyn OutboxSource>,
    broker: Arc<dyn Broker>,
    route: Route,
) -> Result<RelayHandle> {
    let builder = Relay::builder(store).destination(destination("bench", route)?, broker);
    runtime.block_on(async { ready(builder.start().await?).await })
}

/// Waits until a relay has nothing to do.
pub(crate) async fn ready(relay: RelayHandle) -> Result<RelayHandle> {
    let mut health = relay.health();
    let ready = health.wait_for(|health| health.state == State::Empty);
    tokio::time::timeout(PATIENCE, ready).await??;
    Ok(relay)
}

/// Starts a relay with so many destinations, which runs until it is told to stop.
pub(crate) fn start_destinations(
    runtime: &Runtime,
    store: Arc<dyn OutboxSource>,
    destinations: Vec<(&str, Arc<dyn Broker>)>,
) -> Result<RelayHandle> {
    let mut builder = Relay::builder(store);
    for (name, broker) in destinations {
        builder = builder.destination(destination(name, everywhere()?)?, broker);
    }
    Ok(runtime.block_on(builder.start())?)
}

/// Stops a relay and waits until it has.
pub(crate) fn stop(runtime: &Runtime, relay: RelayHandle) {
    relay.drain();
    runtime.block_on(relay.stopped());
}

/// A route that takes every event.
pub(crate) fn everywhere() -> Result<Route> {
    Ok(Route::all(TOPIC.parse::<Template>()?))
}

/// A destination with one route.
pub(crate) fn destination(name: &str, route: Route) -> Result<Destination> {
    Ok(Destination::new(DestinationId::new(name)?, "bench", vec![route]))
}
