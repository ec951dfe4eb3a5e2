//! SQS, SNS, and EventBridge: everything that the configuration knows of them, for destinations and for sources.
//!
//! Invariant: all say who we are with the same keys.

use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{Format, TopicRule};

use crate::broker::{BrokerShape, Names, SourceShape, UrlShape};
use crate::choice::Kind;
use crate::key::Class::Restart;
use crate::key::{BATCH_ENDS, Rule};
use crate::secret::SecretRef;
use crate::section::section;

/// Bytes that are counted here and not by the services: attributes that a reader knows all the same are not written.
const MARGIN: u64 = 256;

/// The kind `sqs`.
pub(crate) const SQS: BrokerShape = BrokerShape {
    kind: Kind::Sqs,
    word: "sqs",
    doc: "Queues of Amazon SQS.",
    url: UrlShape::Needed { schemes: &["sqs"], example: "sqs://eu-west-1", names: Names::Place },
    tables: &[("sqs", &Sqs::TABLE)],
    source: Some(SourceShape {
        schemes: &["sqs"],
        example: "sqs://eu-west-1/QUEUE",
        table: Some(("sqs", &SqsSource::TABLE)),
    }),
    formats: &[Format::Structured, Format::Plain],
    has_record_key: false,
    message_bytes: Some(1024 * 1024 + MARGIN),
    // A queue's name, or its address. What is neither is refused when it is sent.
    topics: TopicRule::Any,
    feature: Some("aws"),
};

/// The kind `sns`.
pub(crate) const SNS: BrokerShape = BrokerShape {
    kind: Kind::Sns,
    word: "sns",
    doc: "Topics of Amazon SNS.",
    url: UrlShape::Needed { schemes: &["sns"], example: "sns://eu-west-1", names: Names::Place },
    tables: &[("sns", &Sns::TABLE)],
    source: None,
    formats: &[Format::Structured, Format::Plain],
    has_record_key: false,
    message_bytes: Some(256 * 1024 + MARGIN),
    topics: TopicRule::Any,
    feature: Some("aws"),
};

/// The kind `eventbridge`.
pub(crate) const EVENTBRIDGE: BrokerShape = BrokerShape {
    kind: Kind::EventBridge,
    word: "eventbridge",
    doc: "Buses of Amazon EventBridge.",
    url: UrlShape::Needed {
        schemes: &["eventbridge"],
        example: "eventbridge://eu-west-1",
        names: Names::Place,
    },
    tables: &[("eventbridge", &EventBridge::TABLE)],
    source: None,
    formats: &[Format::Structured],
    has_record_key: false,
    message_bytes: Some(256 * 1024 + MARGIN),
    topics: TopicRule::Any,
    feature: Some("aws"),
};

/// Who we are is said once.
const IDENTITY: Rule = Rule::OneOf {
    keys: &["profile", "access_key"],
    does: "say who we are",
    why: "a request is signed once",
};

