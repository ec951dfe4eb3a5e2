//! Which column of an application's own table is what.
//!
//! Invariant: no name of a mapping can end a statement and begin another. Names are checked here and
//! always quoted, and the values of a status are quoted as texts.

use postrider_core::plain::ROUTER_SOURCE;
use postrider_core::{Error, ErrorKind, Result};

/// PostgreSQL cuts identifiers at so many bytes.
const NAME_BYTES_MAX: usize = 63;

/// Which column of an application's table is what, and how a row says that it is published.
///
/// ```
/// use postrider_postgres::Mapping;
/// let mut mapping = Mapping::published_at("shop.outbox_events");
/// mapping.payload = Some("body".to_owned());
/// assert!(mapping.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping {
    /// The table, as `schema.table`; without a schema it is in `public`.
    pub table: String,
    /// The event's identity, unique and never null. Of any other type than a UUID's, the event's id is
    /// derived from it, from the table's name, and from the store: the tables of Postrider's beside.
    pub id: String,
    /// The order. An integer that is unique and never null is the event's number. With anything else, or
    /// nothing, Postrider numbers the rows as it reads them, at a write for each.
    pub order: Option<String>,
    /// Who says it; where there is none, or it is null, the default.
    pub source: Option<String>,
    /// Who says it by default; the store's source where that is not said either.
    pub default_source: Option<String>,
    /// The kind of thing it happened to; the table's name where there is none.
    pub aggregate_type: Option<String>,
    /// Which one of them; the event's identity where there is none, and then nothing is in order.
    pub aggregate_id: Option<String>,
    /// The ordering key, where it is not type and id of the aggregate.
    pub key: Option<String>,
    /// What happened; the kind of the aggregate where there is none.
    pub event_type: Option<String>,
    /// The version of the payload's schema; 1 where there is none.
    pub event_version: Option<String>,
    /// What it says: `text`, `json`, `jsonb`, or `bytea`.
    pub payload: Option<String>,
    /// What it says where `payload` is null: `bytea`.
    pub payload_bytes: Option<String>,
    /// A row without a payload is a tombstone, as it is for Debezium's router: an event without a byte, with the header by
    /// which Kafka's records of it have no value. Otherwise it is no event, and a dead letter.
    pub tombstones: bool,
    /// The payload's media type; JSON where there is none, and opaque bytes of a `bytea`.
    pub content_type: Option<String>,
    /// Headers, a `jsonb` object of strings.
    pub headers: Option<String>,
    /// The tenant.
    pub tenant: Option<String>,
    /// When the fact happened; when the row was written where there is none.
    pub occurred_at: Option<String>,
    /// When the row was written; `occurred_at` where there is none, and where there is neither, when the
    /// row was read first. Rows with a number of their own have one of the two: an event's times never
    /// change.
    pub created_at: Option<String>,
    /// How a row says that it is pending, and what is written when it was published.
    pub settled: Settled,
}

/// How a row says that it is pending, and what is done to it when it was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// A time that is null while the row is pending.
    At {
        /// The column.
        column: String,
    },
    /// A status.
    Status {
        /// The column.
        column: String,
        /// What it says while the row is pending.
        pending: String,
        /// What it says afterwards.
        published: String,
    },
    /// The row is deleted.
    Delete,
}

impl Mapping {
    /// A table with the columns `id`, `aggregate_type`, `aggregate_id`, `event_type`, `payload`, and
    /// `created_at`, ordered by `seq`, whose `published_at` is null while a row is pending.
    pub fn published_at(table: impl Into<String>) -> Mapping {
        let named = |name: &str| Some(name.to_owned());
        Mapping {
            table: table.into(),
            id: "id".to_owned(),
            order: named("seq"),
            source: None,
            default_source: None,
            aggregate_type: named("aggregate_type"),
            aggregate_id: named("aggregate_id"),
            key: None,
            event_type: named("event_type"),
            event_version: None,
            payload: named("payload"),
            payload_bytes: None,
            tombstones: false,
            content_type: None,
            headers: None,
            tenant: None,
            occurred_at: None,
            created_at: named("created_at"),
            settled: Settled::At { column: "published_at".to_owned() },
        }
    }

    /// The same with a `status` that goes from `pending` to `published`, ordered by an integer `id`. Its
    /// count of attempts is the application's, and is neither read nor written: Postrider keeps its own.
    pub fn status(table: impl Into<String>) -> Mapping {
        let (column, pending) = ("status".to_owned(), "pending".to_owned());
        let settled = Settled::Status { column, pending, published: "published".to_owned() };
        Mapping { order: Some("id".to_owned()), settled, ..Mapping::published_at(table) }
    }

