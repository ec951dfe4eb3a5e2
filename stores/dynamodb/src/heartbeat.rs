//! Heartbeats: one item for each relay, with a counter and the duration of its leases.
//!
//! Invariant: a beat is one write that cannot be refused, whatever the number of leases that it prolongs.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::lease::Presence;
use postrider_core::{ErrorKind, Hindrance, RelayId, Result, Timestamp};
use uuid::Uuid;

use crate::connection::{Connection, call};
use crate::control::{CONTROL, TTL, key, relay_sk};
use crate::item::n;
use crate::watch::{millis, presence_values};

/// What a relay says of itself.
pub(crate) const HINDRANCES: &str = "hindrances";

/// How long the heartbeat of a relay that is gone stays, in seconds: longer than any lease.
pub(crate) const HEARTBEAT_KEPT_SECONDS: i64 = 86_400;

/// What a beat says.
pub(crate) struct Beat<'a> {
    pub(crate) owner: &'a RelayId,
    pub(crate) lease: Duration,
    pub(crate) current: bool,
    pub(crate) presence: Option<&'a Presence>,
    /// Whether the relay is there for a moment, and nobody's rival.
    pub(crate) passing: bool,
}

/// One beat of a relay's heart. A heartbeat begins at random, so that one that was deleted and made anew is
/// not taken for the old one.
pub(crate) async fn announce(
    connection: &Connection,
    operation: &'static str,
    beat: &Beat<'_>,
) -> Result<()> {
    let table = &connection.names().store;
    let (_, random) = Uuid::now_v7().as_u64_pair();
    let kept = Timestamp::now().as_micros() / 1_000_000 + HEARTBEAT_KEPT_SECONDS;
    let client = connection.tables().await;
    let mut update = client
        .update_item()
        .table_name(table)
        .set_key(Some(key(CONTROL, &relay_sk(beat.owner))))
        .expression_attribute_names("#current", "current")
        .expression_attribute_names("#ttl", TTL)
        .expression_attribute_values(":start", n(random >> 16))
        .expression_attribute_values(":one", n(1))
        .expression_attribute_values(":lease", millis(beat.lease))
        .expression_attribute_values(":current", AttributeValue::Bool(beat.current))
        .expression_attribute_values(":kept", n(kept));
    let mut set = "SET beat = if_not_exists(beat, :start) + :one, lease_ms = :lease, \
                   #current = :current, #ttl = :kept"
        .to_owned();
    if beat.passing {
        set.push_str(", passing = :passing");
        update = update.expression_attribute_values(":passing", AttributeValue::Bool(true));
    }
    if let Some(values) = presence_values(beat.presence) {
        set.push_str(", #host = :host, #boot = :boot, #path = :path");
        for (name, value) in values {
            let attribute = name.trim_start_matches(':');
            update = update
                .expression_attribute_names(format!("#{attribute}"), attribute)
                .expression_attribute_values(name, value);
        }
    }
    call(operation, table, update.update_expression(set).send()).await.map(drop)
}

/// Keeps what a relay says of itself, in the item that goes with it. One that is not announced tells nothing.
pub(crate) async fn report(
    connection: &Connection,
    relay: &RelayId,
    hindrances: &[Hindrance],
) -> Result<()> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let update = client
        .update_item()
        .table_name(table)
        .set_key(Some(key(CONTROL, &relay_sk(relay))))
        .expression_attribute_names("#hindrances", HINDRANCES)
        .expression_attribute_names("#beat", "beat")
        .expression_attribute_values(":told", AttributeValue::S(Hindrance::write(hindrances)))
        .condition_expression("attribute_exists(#beat)")
        .update_expression("SET #hindrances = :told");
    match call("report", table, update.send()).await {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        told => told.map(drop),
    }
}

/// Deletes the heartbeat of a relay that has let everything go.
pub(crate) async fn leave(connection: &Connection, owner: &RelayId) -> Result<()> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let delete =
        client.delete_item().table_name(table).set_key(Some(key(CONTROL, &relay_sk(owner))));
    call("leave", table, delete.send()).await.map(drop)
}
