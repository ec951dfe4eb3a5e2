//! The catalog: every metric with its kind, unit, labels, and meaning. The registry is filled from it,
//! and the reference page is made from it.

use std::fmt::Write as _;

/// What kind of metric, as OpenMetrics names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Without the suffix `_total` that counters get.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

/// Upper bounds of the histograms' buckets, in seconds: from a local commit's 1 ms to an outage's hour.
const BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 60.0, 600.0, 3600.0];

/// The same of the messaging conventions, as these recommend them: other programs' are there beside ours.
const CONVENTIONS_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

impl Entry {
    /// Whether its name and labels are those of the OpenTelemetry conventions, and not ours.
    pub(crate) fn is_of_conventions(&self) -> bool {
        self.name.starts_with("messaging_")
    }

    /// Upper bounds of its buckets, if it has some, in seconds.
    pub(crate) fn buckets(&self) -> &'static [f64] {
        if self.is_of_conventions() { &CONVENTIONS_BUCKETS } else { &BUCKETS }
    }
}

macro_rules! catalog {
    ($all:ident: $($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(pub(crate) const $constant: Entry = Entry {
            name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help,
        };)+
        /// These, as the page lists them.
        pub(crate) const $all: &[Entry] = &[$($constant),+];
    };
}

// Of a relay.
catalog! {
    RELAY: INFO = Gauge "postrider_build_info" ["version"]
        "1, with the version of this program";
    STATE = Gauge "postrider_relay_state" ["state"]
        "1 for the state that the relay is in: starting, standby, empty, moving, or blocked";
    OLDEST = Gauge "postrider_oldest_pending_age_seconds" ["destination"]
        "Age of the oldest event that the destination has neither acknowledged nor given up, 0 if there is none";
    PENDING = Gauge "postrider_pending_events" ["destination"]
        "Events that the destination's cursors have not passed, about: the sequence may have gaps, and on PostgreSQL many are reckoned from the first ones of each partition";
    WAITING = Gauge "postrider_waiting_events" ["destination", "state"]
        "Events that left the order: retrying, parked, held, disabled, or dead";
    WAITING_MAX = Gauge "postrider_waiting_events_max" []
        "So many events of a destination may wait, all states together, before this relay reads nothing new of it (relay.waiting_max)";
    FULL = Gauge "postrider_destination_full" ["destination"]
        "1 while this relay reads nothing new of the destination, because so many of its events wait";
    STANDING = Gauge "postrider_destination_standing" ["destination"]
        "1 while events of the destination do not move, though those of others may: this relay says at /readyz who holds them";
    DISABLED = Gauge "postrider_disabled_endpoints" ["destination"]
        "Endpoints that take nothing until an operator enables them";
    PAUSED = Gauge "postrider_destination_paused" ["destination"]
        "1 if an operator paused the destination";
    SCHEDULED = Gauge "postrider_scheduled_events" []
        "Events whose time has not come";
    REQUESTS = Gauge "postrider_open_requests" []
        "Requests of operators that are not carried out yet";
    STRAY = Gauge "postrider_default_table_bytes" []
        "Bytes of the table for events that no other was made for, where the store has one: over 64 MiB it is being split off";
    TRANSACTION_OPEN = Gauge "postrider_oldest_transaction_seconds" []
        "How long the oldest transaction of the database is open, or of another one of the server if it has a number, a prepared one included, where the store's database says so (PostgreSQL): dead rows are kept as long. Of other users' sessions it is known with pg_read_all_stats alone";
    XMIN_AGE = Gauge "postrider_oldest_xmin_age_transactions" []
        "How many transactions began since the oldest one that rows are still kept for, replication slots included, where the store's database says so (PostgreSQL)";
    DEAD_ROWS = Gauge "postrider_dead_rows" ["table"]
        "Rows of a table of the store that are dead and not cleaned away, by the statistics of the database (PostgreSQL): of outbox with all that it is divided into, outbox_waiting, outbox_cursor, and outbox_renewal";
    RELAYS = Gauge "postrider_relays" []
        "Relays that renewed within their lease";
    PARTITIONS = Gauge "postrider_partitions_owned" []
        "Partitions that this relay owns";
    WINDOW_EVENTS = Gauge "postrider_window_events" []
        "Events read and not saved: what a crash redelivers at most";
    WINDOW_BYTES = Gauge "postrider_window_bytes" []
        "Bytes of the same";
    WAITING_KEYS = Gauge "postrider_waiting_keys" []
        "Keys with waiting events, in the partitions that this relay owns";
    ENQUEUED = Counter "postrider_enqueued_events" []
        "Events ever committed to the outbox, as far as its sequence tells";
    PUBLISHED = Counter "postrider_published_events" ["destination"]
        "Events that a broker acknowledged to this relay";
    ATTEMPTS = Counter "postrider_attempts" ["destination", "outcome"]
        "Attempts by outcome: acked, failed (counts against the event), endpoint (counts against nobody's event)";
    DEAD = Counter "postrider_dead_events" ["destination", "reason"]
        "Dead letters that this relay made";
    DELIVERY = Histogram "postrider_delivery_seconds" ["destination"]
        "From the creation of an event's row to the acknowledgement, by the clocks of both";
    PUBLISH = Histogram "postrider_publish_seconds" ["destination"]
        "How long the call of the broker took that acknowledged an event";
    LEASES = Counter "postrider_lease_changes" ["change"]
        "Leases that this relay took or lost";
    FENCED = Counter "postrider_fenced_writes" []
        "Writes that the store refused because of a stale token: another relay has taken over";
    FETCHES = Counter "postrider_fetches" []
        "Pages read from the outbox";
    SETTLEMENTS = Counter "postrider_settlements" []
        "Settlements written or tried";
    PARTITIONS_ADDED = Counter "postrider_kafka_partitions_added" []
        "Partitions that were added to topics of Kafka while this relay sent to them: a key may stand in another one since; the log names the topic";
    DYNAMODB_IGNORED = Counter "postrider_dynamodb_ignored_items" ["reason"]
        "Items of DynamoDB that were let be: foreign (in the index, and none of ours; each once while 10,000 are remembered), marked (settled by another relay before), merged (waiting versions of a business item that were overwritten before their turn), or gone (deleted, or written without a stamp, before their turn: these events are lost)";
    DYNAMODB_STREAM = Counter "postrider_dynamodb_stream_troubles" ["trouble"]
        "Troubles with the stream of DynamoDB: without_image (a record whose item was fetched by its key), interruption (it could not be read, and the index was polled), or gap (records may have been missed, and the index was read from its front)";
    DYNAMODB_LAG = Gauge "postrider_dynamodb_stream_lag_seconds" []
        "Of the shard of the stream of DynamoDB that is read least far: how long ago it was that all it had was read; at its tip the time since the last answer, else the age of the last record read. One figure for all shards, whose names have no bound. It grows while the stream cannot be read; absent where none is";
    DYNAMODB_SHARDS = Gauge "postrider_dynamodb_stream_shards" ["at"]
        "Shards of the stream of DynamoDB that this relay reads: at their tip, or behind it. One that waits for its parent to be read is not counted";
    CERTIFICATE = Gauge "postrider_certificate_end_timestamp_seconds" ["destination"]
        "When our certificate for the destination's servers ends, in seconds since 1970, as it was read at the start or by the last reload; absent where we show none";
    RETIRED = Counter "postrider_retired_events" []
        "Events deleted by retention";
    VIOLATIONS = Counter "postrider_invariant_violations" ["invariant"]
        "Breaches of an invariant that this relay saw itself commit; any but 0 is a defect: report it";
    SCRAPES = Counter "postrider_scrape_failures" []
        "Readings of the store for this page that failed; the store's own figures are the last known then";
    SENT = Counter "messaging_client_sent_messages" ["messaging_operation_name", "messaging_system", "messaging_destination_name", "error_type"]
        "By the conventions: events that were given to a broker, each attempt of each. One that was not tried, because another before it failed, is not counted";
}

// Of both.
catalog! {
    BOTH: OPERATION = Histogram "messaging_client_operation_duration_seconds" ["messaging_operation_name", "messaging_operation_type", "messaging_system", "messaging_consumer_group_name", "messaging_destination_name", "error_type"]
        "By the conventions: how long a call of the broker took, once for each event of it, as spans are: send of a relay; ack, nack, and reject of a sidecar";
}

// Of a sidecar.
catalog! {
    SIDECAR: SIDECAR_INFO = Gauge "postrider_sidecar_build_info" ["version"]
        "1, with the version of this program";
    SIDECAR_STATE = Gauge "postrider_sidecar_state" ["handler", "state"]
        "1 for the state that the sidecar is in: receiving, blocked (by broker, inbox, or endpoint, or by an event that is tried alone), or draining";
    RECEIVED = Counter "postrider_received_events" ["handler"]
        "Deliveries that came in";
    HANDLED = Counter "postrider_handled_events" ["handler", "outcome"]
        "Events that are settled: done, duplicate (done before), or dead";
    CALLS_FAILED = Counter "postrider_failed_calls" ["handler", "counts"]
        "Calls that failed: event (counts against it), or endpoint (counts against nobody's event)";
    HELD = Gauge "postrider_held_events" ["handler", "state"]
        "Events in hand: working, waiting, suspect (of those, what may stop the process and is tried alone), or returned (given back and expected again)";
    CLAIMS_LOST = Counter "postrider_lost_claims" ["handler"]
        "Claims that were lost while the endpoint worked";
    SIDECAR_FAILURES = Counter "postrider_sidecar_failures" ["handler", "of"]
        "Failures to receive, to settle, and of the inbox: receive, settle, inbox";
    SIDECAR_CERTIFICATE = Gauge "postrider_sidecar_certificate_end_timestamp_seconds" ["handler"]
        "When our certificate for the source's servers ends, in seconds since 1970, as it was read at the start or by the last reload; absent where we show none";
    CONSUMED = Counter "messaging_client_consumed_messages" ["messaging_operation_name", "messaging_system", "messaging_consumer_group_name", "messaging_destination_name"]
        "By the conventions: deliveries that came in, what is no event included";
    PROCESS = Histogram "messaging_process_duration_seconds" ["messaging_operation_name", "messaging_system", "messaging_consumer_group_name", "messaging_destination_name", "error_type"]
        "By the conventions: how long an event was in work, from the hand-over to the verdict. One that waits for its endpoint, or for whoever has its claim, is not counted";
}

/// Those that a relay shows.
pub(crate) fn of_relay() -> impl Iterator<Item = &'static Entry> {
    RELAY.iter().chain(BOTH)
}