/// Declares a table with the keys that say who we are and where the service is, which are those of every connection.
macro_rules! connection {
    ($(#[doc = $about:literal])* pub struct $name:ident { $($own:tt)* }) => {
        section! {
            $(#[doc = $about])*
            pub struct $name {
                $($own)*
                /// Who we are: a profile of the shared configuration files. Without this and without a key, what the
                /// environment, the container, or the machine says.
                profile: Option<String> { example: "relay", rules: &[IDENTITY] },
                /// Who we are: a key, with `secret_key`.
                access_key: Option<String> {
                    example: "AKIAIOSFODNN7EXAMPLE", rules: &[IDENTITY, Rule::With("secret_key")],
                },
                /// The secret that goes with the key.
                secret_key: Option<SecretRef> {
                    example: "env:AWS_SECRET_ACCESS_KEY", rules: &[Rule::With("access_key")],
                },
                /// The session's token, if the key is a temporary one.
                session_token: Option<SecretRef> {
                    example: "env:AWS_SESSION_TOKEN",
                    rules: &[Rule::With("access_key"), Rule::With("secret_key")],
                },
                /// The account whose queues or topics are meant where a name alone is given, twelve digits. If
                /// absent, our own; for SNS it is needed then, or topics are ARNs.
                account: Option<String> { example: "123456789012" },
                /// Where the service is, if not where the region has it.
                endpoint: Option<String> { example: "https://vpce-1.eu-west-1.vpce.amazonaws.com" },
                /// Root certificates in PEM to believe in place of the system's.
                roots: Option<PathBuf> { example: "/etc/postrider/roots.pem" },
            }
        }

        impl $name {
            /// Who we are, and where the service is.
            pub fn login(&self) -> AwsLogin<'_> {
                AwsLogin {
                    profile: self.profile.as_deref(),
                    access_key: self.access_key.as_deref(),
                    secret_key: self.secret_key.as_ref(),
                    session_token: self.session_token.as_ref(),
                    account: self.account.as_deref(),
                    endpoint: self.endpoint.as_deref(),
                    roots: self.roots.as_ref(),
                }
            }
        }
    };
}

connection! {
    /// Queues of SQS, for the kind `sqs`. The topic of a route is a queue's name, or its address.
    pub struct Sqs {
        /// How long a batch may take.
        timeout: Duration { default: "4s", min: "50ms", max: "5m", rules: &[BATCH_ENDS] },
        /// Batches under way at once, each of up to five calls of ten events.
        batches: u32 { default: "8", min: "1", max: "256", class: Restart },
        /// Every queue is of the kind FIFO, and one that is not is refused: a key's order holds to the consumer then.
        /// Otherwise queues of both kinds are taken.
        fifo: bool { default: "false", class: Restart },
    }
}

connection! {
    /// Topics of SNS, for the kind `sns`. The topic of a route is a topic's name, with `account`, or its ARN.
    pub struct Sns {
        /// How long a batch may take.
        timeout: Duration { default: "4s", min: "50ms", max: "5m", rules: &[BATCH_ENDS] },
        /// Batches under way at once, each of up to five calls of ten events.
        batches: u32 { default: "8", min: "1", max: "256", class: Restart },
        /// Every topic is of the kind FIFO, and one that is not is refused: a key's order holds to the subscriber
        /// then. Otherwise topics of both kinds are taken.
        fifo: bool { default: "false", class: Restart },
    }
}

connection! {
    /// Buses of EventBridge, for the kind `eventbridge`. The topic of a route is a bus's name or ARN.
    pub struct EventBridge {
        /// How long a batch may take.
        timeout: Duration { default: "4s", min: "50ms", max: "5m", rules: &[BATCH_ENDS] },
        /// Batches under way at once, each of up to five calls of ten events.
        batches: u32 { default: "8", min: "1", max: "256", class: Restart },
    }
}

connection! {
    /// How a sidecar is connected to SQS, if its events come from there.
    pub struct SqsSource {
        /// The queue that takes what was refused for good, with the reason as an attribute. If absent, that of the
        /// queue's own redrive policy.
        dead_letters: Option<String> { example: "billing-dead", class: Restart },
        /// How long the service may take to answer, beyond what it is asked to wait for events.
        timeout: Duration { default: "4s", min: "50ms", max: "5m", class: Restart },
    }
}

impl SqsSource {
    /// The same connection as somebody else, or to somewhere else.
    #[must_use]
    pub fn with_login_of(mut self, other: &SqsSource) -> SqsSource {
        self.profile.clone_from(&other.profile);
        self.access_key.clone_from(&other.access_key);
        self.secret_key.clone_from(&other.secret_key);
        self.session_token.clone_from(&other.session_token);
        self.account.clone_from(&other.account);
        self.endpoint.clone_from(&other.endpoint);
        self.roots.clone_from(&other.roots);
        self
    }
}

/// Who we are for services of AWS, and where they are.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AwsLogin<'a> {
    /// A profile of the shared configuration files.
    pub profile: Option<&'a str>,
    /// A key, with `secret_key`.
    pub access_key: Option<&'a str>,
    /// The secret that goes with the key.
    pub secret_key: Option<&'a SecretRef>,
    /// The session's token.
    pub session_token: Option<&'a SecretRef>,
    /// The account whose queues or topics are meant.
    pub account: Option<&'a str>,
    /// Where the service is.
    pub endpoint: Option<&'a str>,
    /// Root certificates to believe in place of the system's.
    pub roots: Option<&'a PathBuf>,
}
