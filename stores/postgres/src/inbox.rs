//! The inbox's leased side: claims, their fences, results of steps, and retention.
//!
//! Invariant: whatever changes a claimed row carries its token and is one call of a function on the
//! database's clock (`sql/schema/001/55_inbox.sql`), so of any number of workers one acts.

use std::time::Duration;

use bytes::Bytes;
use postrider_core::inbox::HORIZON_UNKNOWN;
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, Error, ErrorKind, HandlerName, InboxStore, Result,
    Tried,
};
use tokio_postgres::{Client, Row};

use crate::session::Session;
use crate::sessions::Line;
use crate::sql::{Sql, Texts, sql};
use crate::store::PostgresStore;
use crate::typed::{Param, micros, params, signed, span, unsigned, uuid};

const CLAIM: Sql = sql!("inbox/claim");
const HEARTBEAT: Sql = sql!("inbox/heartbeat");
const COMPLETE: Sql = sql!("inbox/complete");
const RELEASE: Sql = sql!("inbox/release");
const STEP: Sql = sql!("inbox/step");
const COMPLETE_STEP: Sql = sql!("inbox/complete_step");
const PURGE: Sql = sql!("inbox/purge");
const PURGE_RESULTS: Sql = sql!("inbox/purge_results");
const PURGE_STEPS: Sql = sql!("inbox/purge_steps");
const LONGEST_HORIZON: Sql = sql!("inbox/longest_horizon");
const RECORD_HORIZON: Sql = sql!("inbox/record_horizon");

/// A statement's values: the claim's key and token, followed by what is new.
macro_rules! of_lease {
    ($lease:expr $(, $value:expr)*) => {
        params![
            &*$lease.key.source,
            uuid($lease.key.event_id),
            $lease.key.handler.as_str(),
            signed($lease.token)
            $(, $value)*
        ]
    };
}

fn fenced(operation: &'static str, lease: &ClaimLease) -> Error {
    Error::new(ErrorKind::Fenced, operation)
        .message("the claim was lost; nothing was written")
        .context("event", lease.key.event_id)
        .context("handler", &lease.key.handler)
        .context("token", lease.token)
}

/// A statement's values: what is claimed, and for how long.
macro_rules! of_request {
    ($request:expr) => {
        params![
            &*$request.key.source,
            uuid($request.key.event_id),
            $request.key.handler.as_str(),
            &*$request.event_type,
            $request.payload_hash.as_slice(),
            micros($request.duration),
            i32::try_from($request.outlived).unwrap_or(i32::MAX)
        ]
    };
}

async fn claim(store: &PostgresStore, request: &ClaimRequest) -> Result<Claim> {
    let session = store.sessions().line(Line::Inbox, "claim").await?;
    answered(&session.row("claim", &CLAIM, of_request!(request)).await?, request)
}

/// The same on a connection of an application's.
pub(crate) async fn claim_on(
    client: &Client,
    texts: &Texts,
    request: &ClaimRequest,
) -> Result<Row, tokio_postgres::Error> {
    client.query_typed_one(&texts.text(&CLAIM), of_request!(request)).await
}

pub(crate) async fn release_on(
    client: &Client,
    texts: &Texts,
    lease: &ClaimLease,
    tried: Tried,
) -> Result<Row, tokio_postgres::Error> {
    let values = of_lease!(lease, taken_back(tried), tried.came_to_an_end());
    client.query_typed_one(&texts.text(&RELEASE), values).await
}

fn taken_back(tried: Tried) -> i32 {
    i32::try_from(tried.taken_back()).unwrap_or(i32::MAX)
}

/// What the database said to a claim.
pub(crate) fn answered(row: &Row, request: &ClaimRequest) -> Result<Claim> {
    let key = &request.key;
    let number = |column| row.get::<_, Option<i64>>(column).unwrap_or_default();
    match row.get::<_, Option<&str>>(0) {
        Some("claimed") => {
            let count = |column| row.get::<_, Option<i32>>(column).unwrap_or_default().max(0);
            Ok(Claim::Claimed(ClaimLease {
                key: key.clone(),
                token: unsigned(number(1)),
                tries: count(4).unsigned_abs(),
                lost: count(5).unsigned_abs(),
            }))
        }
        Some("leased") => Ok(Claim::Leased { remaining: span(number(2)) }),
        Some("processed") => {
            let stored: Option<Vec<u8>> = row.get(3);
            Ok(Claim::Processed { result: Bytes::from(stored.unwrap_or_default()) })
        }
        Some("mismatch") => Ok(Claim::Mismatch),
        _ => Err(Error::new(ErrorKind::Internal, "claim")
            .message("the database's function gave no answer that is known")),
    }
}

