//! What the configuration knows of a kind of broker, beside its fields.
//!
//! For each kind one file says everything: `kafka.rs`, `nats.rs`, `aws.rs`, `webhook.rs`, `file.rs`. Its `section!`s declare the
//! fields (type, meaning, secret or not, default, limits, and what goes with what), and a [`BrokerShape`] says the rest.
//! These are Rust and not a data file, because the compiler then holds the rest together: a field that is declared is
//! there to be read, one that is read is declared, and both are what the documentation of this crate shows. Everything
//! else follows from them: what is accepted and suggested, the checks, the reference page, the JSON Schema, and
//! [`brokers`](crate::brokers()), which programs read.
//!
//! Invariant: nothing outside of its file says what a kind takes; other modules ask its shape.

use postrider_core::{Format, TopicRule};

use crate::choice::Kind;
use crate::key::TableShape;
use crate::{aws, file, kafka, nats, webhook};

/// A kind of broker.
pub(crate) struct BrokerShape {
    /// What it is called in code.
    pub(crate) kind: Kind,
    /// What it is called in the file, and in the definition in the store.
    pub(crate) word: &'static str,
    /// What it is, in one sentence.
    pub(crate) doc: &'static str,
    /// What `url` has to be.
    pub(crate) url: UrlShape,
    /// The tables of a destination that are for this kind alone.
    pub(crate) tables: &'static [(&'static str, &'static TableShape)],
    /// How a sidecar receives from it, if one can.
    pub(crate) source: Option<SourceShape>,
    /// How events can be written, the usual way first.
    pub(crate) formats: &'static [Format],
    /// Whether a message has a key of its own, which a route may choose.
    pub(crate) has_record_key: bool,
    /// What its servers take by default, in bytes, if they have a limit.
    pub(crate) message_bytes: Option<u64>,
    /// What a topic may be called.
    pub(crate) topics: TopicRule,
    /// The feature of the program without which it is not there.
    pub(crate) feature: Option<&'static str>,
}

/// What `url` has to be.
pub(crate) enum UrlShape {
    /// An address with one of these schemes.
    Needed { schemes: &'static [&'static str], example: &'static str, names: Names },
    /// Nothing: these addresses stand in a table of the destination, of which each entry is one.
    In { table: &'static str, entry: &'static str },
    /// Nothing: there is only one place.
    Nowhere { why: &'static str },
}

/// What an address names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Servers, `host:port` with commas between, and nothing behind them.
    Servers,
    /// Something of which only the broker knows what it may be.
    Place,
}

/// How a sidecar receives from a broker.
pub(crate) struct SourceShape {
    /// How addresses begin.
    pub(crate) schemes: &'static [&'static str],
    /// What an address looks like.
    pub(crate) example: &'static str,
    /// The table of a consumer that is for it alone, if there is one.
    pub(crate) table: Option<(&'static str, &'static TableShape)>,
}

/// All of them, in the order of the documentation.
pub(crate) const ALL: [&BrokerShape; 9] = [
    &webhook::WEBHOOK,
    &kafka::KAFKA,
    &nats::NATS,
    &aws::SQS,
    &aws::SNS,
    &aws::EVENTBRIDGE,
    &file::LOCAL,
    &file::FILE,
    &file::STDOUT,
];

impl Kind {
    /// What the configuration knows of it.
    pub(crate) const fn shape(self) -> &'static BrokerShape {
        match self {
            Kind::Webhook => &webhook::WEBHOOK,
            Kind::Kafka => &kafka::KAFKA,
            Kind::Nats => &nats::NATS,
            Kind::Sqs => &aws::SQS,
            Kind::Sns => &aws::SNS,
            Kind::EventBridge => &aws::EVENTBRIDGE,
            Kind::Local => &file::LOCAL,
            Kind::File => &file::FILE,
            Kind::Stdout => &file::STDOUT,
        }
    }

    /// The word of the file, and of the definition in the store.
    pub const fn word(self) -> &'static str {
        self.shape().word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Scalar as _;
    use crate::key::Json;

    /// The words that are accepted, those of the shapes, and their order are the same.
    #[test]
    fn every_kind_has_its_shape() {
        let Json::Choice(words) = Kind::LEAF.json else { unreachable!() };
        assert_eq!(ALL.map(|shape| shape.word).as_slice(), words);
        for shape in ALL {
            assert_eq!(shape.kind.shape().word, shape.word);
            assert_eq!(shape.kind.shown(), shape.word);
            assert!(shape.doc.ends_with('.') && !shape.formats.is_empty(), "{}", shape.word);
        }
    }
}
