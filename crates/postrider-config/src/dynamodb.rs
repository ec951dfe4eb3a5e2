//! How DynamoDB is used.

use std::time::Duration;

use crate::key::Class::Restart;
use crate::key::Rule;
use crate::section::section;

/// The type of an event is said once.
const ONE_TYPE: Rule = Rule::OneOf {
    keys: &["event_type", "event_type_from"],
    does: "say what happened",
    why: "either every version is of one type, or an attribute says of which",
};

section! {
    /// How the store is used, if it is on DynamoDB. Where its tables are, and what they are called, says
    /// its address: `dynamodb://REGION?prefix=shop-`.
    pub struct DynamoDbConfig {
        /// Whether the relay reads the table's stream, so that it hears of commits at once and leaves the
        /// index alone while nothing happens. The service serves two readers of a stream well: of more
        /// relays, let the others poll.
        stream: bool { default: "true", class: Restart },
        /// How often the index is read from its front, whatever the stream told of: the longest that an
        /// event waits of which the stream said nothing.
        backstop: Duration { default: "30s", min: "1s", max: "1h", class: Restart },
        /// Whether an event is marked before it is published, under the lease's token, so that a relay that
        /// lost its lease gets no event that its successor has marked. `published_at` then may tell, until
        /// the next relay has the partition, of a publication that never was. A write more for each event.
        mark_first: bool { default: "false", class: Restart },
        /// How events are made of your own items, if their writes carry a stamp.
        derived: DerivedConfig {},
    }
}

section! {
    /// How events are made of business items whose writes carry a stamp, by the names of their attributes.
    /// The items stand in the table of the events: `table` in the store's address. If absent, stamped items
    /// stay pending.
    pub struct DerivedConfig {
        /// Which kind of thing the items are.
        aggregate_type: Option<String> {
            example: "order", class: Restart, rules: &[Rule::With("aggregate_id_from")],
        },
        /// The attribute that says which one of them an item is: text or a number.
        aggregate_id_from: Option<String> {
            example: "order_id", class: Restart, rules: &[Rule::With("aggregate_type")],
        },
        /// What happened, where every version is of one type.
        event_type: Option<String> {
            example: "order.changed", class: Restart, rules: &[ONE_TYPE, Rule::With("aggregate_type")],
        },
        /// The text attribute that says what happened.
        event_type_from: Option<String> {
            example: "status", class: Restart, rules: &[ONE_TYPE, Rule::With("aggregate_type")],
        },
        /// The attribute that is the payload: text that is JSON as it is, bytes as they are, any other value
        /// as JSON. If absent, the whole item as JSON, without the stamp.
        payload_from: Option<String> {
            example: "body", class: Restart, rules: &[Rule::With("aggregate_type")],
        },
    }
}

impl DerivedConfig {
    /// Whether there is a mapping.
    pub fn is_there(&self) -> bool {
        *self != DerivedConfig::default()
    }
}

impl Default for DerivedConfig {
    /// No mapping.
    fn default() -> DerivedConfig {
        DerivedConfig {
            aggregate_type: None,
            aggregate_id_from: None,
            event_type: None,
            event_type_from: None,
            payload_from: None,
        }
    }
}

/// The default of `backstop`.
const BACKSTOP: Duration = Duration::from_secs(30);

impl DynamoDbConfig {
    /// Whether nothing but the defaults is asked for.
    pub fn asks_for_nothing(&self) -> bool {
        self.asked().is_empty()
    }

    /// The keys that say otherwise than their defaults.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        let differs = [
            ("stream", !self.stream),
            ("backstop", self.backstop != BACKSTOP),
            ("mark_first", self.mark_first),
            ("derived", self.derived.is_there()),
        ];
        differs.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn the_defaults_ask_for_nothing() {
        assert!(Config::default().dynamodb.asks_for_nothing());
    }
}
