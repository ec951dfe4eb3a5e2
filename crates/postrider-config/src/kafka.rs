//! Kafka: everything that the configuration knows of it, for destinations and for sources.
//!
//! Invariant: both say who we are with the same keys.

use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{Format, RecordKey, TopicRule};

use crate::broker::{BrokerShape, Names, SourceShape, UrlShape};
use crate::choice::{KafkaCompression, KafkaMechanism, Kind};
use crate::key::Class::Restart;
use crate::key::{BATCH_ENDS, Rule};
use crate::secret::SecretRef;
use crate::section::section;
use crate::size::Size;

/// The kind `kafka`.
pub(crate) const KAFKA: BrokerShape = BrokerShape {
    kind: Kind::Kafka,
    word: "kafka",
    doc: "Topics of Kafka.",
    url: UrlShape::Needed {
        schemes: &["kafka"],
        example: "kafka://127.0.0.1:9092",
        names: Names::Servers,
    },
    tables: &[("kafka", &Kafka::TABLE)],
    source: Some(SourceShape {
        schemes: &["kafka"],
        example: "kafka://HOST:9092/TOPIC",
        table: Some(("kafka", &KafkaSource::TABLE)),
    }),
    formats: &[Format::Structured, Format::Binary, Format::Plain, Format::Debezium],
    has_record_key: true,
    // `message.max.bytes` is 1 MiB, the server's own frame included: some hundred bytes.
    message_bytes: Some(1_048_000),
    topics: TopicRule::Name,
    feature: Some("kafka"),
};

