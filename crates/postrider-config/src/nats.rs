//! A source on NATS, and what destinations and sources of NATS have in common: who we are, and whom we believe.
//!
//! Invariant: both say it with the same keys.

use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{Format, TopicRule};

use crate::broker::{BrokerShape, SourceShape, UrlShape};
use crate::choice::Kind;
use crate::destination::Nats;
use crate::key::Class::Restart;
use crate::secret::SecretRef;
use crate::section::section;

section! {
    /// How a sidecar is connected to NATS, if its events come from there.
    pub struct NatsSource {
        /// The subject that takes what was refused for good, with the reason as headers. A stream has to
        /// take it. If absent, `postrider.dead.` and the group.
        dead_letters: Option<String> { example: "dead.billing", class: Restart },
        /// A group that is new begins with what comes from now on, and not with the oldest message of the
        /// stream.
        from_now: bool { default: "false", class: Restart },
        /// One event in work at a time in the whole group, so that the order of the stream holds across its
        /// instances and their crashes. Counts for a group that is new.
        in_order: bool { default: "false", class: Restart },
        /// Who we are, with `password`.
        user: Option<String> { example: "billing", class: Restart },
        /// The user's password.
        password: Option<SecretRef> { example: "env:NATS_PASSWORD", class: Restart },
        /// A token, for a server that asks for one.
        token: Option<SecretRef> { example: "env:NATS_TOKEN", class: Restart },
        /// The seed of a user's nkey. It signs, and is never sent.
        nkey: Option<SecretRef> { example: "file:/run/secrets/billing.nk", class: Restart },
        /// A credentials file: a JWT and the seed that goes with it.
        creds: Option<SecretRef> { example: "file:/run/secrets/billing.creds", class: Restart },
        /// Refuse a server that does not encrypt. An address with `tls://` says the same.
        require_tls: bool { default: "false", class: Restart },
        /// Root certificates in PEM to believe in place of the system's.
        roots: Option<PathBuf> { example: "/etc/postrider/roots.pem", class: Restart },
        /// Our certificate in PEM, for a server that asks for one.
        certificate: Option<PathBuf> { example: "/etc/postrider/billing.pem", class: Restart },
        /// The key of our certificate.
        certificate_key: Option<PathBuf> { example: "/run/secrets/billing.key", class: Restart },
        /// How long the server may take to answer.
        timeout: Duration { default: "4s", min: "50ms", max: "5m", class: Restart },
    }
}

/// Who we are for a server of NATS, and whom we believe.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NatsLogin<'a> {
    /// Who we are, with `password`.
    pub user: Option<&'a str>,
    /// The user's password.
    pub password: Option<&'a SecretRef>,
    /// A token.
    pub token: Option<&'a SecretRef>,
    /// The seed of a user's nkey.
    pub nkey: Option<&'a SecretRef>,
    /// A credentials file.
    pub creds: Option<&'a SecretRef>,
    /// Refuse a server that does not encrypt.
    pub require_tls: bool,
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
            pub fn login(&self) -> NatsLogin<'_> {
                NatsLogin {
                    user: self.user.as_deref(),
                    password: self.password.as_ref(),
                    token: self.token.as_ref(),
                    nkey: self.nkey.as_ref(),
                    creds: self.creds.as_ref(),
                    require_tls: self.require_tls,
                    roots: self.roots.as_ref(),
                    certificate: self.certificate.as_ref(),
                    certificate_key: self.certificate_key.as_ref(),
                }
            }
        }
    };
}

login!(Nats);
login!(NatsSource);

/// The kind `nats`.
pub(crate) const NATS: BrokerShape = BrokerShape {
    kind: Kind::Nats,
    word: "nats",
    doc: "Streams of NATS JetStream.",
    url: UrlShape::Needed { schemes: &["nats", "tls"], example: "nats://127.0.0.1:4222" },
    tables: &[("nats", &Nats::TABLE)],
    source: Some(SourceShape {
        schemes: &["nats", "tls"],
        example: "nats://HOST:4222/STREAM",
        table: Some(("nats", &NatsSource::TABLE)),
    }),
    formats: &[Format::Structured, Format::Binary, Format::Plain, Format::Debezium],
    has_record_key: false,
    // `max_payload` is 1 MiB, the server's own frame included: some hundred bytes.
    message_bytes: Some(1_048_000),
    topics: TopicRule::Subject,
    feature: Some("nats"),
};

impl NatsSource {
    /// The same connection as somebody else, or with other people believed.
    #[must_use]
    pub fn with_login_of(mut self, other: &NatsSource) -> NatsSource {
        self.user.clone_from(&other.user);
        self.password.clone_from(&other.password);
        self.token.clone_from(&other.token);
        self.nkey.clone_from(&other.nkey);
        self.creds.clone_from(&other.creds);
        self.require_tls = other.require_tls;
        self.roots.clone_from(&other.roots);
        self.certificate.clone_from(&other.certificate);
        self.certificate_key.clone_from(&other.certificate_key);
        self
    }
}
