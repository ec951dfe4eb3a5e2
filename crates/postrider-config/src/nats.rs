//! NATS: everything that the configuration knows of it, for destinations and for sources.
//!
//! Invariant: both say who we are with the same keys.

use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{Format, TopicRule};

use crate::broker::{BrokerShape, Names, SourceShape, UrlShape};
use crate::choice::Kind;
use crate::key::Class::Restart;
use crate::key::{BATCH_ENDS, Rule};
use crate::secret::SecretRef;
use crate::section::section;

/// The kind `nats`.
pub(crate) const NATS: BrokerShape = BrokerShape {
    kind: Kind::Nats,
    word: "nats",
    doc: "Streams of NATS JetStream.",
    url: UrlShape::Needed {
        schemes: &["nats", "tls"],
        example: "nats://127.0.0.1:4222",
        names: Names::Servers,
    },
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

/// Who we are is said once.
const IDENTITY: Rule = Rule::OneOf {
    keys: &["user", "token", "nkey", "creds"],
    does: "say who we are",
    why: "a server asks once",
};

/// Declares a table with the keys that say who we are and whom we believe, which are those of every connection.
macro_rules! connection {
    ($(#[doc = $about:literal])* pub struct $name:ident { $($own:tt)* }) => {
        section! {
            $(#[doc = $about])*
            pub struct $name {
                $($own)*
                /// Who we are, with `password`.
                user: Option<String> {
                    example: "relay", rules: &[IDENTITY, Rule::With("password")],
                },
                /// The user's password.
                password: Option<SecretRef> {
                    example: "env:NATS_PASSWORD", rules: &[Rule::With("user")],
                },
                /// A token, for a server that asks for one.
                token: Option<SecretRef> { example: "env:NATS_TOKEN", rules: &[IDENTITY] },
                /// The seed of a user's nkey. It signs, and is never sent.
                nkey: Option<SecretRef> {
                    example: "file:/run/secrets/relay.nk", rules: &[IDENTITY],
                },
                /// A credentials file: a JWT and the seed that goes with it.
                creds: Option<SecretRef> {
                    example: "file:/run/secrets/relay.creds", rules: &[IDENTITY],
                },
                /// Refuse a server that does not encrypt. An address with `tls://` says the same.
                require_tls: bool { default: "false" },
                /// Root certificates in PEM to believe in place of the system's.
                roots: Option<PathBuf> { example: "/etc/postrider/roots.pem" },
                /// Our certificate in PEM, for a server that asks for one.
                certificate: Option<PathBuf> {
                    example: "/etc/postrider/relay.pem", rules: &[Rule::With("certificate_key")],
                },
                /// The key of our certificate.
                certificate_key: Option<PathBuf> {
                    example: "/run/secrets/relay.key", rules: &[Rule::With("certificate")],
                },
            }
        }

        impl $name {
            /// Who we are, whom we believe, and whose streams are meant.
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
                    domain: self.domain.as_deref(),
                }
            }

            /// The same connection as somebody else, or with other people believed.
            #[must_use]
            pub fn with_login_of(mut self, other: &$name) -> $name {
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
    };
}

connection! {
    /// A connection to NATS. Events go to the subject that the route's topic gives, and a stream has to
    /// take it.
    pub struct Nats {
        /// How long a batch may take, waiting for a connection included.
        timeout: Duration { default: "4s", min: "50ms", max: "5m", rules: &[BATCH_ENDS] },
        /// Batches under way at once. Eight fill the round trip to a stream of three replicas.
        batches: u32 { default: "8", min: "1", max: "1024", class: Restart },
        /// The domain of JetStream whose streams take the subjects, where it is not that of the servers: theirs may be a
        /// leaf node with one of its own.
        domain: Option<String> { example: "hub", rules: &[Rule::Topic(TopicRule::Word)] },
        /// Where the servers are monitored, several with commas between. `doctor` asks there how often they force their files
        /// to the disk, which they tell no client. Nothing else does.
        monitoring: Option<String> {
            example: "http://nats-1.internal:8222,nats-2.internal:8222", rules: &[Rule::Hosts],
        },
        /// Publish with core NATS, which keeps nothing: whoever does not listen at that moment never
        /// hears of the event.
        allow_lossy: bool { default: "false" },
    }
}

connection! {
    /// How a sidecar is connected to NATS, if its events come from there.
    pub struct NatsSource {
        /// The subject that takes what was refused for good, with the reason as headers. A stream has to
        /// take it. If absent, `postrider.dead.` and the group.
        dead_letters: Option<String> {
            example: "dead.billing", class: Restart, rules: &[Rule::Topic(TopicRule::Subject)],
        },
        /// A group that is new begins with what comes from now on, and not with the oldest message of the
        /// stream.
        from_now: bool { default: "false", class: Restart },
        /// One event in work at a time in the whole group, so that the order of the stream holds across its
        /// instances and their crashes. Counts for a group that is new.
        in_order: bool { default: "false", class: Restart },
        /// The domain of JetStream that has the stream, where it is not that of the servers: theirs may be a leaf node with
        /// one of its own.
        domain: Option<String> {
            example: "hub", class: Restart, rules: &[Rule::Topic(TopicRule::Word)],
        },
        /// How long the server may take to answer.
        timeout: Duration { default: "4s", min: "50ms", max: "5m", class: Restart },
    }
}

/// Who we are for a server of NATS, whom we believe, and whose streams are meant.
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
    /// The domain of JetStream.
    pub domain: Option<&'a str>,
}
