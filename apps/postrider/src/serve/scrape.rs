//! A scrape: the process's own counters, the relay's health, and what the store knows, at one moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::operate::{Bloat, DestinationView, Overview};
use postrider_core::{BoxFuture, DestinationState, Operator};
use postrider_relay::{Blocker, Health, State};
use serde::Serialize;
use tokio::sync::{Mutex, watch};

use crate::certificate::Ends;
use crate::dynamodb::show_tally;
use crate::relay::kafka::added_partitions;
use crate::serve::metrics::Metrics;
use crate::serve::{Shown, catalog};

/// How long a reading of the store is shown again: many scrapers cost no more than one.
const FRESH: Duration = Duration::from_secs(1);

/// How long a reading of the database's own state is shown again: what it tells of changes over minutes, and it looks
/// at every session of the server.
const SELDOM: Duration = Duration::from_secs(60);

/// How long a reading may take before the last one is shown instead.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is looked at.
pub(crate) struct View {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: watch::Receiver<Health>,
    pub(crate) operator: Arc<dyn Operator>,
    ends: Ends,
    read: Mutex<Read>,
}

/// When was read what is shown.
#[derive(Debug, Default)]
struct Read {
    overview: Option<Instant>,
    bloat: Option<Instant>,
}

/// Whether events move, and if not, who holds them up.
#[derive(Debug, Serialize)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    pub(crate) state: &'static str,
    pub(crate) blockers: Vec<String>,
}

impl View {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        health: watch::Receiver<Health>,
        operator: Arc<dyn Operator>,
        ends: Ends,
    ) -> View {
        View { metrics, health, operator, ends, read: Mutex::default() }
    }

    fn show_health(&self, health: &Health) {
        let metrics = &self.metrics;
        metrics.set(catalog::INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        for state in [State::Starting, State::Standby, State::Empty, State::Moving, State::Blocked]
        {
            let present = f64::from(u8::from(state == health.state));
            metrics.set(catalog::STATE, &[name(state)], present);
        }
        metrics.set(catalog::PARTITIONS, &[], f64::from(health.partitions));
        metrics.set(catalog::WINDOW_EVENTS, &[], health.window_rows as f64);
        metrics.set(catalog::WINDOW_BYTES, &[], health.window_bytes as f64);
        metrics.set(catalog::WAITING_KEYS, &[], health.waiting_keys as f64);
        metrics.set(catalog::WAITING_MAX, &[], health.waiting_max as f64);
        metrics.clear(catalog::FULL);
        for blocker in &health.blockers {
            if let Blocker::WaitingFull { destination, .. } = blocker {
                metrics.set(catalog::FULL, &[destination.as_str()], 1.0);
            }
        }
        metrics.clear(catalog::STANDING);
        for destination in &health.standing {
            metrics.set(catalog::STANDING, &[destination.as_str()], 1.0);
        }
        metrics.total(catalog::LEASES, &["taken"], health.leases_taken);
        metrics.total(catalog::LEASES, &["lost"], health.leases_lost);
        metrics.total(catalog::FENCED, &[], health.fenced);
        metrics.total(catalog::FETCHES, &[], health.fetches);
        metrics.total(catalog::SETTLEMENTS, &[], health.settlements);
        metrics.total(catalog::PARTITIONS_ADDED, &[], added_partitions());
        metrics.set_moments(catalog::CERTIFICATE, &self.ends.all());
        show_tally(metrics);
        for (invariant, count) in health.violations.iter() {
            metrics.total(catalog::VIOLATIONS, &[&invariant.to_string()], count);
        }
    }

    fn show_store(&self, overview: &Overview) {
        let metrics = &self.metrics;
        // A destination that was removed is not shown for ever.
        for entry in [
            catalog::OLDEST,
            catalog::PENDING,
            catalog::WAITING,
            catalog::DISABLED,
            catalog::PAUSED,
        ] {
            metrics.clear(entry);
        }
        for destination in &overview.destinations {
            self.show_destination(destination, overview);
        }
        metrics.set(catalog::SCHEDULED, &[], overview.scheduled as f64);
        metrics.set(catalog::REQUESTS, &[], overview.requests as f64);
        if let Some(bytes) = overview.stray_bytes {
            metrics.set(catalog::STRAY, &[], bytes as f64);
        }
        metrics.set(catalog::RELAYS, &[], overview.relays.len() as f64);
        metrics.total(catalog::ENQUEUED, &[], overview.enqueued);
    }

    fn show_bloat(&self, bloat: &Bloat) {
        let metrics = &self.metrics;
        metrics.set(catalog::TRANSACTION_OPEN, &[], bloat.transaction_open.as_secs_f64());
        metrics.set(catalog::XMIN_AGE, &[], bloat.xmin_age as f64);
        for (table, rows) in &bloat.dead_rows {
            metrics.set(catalog::DEAD_ROWS, &[table], *rows as f64);
        }
    }

    fn show_destination(&self, view: &DestinationView, overview: &Overview) {
        let (metrics, id) = (&self.metrics, view.id.as_str());
        let oldest = [view.pending_since, view.waiting_since].into_iter().flatten().min();
        let age = oldest.map(|oldest| overview.now.since(oldest)).unwrap_or_default();
        metrics.set(catalog::OLDEST, &[id], age.as_secs_f64());
        metrics.set(catalog::PENDING, &[id], view.pending as f64);
        let waiting = view.waiting;
        for (state, count) in [
            ("retrying", waiting.retrying),
            ("parked", waiting.parked),
            ("held", waiting.held),
            ("disabled", waiting.disabled),
            ("dead", waiting.dead),
        ] {
            metrics.set(catalog::WAITING, &[id, state], count as f64);
        }
        metrics.set(catalog::DISABLED, &[id], view.disabled.len() as f64);
        let paused = view.state == DestinationState::Paused;
        metrics.set(catalog::PAUSED, &[id], f64::from(u8::from(paused)));
    }
}

fn is_due(read: Option<Instant>, fresh: Duration) -> bool {
    read.is_none_or(|at| at.elapsed() >= fresh)
}

impl Shown for View {
    /// Ready is empty, moving, or standing by for another relay that works.
    fn readiness(&self) -> Readiness {
        let health = self.health.borrow();
        let ready = matches!(health.state, State::Empty | State::Moving | State::Standby);
        let blockers = health.blockers.iter().map(ToString::to_string).collect();
        Readiness { ready, state: name(health.state), blockers }
    }

    fn scrape(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            {
                let mut read = self.read.lock().await;
                if is_due(read.bloat, SELDOM) {
                    match tokio::time::timeout(PATIENCE, self.operator.bloat()).await {
                        Ok(Ok(bloat)) => bloat.iter().for_each(|bloat| self.show_bloat(bloat)),
                        _ => self.metrics.add(catalog::SCRAPES, &[], 1),
                    }
                    read.bloat = Some(Instant::now());
                }
                if is_due(read.overview, FRESH) {
                    match tokio::time::timeout(PATIENCE, self.operator.overview()).await {
                        Ok(Ok(overview)) => self.show_store(&overview),
                        _ => self.metrics.add(catalog::SCRAPES, &[], 1),
                    }
                    read.overview = Some(Instant::now());
                }
            }
            self.show_health(&self.health.borrow());
            self.metrics.text()
        })
    }
}

fn name(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Standby => "standby",
        State::Empty => "empty",
        State::Moving => "moving",
        State::Blocked => "blocked",
    }
}
