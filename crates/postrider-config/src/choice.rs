//! Values that are one of a few words.

use postrider_core::{DeadKeyPolicy, Format};

use crate::field::Scalar;
use crate::key::{Json, Key, Leaf};
use crate::node::Node;
use crate::reading::Complaint;
use crate::section::near;

/// Declares how the words of an enum are read and shown.
macro_rules! choice {
    ($kind:ty, $word:literal, $first:literal => $zero:path $(, $name:literal => $value:path)+) => {
        impl Scalar for $kind {
            const LEAF: Leaf = Leaf {
                word: $word,
                expected: concat!("one of \"", $first, "\"", $(", \"", $name, "\""),+),
                example: $first,
                json: Json::Choice(&[$first, $($name),+]),
                secret: false,
            };

            fn parse(node: &Node, key: &Key) -> Option<Result<$kind, Complaint>> {
                Some(match node.text()? {
                    $first => Ok($zero),
                    $($name => Ok($value),)+
                    other => Err(refusal(other, key, &[$first, $($name),+])),
                })
            }

            fn shown(&self) -> String {
                match self {
                    $zero => $first.to_owned(),
                    $($value => $name.to_owned(),)+
                }
            }

            fn placeholder() -> $kind {
                $zero
            }
        }
    };
}

fn refusal(written: &str, key: &Key, known: &[&str]) -> Complaint {
    let shown: String = written.chars().take(40).collect();
    let near = near(written, known).map(|near| format!("did you mean \"{near}\"? "));
    Complaint::new(
        format!("`{}` has no choice \"{}\"", key.name, shown.escape_debug()),
        format!("{}it is one of {}", near.unwrap_or_default(), known.join(", ")),
    )
}

/// The kind of broker behind a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// HTTP requests to endpoints.
    Webhook,
    /// Topics of Kafka.
    Kafka,
    /// Streams of NATS JetStream.
    Nats,
    /// Queues of SQS.
    Sqs,
    /// Topics of SNS.
    Sns,
    /// Buses of EventBridge.
    EventBridge,
    /// A durable queue in one file.
    Local,
    /// CloudEvents as lines of a file.
    File,
    /// CloudEvents as lines on standard output.
    Stdout,
}

/// How a password is shown to a server of Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KafkaMechanism {
    /// As it is.
    Plain,
    /// Proved, never sent.
    ScramSha256,
    /// Proved, never sent.
    ScramSha512,
}

/// How records of Kafka are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KafkaCompression {
    /// Not at all.
    None,
    /// Little work.
    Lz4,
    /// The fewest bytes.
    Zstd,
    /// Little work.
    Snappy,
    /// Much work.
    Gzip,
}

/// How a sidecar writes an event into a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallFormat {
    /// One JSON document.
    Structured,
    /// The payload as it is, and attributes as headers.
    Binary,
}

/// How an application's own outbox table is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableLayout {
    /// A time that is null while a row is pending.
    PublishedAt,
    /// A status.
    Status,
    /// Debezium's `outboxevent`: rows are deleted.
    Debezium,
}

/// What stands between Postrider and a PostgreSQL server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooler {
    /// That is found out.
    Auto,
    /// Nothing.
    None,
    /// A pooler that lends a whole session, which is as good as nothing.
    Session,
    /// A pooler that hands each transaction to another session.
    Transaction,
}

/// How much the program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What needs a person.
    Error,
    /// What may need one.
    Warn,
    /// What changes.
    Info,
    /// What is decided.
    Debug,
    /// Everything.
    Trace,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

choice!(Kind, "kind",
    "webhook" => Kind::Webhook, "kafka" => Kind::Kafka, "nats" => Kind::Nats, "sqs" => Kind::Sqs,
    "sns" => Kind::Sns, "eventbridge" => Kind::EventBridge, "local" => Kind::Local,
    "file" => Kind::File, "stdout" => Kind::Stdout);
choice!(KafkaMechanism, "mechanism",
    "plain" => KafkaMechanism::Plain, "scram-sha-256" => KafkaMechanism::ScramSha256,
    "scram-sha-512" => KafkaMechanism::ScramSha512);
choice!(KafkaCompression, "compression",
    "none" => KafkaCompression::None, "lz4" => KafkaCompression::Lz4,
    "zstd" => KafkaCompression::Zstd, "snappy" => KafkaCompression::Snappy,
    "gzip" => KafkaCompression::Gzip);
choice!(CallFormat, "format",
    "structured" => CallFormat::Structured, "binary" => CallFormat::Binary);
choice!(TableLayout, "layout",
    "published_at" => TableLayout::PublishedAt, "status" => TableLayout::Status,
    "debezium" => TableLayout::Debezium);
choice!(Pooler, "pooler",
    "auto" => Pooler::Auto, "none" => Pooler::None, "session" => Pooler::Session,
    "transaction" => Pooler::Transaction);
choice!(LogLevel, "level",
    "info" => LogLevel::Info, "off" => LogLevel::Off, "error" => LogLevel::Error,
    "warn" => LogLevel::Warn, "debug" => LogLevel::Debug, "trace" => LogLevel::Trace);
choice!(LogFormat, "format", "text" => LogFormat::Text, "json" => LogFormat::Json);
choice!(Format, "format",
    "structured" => Format::Structured, "binary" => Format::Binary, "plain" => Format::Plain,
    "debezium" => Format::Debezium);
choice!(DeadKeyPolicy, "policy",
    "park" => DeadKeyPolicy::Park, "skip" => DeadKeyPolicy::Skip, "halt" => DeadKeyPolicy::Halt);
