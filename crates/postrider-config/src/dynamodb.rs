//! How DynamoDB is used.

use std::time::Duration;

use crate::key::Class::Restart;
use crate::section::section;

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
        let differs = [("stream", !self.stream), ("backstop", self.backstop != BACKSTOP)];
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
