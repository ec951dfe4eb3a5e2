//! `idle`: how many transactions a second a relay costs its database while nothing happens.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::server::Server;
use crate::broker::NoopBroker;
use crate::measure::{Series, cpu_seconds};
use crate::options::{Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::{Result, progress, relay};

const SECONDS: u64 = 20;

/// Queries a second that an idle relay may cost its database.
const AIM: f64 = 4.0;

/// How long a relay has to slow down, and the server to write down what it counted.
pub(crate) const SETTLE: Duration = Duration::from_secs(12);

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let seconds = options.idle_seconds.unwrap_or(SECONDS);
    let runtime = relay::runtime()?;
    let server = Server::start(&runtime)?;
    let look = |name: &str| look(&runtime, &server, name, seconds, SETTLE);
    let alone = look("nobody")?;
    let handle = relay::start_store(&runtime, Arc::new(server.store()?), Arc::new(NoopBroker))?;
    let cpu = cpu_seconds();
    let ours = look("ours")?;
    let cpu = (cpu_seconds() - cpu) * 60.0 / (seconds + SETTLE.as_secs()) as f64;
    relay::stop(&runtime, handle);
    let series = [
        Series { name: "ours", rates: vec![ours - alone] },
        Series { name: "nobody", rates: vec![alone] },
    ];
    Ok(Outcome::new("idle", "noop", seconds, 1, &series)
        .on(StoreKind::Postgres, &server.version(&runtime)?)
        .add("cpu_seconds_per_minute", rounded(cpu))
        .note("rates are transactions of the server a second, ours without those of an idle server")
        .aim_at_most("queries a second", AIM, ours - alone))
}

/// How many transactions a second the server does, after so long.
pub(crate) fn look(
    runtime: &Runtime,
    server: &Server,
    name: &str,
    seconds: u64,
    after: Duration,
) -> Result<f64> {
    progress(format_args!("{name}: {seconds} s"));
    runtime.block_on(async {
        let client = server.connect().await?;
        let count = include_str!("../../sql/postgres/transactions.sql");
        tokio::time::sleep(after).await; // waits: for the relay to slow down
        let before: i64 = client.query_one(count, &[]).await?.get(0);
        tokio::time::sleep(Duration::from_secs(seconds)).await; // waits: what is measured
        let after: i64 = client.query_one(count, &[]).await?.get(0);
        Ok((after - before) as f64 / seconds as f64)
    })
}

/// How long a relay takes to slow down to such an interval: its pauses double.
pub(crate) fn settled_in(interval: Duration) -> Duration {
    interval * 2 + Duration::from_millis(100)
}
