//! Metrics: what this process counts. What the store knows is read when somebody asks (`scrape.rs`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider_core::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::serve::catalog::{self, Entry, Kind};

/// Names and values, in the order of the catalog.
type Labels = Vec<(&'static str, String)>;

type Gauges = Family<Labels, Gauge<f64, std::sync::atomic::AtomicU64>>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Everything that is counted.
pub(crate) struct Metrics {
    registry: Registry,
    counters: BTreeMap<&'static str, Family<Labels, Counter>>,
    gauges: BTreeMap<&'static str, Gauges>,
    histograms: BTreeMap<&'static str, Histograms>,
    /// Counters that somebody else counts, at their last value.
    totals: Mutex<BTreeMap<(&'static str, Labels), u64>>,
}

fn ours() -> Histogram {
    Histogram::new(catalog::DELIVERY.buckets().iter().copied())
}

fn of_conventions() -> Histogram {
    Histogram::new(catalog::OPERATION.buckets().iter().copied())
}

impl Metrics {
    /// Those of a relay, or of a sidecar.
    pub(crate) fn of(entries: impl Iterator<Item = &'static Entry>) -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::default(),
            counters: BTreeMap::new(),
            gauges: BTreeMap::new(),
            histograms: BTreeMap::new(),
            totals: Mutex::default(),
        };
        for entry in entries {
            let Entry { name, kind, help, .. } = entry;
            match kind {
                Kind::Counter => {
                    let family = Family::default();
                    metrics.registry.register(*name, *help, Family::clone(&family));
                    metrics.counters.insert(name, family);
                }
                Kind::Gauge => {
                    let family = Gauges::default();
                    metrics.registry.register(*name, *help, family.clone());
                    metrics.gauges.insert(name, family);
                }
                Kind::Histogram => {
                    let fresh = if entry.is_of_conventions() { of_conventions } else { ours };
                    let family = Histograms::new_with_constructor(fresh);
                    metrics.registry.register(*name, *help, family.clone());
                    metrics.histograms.insert(name, family);
                }
            }
        }
        metrics
    }

    /// Adds to a counter.
    pub(crate) fn add(&self, entry: Entry, labels: &[&str], more: u64) {
        if let Some(family) = self.counters.get(entry.name) {
            family.get_or_create(&named(entry, labels)).inc_by(more);
        }
    }

    /// Brings a counter up to a total that somebody else keeps. It never goes back: a total that did
    /// began anew.
    pub(crate) fn total(&self, entry: Entry, labels: &[&str], total: u64) {
        let labels = named(entry, labels);
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let last = totals.entry((entry.name, labels.clone())).or_default();
        let more = total.saturating_sub(*last);
        *last = total;
        if let Some(family) = self.counters.get(entry.name) {
            family.get_or_create(&labels).inc_by(more);
        }
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, entry: Entry, labels: &[&str], value: f64) {
        if let Some(family) = self.gauges.get(entry.name) {
            family.get_or_create(&named(entry, labels)).set(value);
        }
    }

    /// Sets a gauge to moments, by its one label, and forgets those that are not there any more.
    pub(crate) fn set_moments(&self, entry: Entry, moments: &BTreeMap<String, Timestamp>) {
        self.clear(entry);
        for (label, moment) in moments {
            self.set(entry, &[label], moment.as_micros() as f64 / 1e6);
        }
    }

    /// Forgets the values of a gauge, before those that still exist are set.
    pub(crate) fn clear(&self, entry: Entry) {
        if let Some(family) = self.gauges.get(entry.name) {
            family.clear();
        }
    }

    /// Counts a duration.
    pub(crate) fn observe(&self, entry: Entry, labels: &[&str], span: Duration) {
        self.observe_all(entry, labels, span, 1);
    }

    /// Counts a duration so often: what all of a batch took.
    pub(crate) fn observe_all(&self, entry: Entry, labels: &[&str], span: Duration, count: u64) {
        if let Some(family) = self.histograms.get(entry.name) {
            let histogram = family.get_or_create(&named(entry, labels));
            (0..count).for_each(|_| histogram.observe(span.as_secs_f64()));
        }
    }

    /// Everything, as OpenMetrics text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

/// The labels with their values. An empty one is an absent one, to whoever reads them.
fn named(entry: Entry, values: &[&str]) -> Labels {
    debug_assert_eq!(entry.labels.len(), values.len(), "{}", entry.name);
    let labels = entry.labels.iter().copied().zip(values.iter().map(|value| (*value).to_owned()));
    labels.filter(|(_, value)| !value.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told_as_openmetrics() {
        let metrics = Metrics::of(catalog::of_relay());
        metrics.add(catalog::PUBLISHED, &["queue"], 3);
        metrics.total(catalog::FENCED, &[], 2);
        metrics.total(catalog::FENCED, &[], 5);
        metrics.set(catalog::PENDING, &["queue"], 7.0);
        metrics.observe(catalog::DELIVERY, &["queue"], Duration::from_millis(3));
        let text = metrics.text();
        for line in [
            "# TYPE postrider_published_events counter",
            "postrider_published_events_total{destination=\"queue\"} 3",
            "postrider_fenced_writes_total{} 5",
            "postrider_pending_events{destination=\"queue\"} 7.0",
            "postrider_delivery_seconds_bucket{le=\"0.005\",destination=\"queue\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn every_metric_has_a_name_of_ours_and_a_meaning() {
        for entry in catalog::all() {
            let is_ours = entry.name.starts_with("postrider_");
            assert!(is_ours != entry.is_of_conventions(), "{}", entry.name);
            assert!(!entry.name.ends_with("_total"));
            assert!(!entry.help.is_empty() && !entry.help.ends_with('.'), "{}", entry.name);
            for banned in ["key", "id", "event_id", "tenant", "topic", "endpoint"] {
                assert!(!entry.labels.contains(&banned), "{}: unbounded", entry.name);
            }
        }
    }
}
