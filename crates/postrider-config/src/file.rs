//! Destinations on this machine: a queue in one file, lines of a file, and standard output. They have no fields of
//! their own; a queue is a source of sidecars as well.
//!
//! Invariant: all that the configuration knows of them stands here.

use postrider_core::{Format, TopicRule};

use crate::broker::{BrokerShape, Names, SourceShape, UrlShape};
use crate::choice::Kind;

/// The kind `local`.
pub(crate) const LOCAL: BrokerShape = BrokerShape {
    kind: Kind::Local,
    word: "local",
    doc: "A durable queue in one SQLite file, for consumers on the same machine.",
    url: UrlShape::Needed {
        schemes: &["local"],
        example: "local:///var/lib/postrider/queue.db",
        names: Names::Place,
    },
    tables: &[],
    source: Some(SourceShape {
        schemes: &["local"],
        example: "local://queue.db/order.*",
        table: None,
    }),
    formats: &[Format::Structured],
    has_record_key: false,
    message_bytes: None,
    topics: TopicRule::Any,
    feature: None,
};

/// The kind `file`.
pub(crate) const FILE: BrokerShape = BrokerShape {
    kind: Kind::File,
    word: "file",
    doc: "CloudEvents, one per line, appended to a file.",
    url: UrlShape::Needed {
        schemes: &["file"],
        example: "file:///var/lib/postrider/events.jsonl",
        names: Names::Place,
    },
    source: None,
    ..LOCAL
};

/// The kind `stdout`.
pub(crate) const STDOUT: BrokerShape = BrokerShape {
    kind: Kind::Stdout,
    word: "stdout",
    doc: "CloudEvents, one per line, on standard output.",
    url: UrlShape::Nowhere { why: "standard output has no address" },
    source: None,
    ..LOCAL
};
