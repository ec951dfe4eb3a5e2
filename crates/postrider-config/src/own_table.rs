//! A table of the application's own, served in place of the outbox: which column is what.
//!
//! Invariant: a key that is absent is what the layout says, and `-` is no column.

use crate::choice::TableLayout;
use crate::key::Class::Restart;
use crate::section::section;

section! {
    /// A table of your own in a PostgreSQL database, in place of Postrider's outbox. Columns have the
    /// names of the layout unless they are given; `-` stands for no column. Postrider's tables stand
    /// beside, made with one partition.
    pub struct OwnTableConfig {
        /// The table. If absent, Postrider's own outbox is served.
        table: Option<String> { example: "public.outbox_events", class: Restart },
        /// How it is laid out: a `published_at` that is null while a row is pending, a `status`, or
        /// Debezium's `outboxevent`, whose rows are deleted.
        layout: TableLayout { default: "published_at", class: Restart },
        /// Only compare: nothing is marked, and what would be published goes to destinations that
        /// nobody should listen to. When the relay stops it says what your loop did otherwise.
        compare: bool { default: "false", class: Restart },
        /// The event's identity, unique and never null. If it is no UUID, one is derived from it.
        id: Option<String> { example: "id", class: Restart },
        /// The order. A unique integer is the event's number. With anything else Postrider numbers the
        /// rows, at a write for each.
        order: Option<String> { example: "seq", class: Restart },
        /// Who says it where there is no such column, or it is null. If absent, `debezium` in the layout of that name, as consumers
        /// take it for the source of what Debezium's router wrote (`router_source`), so that an event that was sent by both is
        /// acted on once; in other layouts the store's source.
        default_source: Option<String> { example: "/shop", class: Restart },
        /// Who says it.
        source: Option<String> { example: "source", class: Restart },
        /// The kind of thing it happened to.
        aggregate_type: Option<String> { example: "aggregate_type", class: Restart },
        /// Which one of them.
        aggregate_id: Option<String> { example: "aggregate_id", class: Restart },
        /// The ordering key, if it is not type and id of the aggregate.
        ordering_key: Option<String> { example: "partition_key", class: Restart },
        /// What happened.
        event_type: Option<String> { example: "event_type", class: Restart },
        /// The version of the payload's schema.
        event_version: Option<String> { example: "event_version", class: Restart },
        /// What it says: `text`, `json`, `jsonb`, or `bytea`.
        payload: Option<String> { example: "payload", class: Restart },
        /// What it says where the payload is null: `bytea`.
        payload_bytes: Option<String> { example: "payload_bytes", class: Restart },
        /// The payload's media type.
        content_type: Option<String> { example: "content_type", class: Restart },
        /// Headers, a `jsonb` object of strings.
        headers: Option<String> { example: "headers", class: Restart },
        /// The tenant.
        tenant: Option<String> { example: "tenant", class: Restart },
        /// When the fact happened.
        occurred_at: Option<String> { example: "occurred_at", class: Restart },
        /// When the row was written.
        created_at: Option<String> { example: "created_at", class: Restart },
        /// The layout `published_at`: the time that is null while a row is pending.
        published_at: Option<String> { example: "published_at", class: Restart },
        /// The layout `status`: the column. One that counts attempts beside it is neither read nor written: each failure would be a write to your table.
        status: Option<String> { example: "status", class: Restart },
        /// The layout `status`: what it says while a row is pending.
        pending: String { default: "pending", class: Restart },
        /// The layout `status`: what it says afterwards.
        published: String { default: "published", class: Restart },
    }
}