/// Those that a sidecar shows.
pub(crate) fn of_sidecar() -> impl Iterator<Item = &'static Entry> {
    SIDECAR.iter().chain(BOTH)
}

/// Every metric.
pub(crate) fn all() -> impl Iterator<Item = &'static Entry> {
    RELAY.iter().chain(SIDECAR).chain(BOTH)
}

/// The reference page.
pub(crate) fn page() -> String {
    let mut text = String::from(
        "# Metrics\n\n<!-- Made by `cargo x docs`. Change the code it is made from. -->\n\n\
         `observe.listen` in the configuration, or `--listen ADDRESS`, serves those of a relay as OpenMetrics 1.0 at \
         `/metrics`; `listen` of a consumer, or `postrider consume --listen ADDRESS`, those of a sidecar, whose \
         description says so or whose label is `handler`. A label never holds a key, an id, or a tenant, nor a topic that an \
         event decides: their number has no bound.\n\n\
         Those that begin with `messaging_` follow the OpenTelemetry semantic conventions 1.43.0, as our \
         [traces](../guide/tracing.md) do, with their buckets and with their names as Prometheus spells them, so that a \
         dashboard for other programs shows ours. The conventions for messaging are still in development, so a later \
         version of Postrider may follow other ones. `messaging_destination_name` is the topic where a route or a source \
         names it without a field of the event or a wildcard (the first 100 of each), and is absent elsewhere; \
         `error_type` says what kind of failure (`timeout`, `rejected`, …; `dropped` for a call that was given up), and \
         is absent where there was none.\n\n\
         | Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n",
    );
    for entry in all() {
        let suffix = if entry.kind == Kind::Counter { "_total" } else { "" };
        let labels: Vec<String> = entry.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (entry.name, format!("{:?}", entry.kind).to_lowercase());
        // Writing to a String cannot fail.
        _ = writeln!(
            text,
            "| `{name}{suffix}` | {kind} | {} | {} |",
            labels.join(", "),
            entry.help
        );
    }
    text
}
