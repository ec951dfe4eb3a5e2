//! What the operator says: servers, who we are, whom to believe, and times.
//!
//! Invariant: `Debug` shows no secret.

use std::fmt;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, RecordKey, Result};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};

use crate::notice::Notices;
use crate::servers;
use crate::subscription::SubscriptionSettings;
use crate::throttle::REPORT_EVERY;

/// The longest deadline of a publish.
const DEADLINE_MAX: Duration = Duration::from_secs(10 * 60);
/// The shortest: below it nothing would be connected to in time.
const DEADLINE_MIN: Duration = Duration::from_millis(200);
/// The longest that a record waits for others.
const LINGER_MAX: Duration = Duration::from_millis(500);
/// Between two looks at a topic: each asks the cluster twice, and whoever adds partitions waits for one.
const REFRESH: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// The most batches under way at once.
const BATCHES_MAX: u32 = 256;
/// Events of one batch: what the relay gives at once. More would only wait in the client.
pub(crate) const ROWS_MAX: u32 = 1_000;
/// Bytes of one batch, two of the client's own.
pub(crate) const BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Bytes of one record, so that the topic's own limit is what counts: events are smaller.
pub(crate) const RECORD_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Bytes of what the client sends as one: below every broker's default limit (1,048,588).
pub(crate) const SET_BYTES_MAX: u64 = 1_000_000;

/// The settings of a connection to Kafka.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KafkaSettings {
    /// Servers of one cluster, as `host:port`. Others of the cluster are learnt from them.
    pub servers: Vec<String>,
    /// Who we are. Default: nobody.
    pub sasl: Option<Sasl>,
    /// Encryption, and whom to believe. Default: none. Needs the feature `tls`.
    pub tls: Option<Tls>,
    /// From the beginning of a publish to its last acknowledgement, waiting for a connection included.
    /// Default 4 s: less than the relay's own publish deadline (5 s), so that each event is named in the answer.
    pub deadline: Duration,
    /// Batches under way at once. Default 8: enough to fill the round trip to three replicas.
    pub batches_in_flight: u32,
    /// How long a record waits for others to be sent with. Default not at all: a batch of the relay is given to the
    /// client at once, so a millisecond is only waited for. With answers that take half the deadline, 5 ms: five requests
    /// are under way at once, and a batch's sixth waits for an answer.
    pub linger: Duration,
    /// How records are compressed. Default: not at all.
    pub compression: Compression,
    /// The key of a record, where its route gives none. Default `{aggregate_id}`.
    pub record_key: RecordKey,
    /// How often topics are looked at: how late it is noticed that partitions were added, or that a limit was
    /// changed. Default 5 min: topics change rarely, and one that is gone is noticed at once.
    pub refresh: Duration,
    /// Who is told of what changes at the cluster. Default: nobody.
    pub notices: Notices,
}

/// How records are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Little work, and about half the bytes of JSON.
    Lz4,
    /// More work, and the fewest bytes. Brokers from 2.1 on.
    Zstd,
    /// As LZ4.
    Snappy,
    /// Much work.
    Gzip,
}

impl Compression {
    fn word(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
            Compression::Snappy => "snappy",
            Compression::Gzip => "gzip",
        }
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Secret {
        Secret(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Who we are, for the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sasl {
    /// How it is shown.
    pub mechanism: Mechanism,
    /// The user's name.
    pub user: String,
    /// The user's password.
    pub password: Secret,
}

/// How a password is shown to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// As it is: for encrypted connections.
    Plain,
    /// Proved, never sent. Needs the feature `tls`, whose library computes it.
    ScramSha256,
    /// Proved, never sent. Needs the feature `tls`, whose library computes it.
    ScramSha512,
}

impl Mechanism {
    fn word(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// Encryption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A file of root certificates in PEM to believe in place of the system's.
    pub roots: Option<PathBuf>,
    /// Files of our certificate and its key in PEM, for a server that asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// The files, with their settings.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let ours = self.identity.iter().flat_map(|(certificate, key)| {
            [("certificate", certificate), ("certificate_key", key)]
        });
        self.roots.iter().map(|roots| ("roots", roots)).chain(ours)
    }
}

impl KafkaSettings {
    /// The defaults, with servers: `host:port`, several with commas between, `kafka://` before them or not.
    pub fn new(servers: &str) -> KafkaSettings {
        let servers = servers.strip_prefix("kafka://").unwrap_or(servers);
        let servers = servers.split(',').map(|server| server.trim().to_owned());
        KafkaSettings {
            servers: servers.filter(|server| !server.is_empty()).collect(),
            sasl: None,
            tls: None,
            deadline: Duration::from_secs(4),
            batches_in_flight: 8,
            linger: Duration::ZERO,
            compression: Compression::None,
            record_key: RecordKey::aggregate_id(),
            refresh: Duration::from_secs(300),
            notices: Notices::default(),
        }
    }

