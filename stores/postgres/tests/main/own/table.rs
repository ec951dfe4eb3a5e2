//! The tables, and how the application writes to them.

use postrider_core::{Error, ErrorKind, NewEvent, Payload, Result};
use postrider_postgres::{Mapping, OwnTable, Settled};
use tokio_postgres::Client;

use crate::support::Fresh;

/// How a table is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    PublishedAt,
    Status,
    Debezium,
}

impl Layout {
    pub(super) const fn of(number: u8) -> Layout {
        match number {
            0 => Layout::PublishedAt,
            1 => Layout::Status,
            _ => Layout::Debezium,
        }
    }

    pub(super) fn make(self) -> &'static str {
        match self {
            Layout::PublishedAt => {
                "create table {schema}.\"own events\" (
                    seq bigint generated always as identity unique, id uuid primary key, source text,
                    aggregate_type text not null, aggregate_id text not null, \"the key\" text,
                    event_type text not null, event_version int not null default 1, payload text,
                    payload_bytes bytea, content_type text not null, headers jsonb, tenant text,
                    occurred_at timestamptz, created_at timestamptz not null default clock_timestamp(),
                    published_at timestamptz)"
            }
            Layout::Status => {
                "create table {schema}.\"own events\" (
                    id serial primary key, event_id uuid not null unique,
                    aggregate_type varchar(64) not null, aggregate_id varchar(64) not null,
                    event_type text not null, payload json, payload_bytes bytea, headers jsonb,
                    status text not null default 'pending', attempts int not null default 0,
                    created_at timestamp not null default now())"
            }
            Layout::Debezium => {
                "create table {schema}.\"own events\" (
                    id uuid primary key, aggregatetype varchar(255) not null,
                    aggregateid varchar(255) not null, type varchar(255) not null, payload jsonb)"
            }
        }
    }

    fn write(self) -> &'static str {
        match self {
            Layout::PublishedAt => {
                "insert into {schema}.\"own events\" (id, source, aggregate_type, aggregate_id,
                    \"the key\", event_type, event_version, payload, payload_bytes, content_type,
                    headers, tenant, occurred_at)
                select ($1::text)::uuid, nullif($2::text, ''), $3::text, $4::text, $5::text, $6::text,
                    ($7::bigint)::int, $8::text, $9::bytea, $10::text, ($11::text)::jsonb, $12::text,
                    to_timestamp(($13::bigint) / 1000000.0::numeric)"
            }
            Layout::Status => {
                "insert into {schema}.\"own events\" (event_id, aggregate_type, aggregate_id,
                    event_type, payload, payload_bytes)
                select ($1::text)::uuid, $3::text, $4::text, $6::text, ($8::text)::json, $9::bytea
                where num_nulls($2::text, $5::text, $7::bigint, $10::text, $11::text, $12::text,
                    $13::bigint) >= 0"
            }
            Layout::Debezium => {
                "insert into {schema}.\"own events\" (id, aggregatetype, aggregateid, type, payload)
                select ($1::text)::uuid, $3::text, $4::text, $6::text,
                    coalesce(($8::text)::jsonb, to_jsonb($9::bytea))
                where num_nulls($2::text, $5::text, $7::bigint, $10::text, $11::text, $12::text,
                    $13::bigint) >= 0"
            }
        }
    }

    pub(super) fn mapping(self, fresh: &Fresh) -> Mapping {
        let table = format!("{}.own events", fresh.names.schema());
        let named = |name: &str| Some(name.to_owned());
        match self {
            Layout::PublishedAt => {
                let mut mapping = Mapping::published_at(table);
                mapping.source = named("source");
                mapping.key = named("the key");
                mapping.event_version = named("event_version");
                mapping.payload_bytes = named("payload_bytes");
                mapping.content_type = named("content_type");
                mapping.headers = named("headers");
                mapping.tenant = named("tenant");
                mapping.occurred_at = named("occurred_at");
                mapping
            }
            Layout::Status => {
                let mut mapping = Mapping::status(table);
                mapping.id = "event_id".to_owned();
                mapping.payload_bytes = named("payload_bytes");
                mapping.headers = named("headers");
                mapping
            }
            Layout::Debezium => Mapping::debezium(table),
        }
    }

    /// A row that is no event.
    pub(super) fn malformed(self) -> &'static str {
        match self {
            Layout::PublishedAt => {
                "insert into {schema}.\"own events\" (id, aggregate_type, aggregate_id, event_type,
                    payload, content_type, headers)
                values (gen_random_uuid(), 'order', 'malformed', 'order.placed', '{}',
                    'application/json', '[1]')"
            }
            Layout::Status => {
                "insert into {schema}.\"own events\" (event_id, aggregate_type, aggregate_id,
                    event_type, payload, headers)
                values (gen_random_uuid(), 'order', 'malformed', 'order.placed', '{}', '[1]')"
            }
            Layout::Debezium => {
                "insert into {schema}.\"own events\" (id, aggregatetype, aggregateid, type, payload)
                values (gen_random_uuid(), 'order', 'malformed', '', '{}')"
            }
        }
    }

    /// How many rows are pending, by the table's own word.
    pub(super) async fn pending(self, fresh: &Fresh) -> i64 {
        let that = match self {
            Layout::PublishedAt => "published_at is null",
            Layout::Status => "status = 'pending'",
            Layout::Debezium => "true",
        };
        fresh.number(&format!("select count(*) from {{schema}}.\"own events\" where {that}")).await
    }
}

