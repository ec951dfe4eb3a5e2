//! The tables of the configuration, except those of destinations.
//!
//! A default is stated here once and compared with the engines' own by a test of the program.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{DestinationId, HandlerName};

use crate::address::Address;
use crate::aws::SqsSource;
use crate::choice::{CallFormat, LogFormat, LogLevel};
use crate::destination::DestinationConfig;
use crate::dynamodb::DynamoDbConfig;
use crate::kafka::KafkaSource;
use crate::key::Class::{Live, Restart};
use crate::name::HeaderName;
use crate::nats::NatsSource;
use crate::own_table::OwnTableConfig;
use crate::postgres::PostgresConfig;
use crate::secret::SecretRef;
use crate::section::section;
use crate::size::Size;

section! {
    /// Postrider's configuration. Every key can be overridden by an environment variable: the path
    /// in upper case, `__` between levels, `_` for any other sign.
    pub struct Config {
        /// The database with the outbox. If the address holds a password, write `env:NAME` or
        /// `file:PATH`.
        store: Option<Address> { class: Restart, example: "sqlite:///var/lib/shop.db" },
        /// A table of your own in that database, in place of Postrider's outbox.
        own_table: OwnTableConfig {},
        /// How PostgreSQL databases are used.
        postgres: PostgresConfig {},
        /// How the store is used, if it is on DynamoDB.
        dynamodb: DynamoDbConfig {},
        /// The relay's times and bounds.
        relay: Relay {},
        /// Where events go. The name of the table is the destination's id in the store.
        destinations: BTreeMap<DestinationId, DestinationConfig> {},
        /// Consumers that call your HTTP endpoint. The name of the table is the handler's name in
        /// the inbox.
        consume: BTreeMap<HandlerName, Consume> {},
        /// How long things are kept.
        retention: Retention {},
        /// The recount of what was delivered.
        reconcile: Reconcile {},
        /// When producers are told to slow down.
        backpressure: Backpressure {},
        /// Logs, metrics, and traces.
        observe: Observe {},
    }
}

section! {
    /// The relay's times and bounds. `heartbeat + publish_deadline + margin` must be shorter than
    /// `lease`, else a relay that lost its lease could still publish.
    pub struct Relay {
        /// How long a partition stays owned without renewal, on the database's clock. A crashed relay
        /// on another host delays its events so long.
        lease: Duration { default: "15s", min: "500ms", max: "10m", class: Restart },
        /// How often leases are renewed. With the defaults, four renewals may fail before publishing
        /// stops.
        heartbeat: Duration { default: "3s", min: "50ms", max: "5m", class: Restart },
        /// How long one publish may take before its outcome counts as unknown.
        publish_deadline: Duration { default: "5s", min: "50ms", max: "5m", class: Restart },
        /// What is kept between the last possible end of a publish and the end of the lease, for
        /// scheduling delays and clock rates.
        margin: Duration { default: "1s", min: "10ms", max: "1m", class: Restart },
        /// How long a drain waits for what is under way. Orchestrators allow at least 10 s.
        drain: Duration { default: "10s", min: "0s", max: "10m", class: Restart },
        /// The longest time between two polls of an empty outbox: two queries a second when idle.
        /// Stores that can wake the relay do not depend on it.
        poll_max: Duration { default: "500ms", min: "5ms", max: "1m", class: Restart },
        /// So many events of a destination may wait, over all partitions, dead letters included. At the bound nothing
        /// new of it is read until an eighth of them has gone; at half, `doctor` and an alert say who holds them.
        waiting_max: u64 { default: "1000000", min: "1", max: "1000000000", class: Restart },
        /// How much is read ahead.
        window: Window {},
    }
}

section! {
    /// How much a relay reads ahead of what is settled: what a crash may deliver again, and what
    /// memory may hold.
    pub struct Window {
        /// Rows of one partition and destination. More than 10,000 waiting events ahead of a cursor
        /// no store lists.
        rows: u32 { default: "8192", min: "1", max: "10000", class: Restart },
        /// The same in bytes: 16 pages of 1,000 rows of 1 KiB.
        bytes: Size { default: "16MiB", min: "64KiB", max: "1GiB", class: Restart },
        /// All windows of one relay together.
        total_bytes: Size { default: "24MiB", min: "64KiB", max: "16GiB", class: Restart },
        /// What of it is in memory: an event leaves it with its outcome, and 32 to 48 bytes stay until that is saved. So
        /// the relay fits in a small container however many partitions it owns.
        memory_bytes: Size { default: "8MiB", min: "64KiB", max: "16GiB", class: Restart },
    }
}