    /// How long the client tries to deliver a record. What is left of the deadline is for finding the topic
    /// before, and for hearing of the failure after: the client looks at times once a second.
    pub(crate) fn delivery(&self) -> Duration {
        self.deadline * 5 / 8
    }

    /// How long finding the topic may take, the connection included.
    pub(crate) fn preparation(&self) -> Duration {
        self.deadline - self.delivery()
    }

    /// The servers, for a message.
    pub(crate) fn shown(&self) -> String {
        self.servers.join(", ")
    }

    pub(crate) fn check(&self) -> Result<()> {
        servers::check(&self.servers)?;
        if !(DEADLINE_MIN..=DEADLINE_MAX).contains(&self.deadline) {
            return Err(wrong("`deadline` is 200 ms to 10 min"));
        }
        if self.linger > LINGER_MAX || self.linger > self.deadline / 4 {
            return Err(wrong("`linger` is at most 500 ms, and a quarter of `deadline`"));
        }
        if !(1..=BATCHES_MAX).contains(&self.batches_in_flight) {
            return Err(wrong(format!("`batches_in_flight` is 1 to {BATCHES_MAX}")));
        }
        if !REFRESH.contains(&self.refresh) {
            return Err(wrong("`refresh` is 1 s to 1 h"));
        }
        let scram = self.sasl.as_ref().is_some_and(|sasl| sasl.mechanism != Mechanism::Plain);
        if !cfg!(feature = "tls") && (self.tls.is_some() || scram) {
            return Err(wrong(
                "TLS and SCRAM need OpenSSL, which this build is without: build with the feature `tls` of \
                 postrider-kafka (`kafka-tls` of the program)",
            ));
        }
        self.tls.iter().flat_map(Tls::named).try_for_each(|(_, path)| match File::open(path) {
            Ok(_) => Ok(()),
            Err(error) => Err(wrong(format!("`{}` cannot be read: {error}", path.display()))),
        })
    }

    /// What producers, consumers, and administrators have in common.
    pub(crate) fn connection(&self) -> ClientConfig {
        let millis = |span: Duration| span.as_millis().to_string();
        let mut config = ClientConfig::new();
        config.log_level = RDKafkaLogLevel::Emerg;
        config
            .set("bootstrap.servers", self.servers.join(","))
            .set("client.id", "postrider")
            // The library's times would outlast every deadline; a server is back sooner.
            .set("socket.connection.setup.timeout.ms", millis(CONNECT_MAX))
            .set("socket.timeout.ms", millis(self.deadline.clamp(SILENCE[0], SILENCE[1])))
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "1000")
            .set("socket.keepalive.enable", "true")
            .set("socket.nagle.disable", "true")
            .set("topic.metadata.refresh.interval.ms", millis(self.refresh));
        let protocol = match (&self.tls, &self.sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some(sasl) = &self.sasl {
            config
                .set("sasl.mechanism", sasl.mechanism.word())
                .set("sasl.username", &*sasl.user)
                .set("sasl.password", &*sasl.password.0);
        }
        let path = |path: &PathBuf| path.display().to_string();
        if let Some(roots) = self.tls.as_ref().and_then(|tls| tls.roots.as_ref()) {
            config.set("ssl.ca.location", path(roots));
        }
        if let Some((certificate, key)) = self.tls.as_ref().and_then(|tls| tls.identity.as_ref()) {
            config
                .set("ssl.certificate.location", path(certificate))
                .set("ssl.key.location", path(key));
        }
        config
    }

    /// An idempotent producer. One that is `alone` sends each record by itself: an answer is about no other.
    pub(crate) fn producer(&self, alone: bool) -> ClientConfig {
        let mut config = self.connection();
        // Calls that the relay has given up count as well: see the contract of brokers.
        let calls = u64::from(self.batches_in_flight) * 3;
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // By default who looks for a topic makes one, where the servers let him.
            .set("allow.auto.create.topics", "false")
            .set("partitioner", "murmur2_random")
            .set("linger.ms", self.linger.as_millis().to_string())
            .set("compression.type", self.compression.word())
            .set("statistics.interval.ms", REPORT_EVERY.as_millis().to_string())
            .set("message.timeout.ms", self.delivery().as_millis().to_string())
            .set("message.max.bytes", RECORD_BYTES_MAX.to_string())
            .set("batch.size", SET_BYTES_MAX.to_string())
            .set("batch.num.messages", if alone { "1" } else { "10000" })
            .set("queue.buffering.max.messages", (calls * u64::from(ROWS_MAX)).to_string())
            .set("queue.buffering.max.kbytes", (calls * BYTES_MAX / 1024).to_string())
            // A topic that is gone is known to be as soon as the cluster says so twice.
            .set("topic.metadata.propagation.max.ms", "1000");
        config
    }