    /// Debezium's `outboxevent`: `id`, `aggregatetype`, `aggregateid`, `type`, and `payload`, without an
    /// order of its own, and rows that are deleted. They say what readers of the router's records take for their source
    /// ([`ROUTER_SOURCE`]), so that an event that was sent by both is one for an inbox; and one without a payload is a tombstone.
    pub fn debezium(table: impl Into<String>) -> Mapping {
        let named = |name: &str| Some(name.to_owned());
        Mapping {
            order: None,
            aggregate_type: named("aggregatetype"),
            aggregate_id: named("aggregateid"),
            event_type: named("type"),
            created_at: None,
            default_source: named(ROUTER_SOURCE),
            tombstones: true,
            settled: Settled::Delete,
            ..Mapping::published_at(table)
        }
    }

    /// Checks the names, without a database.
    ///
    /// # Errors
    /// `Config`, naming the key.
    pub fn check(&self) -> Result<()> {
        let (schema, table) = self.place();
        for (what, name) in [("table", schema), ("table", table)].into_iter().chain(self.columns())
        {
            check_name(what, name)?;
        }
        if self.payload.is_none() && self.payload_bytes.is_none() {
            return Err(config("payload", "there is no column for the payload"));
        }
        if let Some(source) = &self.default_source {
            check_value("default_source", source)?;
        }
        if let Settled::Status { pending, published, .. } = &self.settled {
            for value in [pending, published] {
                check_value("status", value)?;
            }
            if pending == published {
                return Err(config("status", "pending and published are the same"));
            }
        }
        Ok(())
    }

    /// Schema and name of the table.
    pub(crate) fn place(&self) -> (&str, &str) {
        self.table.split_once('.').unwrap_or(("public", &self.table))
    }

    /// The columns that are mapped, each with its key in the configuration.
    pub(crate) fn columns(&self) -> Vec<(&'static str, &str)> {
        let optional = [
            ("order", &self.order),
            ("source", &self.source),
            ("aggregate_type", &self.aggregate_type),
            ("aggregate_id", &self.aggregate_id),
            ("key", &self.key),
            ("event_type", &self.event_type),
            ("event_version", &self.event_version),
            ("payload", &self.payload),
            ("payload_bytes", &self.payload_bytes),
            ("content_type", &self.content_type),
            ("headers", &self.headers),
            ("tenant", &self.tenant),
            ("occurred_at", &self.occurred_at),
            ("created_at", &self.created_at),
        ];
        let mut all = vec![("id", &*self.id)];
        all.extend(optional.iter().filter_map(|(what, name)| Some((*what, name.as_deref()?))));
        match &self.settled {
            Settled::At { column } => all.push(("published_at", column)),
            Settled::Status { column, .. } => all.push(("status", column)),
            Settled::Delete => {}
        }
        all
    }

    /// The column that says whether a row is pending.
    pub(crate) fn mark(&self) -> Option<&str> {
        match &self.settled {
            Settled::At { column } | Settled::Status { column, .. } => Some(column),
            Settled::Delete => None,
        }
    }
}

/// A name as it stands in a statement.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as it stands in a statement.
pub(crate) fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// Braces would be taken for places of our own; control characters are nobody's name.
fn is_plain(text: &str) -> bool {
    !text.contains(['{', '}']) && !text.chars().any(char::is_control)
}

fn check_name(what: &'static str, name: &str) -> Result<()> {
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && is_plain(name) {
        return Ok(());
    }
    Err(config(
        what,
        "a name has 1 to 63 bytes, without braces and control characters, and a table at most one dot",
    )
    .context("name", name.escape_debug()))
}

/// A backslash means something in a text on servers that are set so.
fn check_value(key: &'static str, value: &str) -> Result<()> {
    if !value.is_empty() && value.len() <= 255 && is_plain(value) && !value.contains('\\') {
        return Ok(());
    }
    Err(config(key, "it has 1 to 255 bytes, without braces, backslashes, and control characters")
        .context("value", value.escape_debug()))
}

/// A mistake in the mapping.
pub(crate) fn config(key: &'static str, message: &str) -> Error {
    Error::new(ErrorKind::Config, "map own table").message(message.to_owned()).context("key", key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_what_is_none_is_refused() {
        assert_eq!(quoted("a\"; drop table x; --"), "\"a\"\"; drop table x; --\"");
        assert_eq!(text("it's"), "'it''s'");
        let long = "a".repeat(64);
        for name in ["", "a\0b", "{outbox}", "a\nb", &*long] {
            let mut mapping = Mapping::published_at("shop.events");
            mapping.key = Some(name.to_owned());
            assert_eq!(mapping.check().unwrap_err().kind(), ErrorKind::Config, "{name:?}");
            assert!(Mapping::status(format!("shop.{name}")).check().is_err(), "{name:?}");
        }
        let mut mapping = Mapping::status("events");
        assert_eq!(mapping.place(), ("public", "events"));
        mapping.settled = Settled::Status {
            column: "status".to_owned(),
            pending: "a\\' or true --".to_owned(),
            published: "b".to_owned(),
        };
        assert!(mapping.check().is_err());
        assert!(Mapping { payload: None, ..Mapping::debezium("outboxevent") }.check().is_err());
    }
}
