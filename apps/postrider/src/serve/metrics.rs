//! Metrics: what this process counts. What the store knows is read when somebody asks (`scrape.rs`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::serve::catalog::{Entry, Kind};

/// Names and values, in the order of the catalog.
type Labels = Vec<(&'static str, String)>;

/// Upper bounds of the histograms' buckets, in seconds: from a local commit's 1 ms to an outage's
/// hour.
const BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 60.0, 600.0, 3600.0];

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

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl Metrics {
    /// Those of a relay, or of a sidecar.
    pub(crate) fn of(entries: &[Entry]) -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::default(),
            counters: BTreeMap::new(),
            gauges: BTreeMap::new(),
            histograms: BTreeMap::new(),
            totals: Mutex::default(),
        };
        for Entry { name, kind, help, .. } in entries {
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
                    let family = Histograms::new_with_constructor(histogram);
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

    /// Forgets the values of a gauge, before those that still exist are set.
    pub(crate) fn clear(&self, entry: Entry) {
        if let Some(family) = self.gauges.get(entry.name) {
            family.clear();
        }
    }

    /// Counts a duration.
    pub(crate) fn observe(&self, entry: Entry, labels: &[&str], span: Duration) {
        if let Some(family) = self.histograms.get(entry.name) {
            family.get_or_create(&named(entry, labels)).observe(span.as_secs_f64());
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

fn named(entry: Entry, values: &[&str]) -> Labels {
    debug_assert_eq!(entry.labels.len(), values.len(), "{}", entry.name);
    entry.labels.iter().copied().zip(values.iter().map(|value| (*value).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::catalog;

    #[test]
    fn what_is_counted_is_told_as_openmetrics() {
        let metrics = Metrics::of(catalog::RELAY);
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
            assert!(entry.name.starts_with("postrider_") && !entry.name.ends_with("_total"));
            assert!(!entry.help.is_empty() && !entry.help.ends_with('.'), "{}", entry.name);
            for banned in ["key", "id", "event_id", "tenant", "topic", "endpoint"] {
                assert!(!entry.labels.contains(&banned), "{}: unbounded", entry.name);
            }
        }
    }
}