/// A schema with Postrider's tables and a table of the application's.
pub(super) struct Own {
    pub(super) fresh: Fresh,
    pub(super) layout: Layout,
}

impl Own {
    pub(super) async fn new(layout: Layout) -> Option<Own> {
        // Rows without a number are read in the order in which they stand: a borrowed table has gaps.
        let fresh = Fresh::made(1).await?;
        fresh.run(layout.make()).await;
        Some(Own { fresh, layout })
    }

    pub(super) fn mapping(&self) -> Mapping {
        self.layout.mapping(&self.fresh)
    }

    pub(super) fn source(&self) -> OwnTable {
        self.with(self.mapping())
    }

    pub(super) fn with(&self, mapping: Mapping) -> OwnTable {
        OwnTable::with(&self.fresh.url, self.fresh.options(), mapping).expect("a valid mapping")
    }

    pub(super) async fn stage(&self, client: &Client, events: &[NewEvent]) -> Result<()> {
        let statement = self.fresh.sql(self.layout.write());
        for event in events {
            let event = event.event();
            let (json, bytes) = match &event.payload {
                Payload::Json(text) => {
                    (Some(std::str::from_utf8(text).expect("UTF-8").to_owned()), None)
                }
                Payload::Bytes(bytes) => (None, Some(bytes.to_vec())),
                Payload::Erased => (None, None),
            };
            let headers = serde_json::to_string(&event.headers).expect("JSON");
            client
                .execute(
                    &statement,
                    &[
                        &event.id.to_string(),
                        &&*event.source,
                        &&*event.aggregate_type,
                        &&*event.aggregate_id,
                        &event.key.as_deref(),
                        &&*event.event_type,
                        &i64::from(event.event_version),
                        &json,
                        &bytes,
                        &&*event.content_type,
                        &headers,
                        &event.tenant.as_deref(),
                        &event.occurred_at.as_micros(),
                    ],
                )
                .await
                .map_err(|error| Error::new(ErrorKind::Invalid, "insert").source(error))?;
        }
        Ok(())
    }

    pub(super) async fn commit(&self, events: &[NewEvent]) -> Result<()> {
        let client = self.fresh.session().await;
        client.batch_execute("begin").await.expect("begin");
        self.stage(&client, events).await?;
        client.batch_execute("commit").await.expect("commit");
        self.fresh.keep(client);
        Ok(())
    }
}

/// A mapping that deletes, whatever else it says.
pub(super) fn deleting(mapping: Mapping) -> Mapping {
    let mut mapping = mapping;
    mapping.settled = Settled::Delete;
    mapping
}
