//! Names of attributes: those of the OpenTelemetry conventions, of one version, and ours.
//!
//! Invariant: every name that is written on a span stands here, so that another version of the
//! conventions is a change of this file.

/// The version of the OpenTelemetry semantic conventions that names and attributes follow. Those for
/// messaging are in development, so a later version of Postrider may follow other ones.
pub const SEMANTIC_CONVENTIONS: &str = "1.43.0";

/// Where that version is described, for the backends that translate.
pub(crate) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.43.0";

pub(crate) const SYSTEM: &str = "messaging.system";
pub(crate) const OPERATION_NAME: &str = "messaging.operation.name";
pub(crate) const OPERATION_TYPE: &str = "messaging.operation.type";
pub(crate) const DESTINATION_NAME: &str = "messaging.destination.name";
/// The partition of the topic.
pub(crate) const PARTITION: &str = "messaging.destination.partition.id";
/// The consumer group.
pub(crate) const GROUP: &str = "messaging.consumer.group.name";
/// The place in the partition, as the conventions call it at the one broker that they give a name for it.
pub(crate) const KAFKA_OFFSET: &str = "messaging.kafka.offset";
pub(crate) const MESSAGE_ID: &str = "messaging.message.id";
pub(crate) const EVENT_TYPE: &str = "cloudevents.event_type";
pub(crate) const EVENT_SOURCE: &str = "cloudevents.event_source";
pub(crate) const ERROR_TYPE: &str = "error.type";

/// The conventions have no name for a destination that is more than a topic.
pub(crate) const DESTINATION: &str = "postrider.destination";
pub(crate) const HANDLER: &str = "postrider.handler";
/// How many events were given to the broker with it. The conventions keep their own name of this for spans that are
/// about more than one message.
pub(crate) const BATCH: &str = "postrider.batch";
/// The place in a stream of another broker.
pub(crate) const OFFSET: &str = "postrider.offset";
/// How often it was tried, with this time, from 1.
pub(crate) const ATTEMPT: &str = "postrider.attempt";
/// How it ended, in a word.
pub(crate) const OUTCOME: &str = "postrider.outcome";
/// The ordering key; only with details.
pub(crate) const KEY: &str = "postrider.key";
/// Out of its key's order on purpose.
pub(crate) const LATE: &str = "postrider.late";
/// Sent before, and again because its destination was rewound.
pub(crate) const REPLAY: &str = "postrider.replay";