    /// A member of a group, that commits what it is told to.
    pub(crate) fn consumer(&self, subscription: &SubscriptionSettings) -> ClientConfig {
        let millis = |span: Duration| span.as_millis().to_string();
        let mut config = self.connection();
        let session = subscription.session;
        // A rebalance waits for handlers, and asks for no records meanwhile.
        let silence = subscription.visibility.saturating_add(POLL_MAX).max(session);
        // Where it reads on somewhere else, since its place was let go, is said in its log alone: see `resets`. That a topic is
        // another one is said only to who debugs, beside a few lines for each partition now and then: see `replaced`.
        config.log_level = RDKafkaLogLevel::Debug;
        config
            .set("group.id", &*subscription.group)
            .set("debug", "topic")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", millis(session))
            .set("heartbeat.interval.ms", millis((session / 10).min(HEARTBEAT_MAX)))
            .set("max.poll.interval.ms", millis(silence))
            // What an aborted transaction wrote never happened.
            .set("isolation.level", "read_committed")
            .set("fetch.wait.max.ms", "100")
            .set("queued.max.messages.kbytes", "16384");
        config
    }
}

/// The longest that a member is silent on purpose, besides waiting for handlers.
const POLL_MAX: Duration = Duration::from_secs(300);
/// The library's default. How soon a member hears of a rebalance.
const HEARTBEAT_MAX: Duration = Duration::from_secs(3);
/// How long a server may take to answer when a connection is made. More than a congested network needs.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a question may go unanswered before its connection is given up, as long as a batch may take: more than a pause of a server's
/// Java, and no more than the library allows. Its own minute is what whoever asks a server waits that left without a word.
const SILENCE: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(300)];

pub(crate) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, "open kafka").message(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F32: settings may be logged.
    #[test]
    fn debug_shows_no_secret() {
        let mut settings = KafkaSettings::new("kafka.example:9092");
        settings.sasl = Some(Sasl {
            mechanism: Mechanism::Plain,
            user: "joe".to_owned(),
            password: "sesame".into(),
        });
        for text in [format!("{settings:?}"), format!("{:?}", settings.connection())] {
            assert!(!text.contains("sesame"), "{text}");
        }
        settings.servers = vec!["kafka://joe:sesame@kafka:9092".to_owned()];
        assert!(!settings.check().unwrap_err().to_string().contains("sesame"));
    }

    #[test]
    fn addresses_have_a_scheme_or_none() {
        let shown = |text: &str| KafkaSettings::new(text).shown();
        assert_eq!(shown("kafka://a:9092, b:9092"), "a:9092, b:9092");
        assert_eq!(shown("a:9092"), "a:9092");
        assert_eq!(shown(""), "");
    }

    #[test]
    fn senseless_settings_are_refused() {
        let good = KafkaSettings::new("127.0.0.1:9092");
        assert!(good.check().is_ok());
        let none = KafkaSettings { servers: Vec::new(), ..good.clone() };
        let url = KafkaSettings::new("http://127.0.0.1:9092");
        let hasty = KafkaSettings { deadline: Duration::ZERO, ..good.clone() };
        let slow = KafkaSettings { linger: Duration::from_secs(2), ..good.clone() };
        let idle = KafkaSettings { batches_in_flight: 0, ..good };
        for settings in [none, url, hasty, slow, idle] {
            assert_eq!(settings.check().unwrap_err().kind(), ErrorKind::Config, "{settings:?}");
        }
    }

    /// What was not built in is refused when the program starts, with the feature that is missing.
    #[cfg(not(feature = "tls"))]
    #[test]
    fn without_openssl_tls_and_scram_are_refused() {
        let mut settings = KafkaSettings::new("127.0.0.1:9092");
        settings.tls = Some(Tls::default());
        let refused = settings.check().unwrap_err();
        assert!(refused.to_string().contains("kafka-tls"), "{refused}");
    }

    /// The library knows every setting that is given to it.
    #[test]
    fn the_library_takes_the_settings() {
        let mut settings = KafkaSettings::new("127.0.0.1:9092");
        let first = [Compression::None, Compression::Lz4, Compression::Zstd];
        for compression in first.into_iter().chain([Compression::Snappy, Compression::Gzip]) {
            settings.compression = compression;
            for alone in [false, true] {
                settings.producer(alone).create_native_config().unwrap();
            }
        }
    }
}