/// Declares a table with the keys that say who we are and whom we believe, which are those of every connection.
macro_rules! connection {
    ($(#[doc = $about:literal])* pub struct $name:ident { $($own:tt)* }) => {
        section! {
            $(#[doc = $about])*
            pub struct $name {
                $($own)*
                /// Who we are, with `password` and `mechanism`.
                user: Option<String> {
                    example: "relay", rules: &[Rule::With("password"), Rule::With("mechanism")],
                },
                /// The user's password.
                password: Option<SecretRef> {
                    example: "env:KAFKA_PASSWORD", rules: &[Rule::With("user")],
                },
                /// How the password is shown: `plain` sends it as it is, the others prove it.
                mechanism: Option<KafkaMechanism> {
                    example: "scram-sha-512", rules: &[Rule::With("user")],
                },
                /// Encrypt, and refuse a server whose certificate nobody vouches for.
                tls: bool { default: "false" },
                /// Root certificates in PEM to believe in place of the system's.
                roots: Option<PathBuf> {
                    example: "/etc/postrider/roots.pem", rules: &[Rule::With("tls")],
                },
                /// Our certificate in PEM, for a server that asks for one.
                certificate: Option<PathBuf> {
                    example: "/etc/postrider/relay.pem",
                    rules: &[Rule::With("certificate_key"), Rule::With("tls")],
                },
                /// The key of our certificate.
                certificate_key: Option<PathBuf> {
                    example: "/run/secrets/relay.key", rules: &[Rule::With("certificate")],
                },
            }
        }

        impl $name {
            /// Who we are, and whom we believe.
            pub fn login(&self) -> KafkaLogin<'_> {
                KafkaLogin {
                    user: self.user.as_deref(),
                    password: self.password.as_ref(),
                    mechanism: self.mechanism,
                    tls: self.tls,
                    roots: self.roots.as_ref(),
                    certificate: self.certificate.as_ref(),
                    certificate_key: self.certificate_key.as_ref(),
                }
            }

            /// The same connection as somebody else, or with other people believed.
            #[must_use]
            pub fn with_login_of(mut self, other: &$name) -> $name {
                self.user.clone_from(&other.user);
                self.password.clone_from(&other.password);
                self.mechanism = other.mechanism;
                self.tls = other.tls;
                self.roots.clone_from(&other.roots);
                self.certificate.clone_from(&other.certificate);
                self.certificate_key.clone_from(&other.certificate_key);
                self
            }
        }
    };
}

connection! {
    /// A connection to Kafka. Events go to the topic that the route gives, and it has to be there.
    pub struct Kafka {
        /// How long a batch may take, waiting for a connection included. The client tries to deliver a record for five eighths of it.
        timeout: Duration { default: "4s", min: "200ms", max: "5m", rules: &[BATCH_ENDS] },
        /// Batches under way at once. Eight fill the round trip to three replicas.
        batches: u32 { default: "8", min: "1", max: "256", class: Restart },
        /// How long a record waits for others to be sent with. A batch is given to the client at once, so more makes larger requests of several batches, and each event later.
        linger: Duration {
            default: "0s", min: "0s", max: "500ms",
            rules: &[Rule::AtMost {
                key: "timeout", part: 4, why: "a record that waits for others has to arrive in time as well",
            }],
        },
        /// How records are compressed.
        compression: KafkaCompression { default: "none" },
        /// The key of a record whose route gives none, over the ordering key alone: `{key}` is the whole of it,
        /// `{aggregate_type}` what stands before its first slash, `{aggregate_id}` what stands behind it. By
        /// default that is the aggregate's id.
        record_key: RecordKey { default: "{aggregate_id}", class: Restart },
        /// How often topics are looked at: how late it is noticed, and said, that partitions were added.
        refresh: Duration { default: "5m", min: "1s", max: "1h" },
    }
}

connection! {
    /// How a sidecar is connected to Kafka, if its events come from there.
    pub struct KafkaSource {
        /// The topic that takes what was refused for good, with the reason as headers. It has to be there.
        /// If absent, `postrider.dead.` and the group.
        dead_letters: Option<String> {
            example: "dead.billing", class: Restart, rules: &[Rule::Topic(TopicRule::Name)],
        },
        /// A group that has no place in a topic begins with what comes from now on, and not with the oldest record: the
        /// topic's ends are written down as its places when the first instance starts. A group whose places somebody
        /// deletes, or that the cluster forgot, is such a group again at the next start.
        from_now: bool { default: "false", class: Restart },
        /// Who said what Debezium's router wrote, which does not say it. With the id that is how the inbox knows an event, so it is
        /// what the relay says that takes over the router's table: `debezium` too, unless its table has another
        /// `default_source`.
        router_source: String { default: "debezium", class: Restart },
        /// How long an instance may be silent before its partitions go to others.
        session: Duration { default: "10s", min: "1s", max: "30m", class: Restart },
        /// Records of one partition that may wait behind one that is not settled.
        unsettled: u32 { default: "1000", min: "1", max: "100000", class: Restart },
        /// Bytes that may wait so, of all partitions; each has an equal part, and one record always. Besides
        /// these the client reads 16 MiB ahead.
        unsettled_bytes: Size { default: "16MiB", min: "64KiB", max: "16GiB", class: Restart },
        /// How long the servers may take to answer.
        timeout: Duration { default: "4s", min: "200ms", max: "5m", class: Restart },
        /// How long a transaction that another producer leaves open may hold up a partition until the sidecar says so, and is
        /// not ready. More than the producers' own `transaction.timeout.ms`, after which the servers end it.
        transaction_max: Duration { default: "90s", min: "1s", max: "7d", class: Restart },
    }
}

/// Who we are for the servers of Kafka, and whom we believe.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KafkaLogin<'a> {
    /// Who we are, with `password` and `mechanism`.
    pub user: Option<&'a str>,
    /// The user's password.
    pub password: Option<&'a SecretRef>,
    /// How the password is shown.
    pub mechanism: Option<KafkaMechanism>,
    /// Encrypt.
    pub tls: bool,
    /// Root certificates to believe in place of the system's.
    pub roots: Option<&'a PathBuf>,
    /// Our certificate.
    pub certificate: Option<&'a PathBuf>,
    /// The key of our certificate.
    pub certificate_key: Option<&'a PathBuf>,
}