/// What the database said to a release.
///
/// # Errors
/// `Fenced` if the claim was lost.
pub(crate) fn released(row: &Row, lease: &ClaimLease) -> Result<()> {
    if row.get(0) { Ok(()) } else { Err(fenced("release", lease)) }
}

/// A write under a claim, which says whether the claim stands.
async fn write(
    store: &PostgresStore,
    operation: &'static str,
    statement: &Sql,
    lease: &ClaimLease,
    values: &[Param<'_>],
) -> Result<()> {
    let session = store.sessions().line(Line::Inbox, operation).await?;
    let stands: bool = session.row(operation, statement, values).await?.get(0);
    if stands { Ok(()) } else { Err(fenced(operation, lease)) }
}

async fn step(store: &PostgresStore, lease: &ClaimLease, name: &str) -> Result<Option<Bytes>> {
    let session = store.sessions().line(Line::Inbox, "step").await?;
    let row = session.optional("step", &STEP, of_lease!(lease, name)).await?;
    let stored: Option<Vec<u8>> = row.ok_or_else(|| fenced("step", lease))?.get(0);
    Ok(stored.map(Bytes::from))
}

/// Deletes at most so many rows that are older than that.
async fn delete(
    session: &Session,
    statement: &Sql,
    older_than: Duration,
    rows_max: u32,
) -> Result<u64> {
    session.execute("purge", statement, params![micros(older_than), i64::from(rows_max)]).await
}

impl PostgresStore {
    /// The longest time for which a message may come again, of those that were
    /// [recorded](InboxStore::record_horizon), and the handler that it is of.
    ///
    /// # Errors
    /// What the database says.
    pub async fn longest_horizon(&self) -> Result<Option<(String, Duration)>> {
        let session = self.sessions().line(Line::Inbox, "read horizon").await?;
        let rows = session.rows("read horizon", &LONGEST_HORIZON, params![]).await?;
        let read = |row: &Row| (row.get(0), Duration::from_micros(unsigned(row.get(1))));
        Ok(rows.first().map(read))
    }

    /// Deletes stored results of handlers that are older than that, at most so many, and as many results
    /// of steps of what is done, and says how many of both. Results may go long before the rows of the
    /// inbox do: a claim then answers [`Claim::Processed`] with an empty result, and nothing is acted on
    /// again.
    ///
    /// # Errors
    /// What the database says.
    pub async fn purge_results(&self, older_than: Duration, rows_max: u32) -> Result<u64> {
        let tx = self.sessions().begin("purge").await?;
        let results = delete(&tx, &PURGE_RESULTS, older_than, rows_max).await?;
        let steps = delete(&tx, &PURGE_STEPS, older_than, rows_max).await?;
        tx.commit("purge").await?;
        Ok(results + steps)
    }
}

impl InboxStore for PostgresStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(claim(self, request))
    }

    fn heartbeat<'a>(
        &'a self,
        lease: &'a ClaimLease,
        duration: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let values = of_lease!(lease, micros(duration));
            write(self, "heartbeat", &HEARTBEAT, lease, values).await
        })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a ClaimLease,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            write(self, "complete", &COMPLETE, lease, of_lease!(lease, result)).await
        })
    }

    fn release<'a>(&'a self, lease: &'a ClaimLease, tried: Tried) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let values = of_lease!(lease, taken_back(tried), tried.came_to_an_end());
            write(self, "release", &RELEASE, lease, values).await
        })
    }

    fn step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(step(self, lease, name))
    }

    fn complete_step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let values = of_lease!(lease, step, result);
            write(self, "complete step", &COMPLETE_STEP, lease, values).await
        })
    }

    fn record_horizon<'a>(
        &'a self,
        handler: &'a HandlerName,
        horizon: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let session = self.sessions().line(Line::Inbox, "record horizon").await?;
            let values = params![handler.as_str(), micros(horizon)];
            session.execute("record horizon", &RECORD_HORIZON, values).await.map(drop)
        })
    }

    /// On a session of its own, so that no heartbeat stands behind it.
    fn purge(&self, older_than: Duration, rows_max: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let tx = self.sessions().begin("purge").await?;
            let values = params![micros(older_than), i64::from(rows_max), micros(HORIZON_UNKNOWN)];
            let purged = tx.execute("purge", &PURGE, values).await?;
            tx.commit("purge").await?;
            Ok(purged)
        })
    }
}
