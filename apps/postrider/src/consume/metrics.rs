//! What a sidecar shows to machines: what it did, what it holds, and who holds it up.
//!
//! Invariant: looking changes nothing, and asks neither broker, inbox, nor endpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use postrider_core::BoxFuture;
use postrider_inbox::Health;

use super::plan::Plan;
use super::watch::{Watched, trouble};
use crate::certificate::Ends;
use crate::failure::Failure;
use crate::serve::{self, Listening, Metrics, Readiness, Served, Shown, catalog};
use crate::terminal;

/// A sidecar, as it is looked at.
struct View {
    metrics: Arc<Metrics>,
    handler: String,
    watched: Arc<Watched>,
    ends: Ends,
}

/// Serves metrics and health, if that is wanted.
///
/// # Errors
/// A configuration failure if the address cannot be bound, or is not loopback and has no token.
pub(super) async fn listen(
    plan: &Plan,
    watched: &Arc<Watched>,
    (metrics, ends): (Arc<Metrics>, Ends),
) -> Result<Option<Listening>, Failure> {
    let Some(address) = plan.listen else { return Ok(None) };
    let view =
        View { metrics, handler: plan.handler.to_string(), watched: Arc::clone(watched), ends };
    let served = Served { view: Arc::new(view), token: plan.token.clone() };
    let listening = serve::listen(address, served, "`[consume.NAME] listen`").await?;
    terminal::note(&format!("metrics and health on http://{}", listening.address()));
    Ok(Some(listening))
}

impl View {
    fn state(&self) -> &'static str {
        match self.watched.consumer.health() {
            Health::Draining | Health::Stopped => "draining",
            _ if trouble(&self.watched).is_some() => "blocked",
            _ => "receiving",
        }
    }

    fn show(&self) {
        let (metrics, handler) = (&self.metrics, self.handler.as_str());
        metrics.set_moments(catalog::SIDECAR_CERTIFICATE, &self.ends.all());
        let stats = self.watched.consumer.stats();
        metrics.set(catalog::SIDECAR_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        let present = self.state();
        for state in ["receiving", "blocked", "draining"] {
            let is_present = f64::from(u8::from(state == present));
            metrics.set(catalog::SIDECAR_STATE, &[handler, state], is_present);
        }
        metrics.total(catalog::RECEIVED, &[handler], stats.received);
        for (outcome, total) in
            [("done", stats.done), ("duplicate", stats.duplicates), ("dead", stats.rejected)]
        {
            metrics.total(catalog::HANDLED, &[handler, outcome], total);
        }
        let uncounted = self.watched.tally.uncounted.load(Ordering::Relaxed);
        for (counts, total) in [("event", stats.retried), ("endpoint", uncounted)] {
            metrics.total(catalog::CALLS_FAILED, &[handler, counts], total);
        }
        let waiting = stats.held.saturating_sub(stats.in_work);
        for (state, count) in [
            ("working", stats.in_work),
            ("waiting", waiting),
            ("suspect", stats.suspects),
            ("returned", stats.away),
        ] {
            metrics.set(catalog::HELD, &[handler, state], count as f64);
        }
        let lost = self.watched.tally.lost.load(Ordering::Relaxed);
        metrics.total(catalog::CLAIMS_LOST, &[handler], lost);
        for (of, total) in [
            ("receive", stats.receive_failed),
            ("settle", stats.settle_failed),
            ("inbox", stats.store_failed),
        ] {
            metrics.total(catalog::SIDECAR_FAILURES, &[handler, of], total);
        }
    }
}

impl Shown for View {
    /// Ready is receiving: an endpoint that is away holds events up, and is the blocker that is named.
    fn readiness(&self) -> Readiness {
        let state = self.state();
        let blockers = trouble(&self.watched).map(|(cause, _)| cause).into_iter().collect();
        Readiness { ready: state == "receiving", state, blockers }
    }

    fn scrape(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            self.show();
            self.metrics.text()
        })
    }
}
