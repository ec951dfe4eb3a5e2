//! A destination on Kafka: who we are, whom we believe, and how records are made.

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
    }
}