section! {
    /// A sidecar: receives from a queue, notes what was done in the inbox, and calls an HTTP endpoint
    /// in any language.
    pub struct Consume {
        /// The queue and the topics, with `*` for any run of characters; or of NATS the servers, the
        /// stream, and the subjects: `nats://HOST:PORT/STREAM/SUBJECT`; or of Kafka the servers and the
        /// topics: `kafka://HOST:PORT/TOPIC`; or of SQS the region and the queue: `sqs://REGION/QUEUE`.
        from: Address { required: true, example: "local://queue.db/order.*", class: Restart },
        /// The consumer group. Consumers of one group share its events. If absent, the handler's
        /// name.
        group: Option<String> { example: "billing", class: Restart },
        /// The database with the inbox.
        inbox: Address { required: true, example: "sqlite://billing.db", class: Restart },
        /// Where events are POSTed to.
        endpoint: Address {
            required: true, example: "http://127.0.0.1:8000/events", class: Restart,
        },
        /// How an event is written: `structured` (a CloudEvent in one JSON document) or `binary` (the payload as it is,
        /// the CloudEvent's attributes as headers).
        format: CallFormat { default: "structured", class: Restart },
        /// Headers of every call. Their values are secrets.
        headers: BTreeMap<HeaderName, SecretRef> { max: "32", class: Live },
        /// How long one call may take. It must end before its lease does.
        timeout: Duration { default: "30s", min: "100ms", max: "1h", class: Restart },
        /// How long an event stays claimed by a consumer that is not heard of.
        lease: Duration { default: "60s", min: "1s", max: "2h", class: Restart },
        /// Calls at once. More than most small services answer at a time, and fewer than would need
        /// another connection pool.
        concurrency: u32 { default: "16", min: "1", max: "1024", class: Restart },
        /// Calls of one event that count, the first included, before it is a dead letter.
        attempts: u32 { default: "10", min: "1", max: "10000", class: Restart },
        /// Where metrics and health of this sidecar are served. If absent, nowhere. An address that other
        /// machines can reach needs `observe.token`.
        listen: Option<SocketAddr> { example: "127.0.0.1:9465", class: Restart },
        /// The connection, if events come from NATS.
        nats: NatsSource {},
        /// The connection, if events come from Kafka.
        kafka: KafkaSource {},
        /// The connection, if events come from SQS.
        sqs: SqsSource {},
    }
}

section! {
    /// How long things are kept.
    pub struct Retention {
        /// How long events stay in the outbox after every destination has settled them. If absent,
        /// they are kept for ever; on DynamoDB for 7 days, by the table's time to live.
        outbox: Option<Duration> { min: "1m", max: "3650d", example: "7d", class: Restart },
        /// How long the inbox remembers what was done. It must be longer than any broker may deliver
        /// again: 14 days for cloud queues.
        inbox: Duration { default: "35d", min: "1m", max: "3650d", class: Restart },
        /// How long results of handlers and of their steps stay, at most as long as the inbox remembers that they were
        /// done; a copy that comes later is still not acted on, and is answered with an empty result. For PostgreSQL
        /// alone. If absent, they go with their rows: whoever asks again is answered what was stored.
        results: Option<Duration> { min: "1m", max: "3650d", example: "14d", class: Restart },
        /// A folder to which events are written before they are removed from the outbox.
        archive: Option<PathBuf> { example: "/var/lib/postrider/archive", class: Restart },
        /// How often removal runs.
        every: Duration { default: "1h", min: "1s", max: "1d", class: Restart },
    }
}

section! {
    /// The recount: what was committed is compared with what was settled, and what is missing is
    /// sent again.
    pub struct Reconcile {
        /// How often. Events must stay in the outbox at least so long.
        every: Duration { default: "1h", min: "1m", max: "30d", class: Restart },
    }
}

section! {
    /// When producers are told to slow down.
    pub struct Backpressure {
        /// Rows of backlog above which `postrider enqueue` refuses. If absent, it never does.
        /// Applications set their own: `Outbox::watermark`.
        rows: Option<u64> { min: "1", max: "1000000000000", example: "1000000" },
    }
}

section! {
    /// Logs, metrics, and traces.
    pub struct Observe {
        /// Where metrics and health are served. If absent, nowhere. An address that other machines
        /// can reach needs a `token`.
        listen: Option<SocketAddr> { example: "127.0.0.1:9464", class: Restart },
        /// What requests must bring as `Authorization: Bearer …`.
        token: Option<SecretRef> { example: "env:METRICS_TOKEN" },
        /// How much is logged.
        log: LogLevel { default: "info", class: Live },
        /// How a log line is written.
        log_format: LogFormat { default: "text", class: Restart },
        /// An OpenTelemetry collector, OTLP over HTTP. If absent, nothing is sent.
        otlp: Option<Address> { example: "http://127.0.0.1:4318", class: Restart },
    }
}
