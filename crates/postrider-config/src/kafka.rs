//! A destination and a source on Kafka: who we are, whom we believe, and how records are made.
//!
//! Invariant: both say who we are with the same keys.

use std::path::PathBuf;
use std::time::Duration;

use postrider_core::RecordKey;

use crate::choice::{KafkaCompression, KafkaMechanism};
use crate::key::Class::Restart;
use crate::secret::SecretRef;
use crate::section::section;

section! {
    /// A connection to Kafka. Events go to the topic that the route gives, and it has to be there.
    pub struct Kafka {
        /// Who we are, with `password` and `mechanism`.
        user: Option<String> { example: "relay" },
        /// The user's password.
        password: Option<SecretRef> { example: "env:KAFKA_PASSWORD" },
        /// How the password is shown: `plain` sends it as it is, the others prove it.
        mechanism: Option<KafkaMechanism> { example: "scram-sha-512" },
        /// Encrypt, and refuse a server whose certificate nobody vouches for.
        tls: bool { default: "false" },
        /// Root certificates in PEM to believe in place of the system's.
        roots: Option<PathBuf> { example: "/etc/postrider/roots.pem" },
        /// Our certificate in PEM, for a server that asks for one.
        certificate: Option<PathBuf> { example: "/etc/postrider/relay.pem" },
        /// The key of our certificate.
        certificate_key: Option<PathBuf> { example: "/run/secrets/relay.key" },
        /// How long a batch may take, waiting for a connection included. At most
        /// `relay.publish_deadline`. The client tries to deliver a record for five eighths of it.
        timeout: Duration { default: "4s", min: "200ms", max: "5m" },
        /// Batches under way at once. Eight fill the round trip to three replicas.
        batches: u32 { default: "8", min: "1", max: "256", class: Restart },
        /// How long a record waits for others to be sent with. At most a quarter of `timeout`.
        linger: Duration { default: "1ms", min: "0s", max: "500ms" },
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

section! {
    /// How a sidecar is connected to Kafka, if its events come from there.
    pub struct KafkaSource {
        /// The topic that takes what was refused for good, with the reason as headers. It has to be there.
        /// If absent, `postrider.dead.` and the group.
        dead_letters: Option<String> { example: "dead.billing", class: Restart },
        /// A group without committed offsets begins with what comes from now on, and not with the oldest
        /// record. The same counts when somebody deletes the group or its offsets: what came meanwhile is then
        /// passed over.
        from_now: bool { default: "false", class: Restart },
        /// How long an instance may be silent before its partitions go to others.
        session: Duration { default: "10s", min: "1s", max: "30m", class: Restart },
        /// Records of one partition that may wait behind one that is not settled.
        unsettled: u32 { default: "1000", min: "1", max: "100000", class: Restart },
        /// Who we are, with `password` and `mechanism`.
        user: Option<String> { example: "billing", class: Restart },
        /// The user's password.
        password: Option<SecretRef> { example: "env:KAFKA_PASSWORD", class: Restart },
        /// How the password is shown: `plain` sends it as it is, the others prove it.
        mechanism: Option<KafkaMechanism> { example: "scram-sha-512", class: Restart },
        /// Encrypt, and refuse a server whose certificate nobody vouches for.
        tls: bool { default: "false", class: Restart },
        /// Root certificates in PEM to believe in place of the system's.
        roots: Option<PathBuf> { example: "/etc/postrider/roots.pem", class: Restart },
        /// Our certificate in PEM, for a server that asks for one.
        certificate: Option<PathBuf> { example: "/etc/postrider/billing.pem", class: Restart },
        /// The key of our certificate.
        certificate_key: Option<PathBuf> { example: "/run/secrets/billing.key", class: Restart },
        /// How long the servers may take to answer.
        timeout: Duration { default: "4s", min: "200ms", max: "5m", class: Restart },
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

/// Gives a table its `login`.
macro_rules! login {
    ($table:ty) => {
        impl $table {
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
        }
    };
}

login!(Kafka);
login!(KafkaSource);
