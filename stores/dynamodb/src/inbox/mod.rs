//! The inbox: which (source, event id, handler) was done, an item each.
//!
//! Invariants: a claim is one conditional write, never a look and then a write; whatever follows a claim
//! carries its token; and a lease that somebody else holds ends by what this process has watched on its own
//! monotonic clock, because DynamoDB has no clock that a condition could ask.

mod answer;
pub(crate) mod condition;
mod marker;
mod options;
pub(crate) mod parts;
mod purge;
mod room;
pub(crate) mod row;
mod side;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use bytes::Bytes;
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, Clock, Error, ErrorKind, HandlerName, InboxKey,
    InboxStore, Result, Tick, Timestamp, Tried,
};
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

pub use marker::Marker;
pub use options::InboxOptions;

use crate::connection::{Connection, absent, call};
use crate::error::failed;
use crate::inbox::answer::{Refused, fenced, too_large};
use crate::inbox::condition::{Claiming, Kept, step_names};
use crate::inbox::purge::Horizons;
use crate::inbox::row::{ATTEMPTS, Row, TOKEN};
use crate::inbox::watch::Watch;
use crate::item::{Item, b, number};
use crate::transaction::ITEM_BYTES_MAX;

/// The inbox of a store. Clones share a memory of the leases they have seen: make one for each process.
#[derive(Clone)]
pub struct Inbox {
    connection: Connection,
    options: InboxOptions,
    clock: Arc<dyn Clock>,
    watch: Arc<Watch>,
    calls: Arc<Semaphore>,
    horizons: Arc<Horizons>,
}

impl Inbox {
    /// An inbox in the tables of a connection.
    ///
    /// # Errors
    /// `Config` if the options contradict each other.
    pub fn new(connection: Connection, options: InboxOptions) -> Result<Inbox> {
        Inbox::with_clock(connection, options, Arc::new(Monotonic(Instant::now())))
    }

    /// The same by another clock. Its ticks say how long a lease was watched; its wall clock is asked where
    /// [`InboxOptions::skew_max`] is set, and for the times that people read.
    ///
    /// # Errors
    /// `Config` if the options contradict each other.
    pub fn with_clock(
        connection: Connection,
        options: InboxOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Inbox> {
        options.check()?;
        let watch = Arc::new(Watch::new(options.watched_max));
        let calls = Arc::new(Semaphore::new(options.calls_max));
        let horizons = Arc::default();
        Ok(Inbox { connection, options, clock, watch, calls, horizons })
    }

    /// Looks whether the table is there and may be read, with no other permission than handlers need.
    ///
    /// # Errors
    /// `SchemaMissing`, `Unauthorized` with the permission that is missing, and whatever the service says.
    pub async fn open(&self) -> Result<()> {
        let client = self.connection.tables().await;
        let nobody = Some(crate::control::key("postrider-open", "postrider-open"));
        let get = client.get_item().table_name(self.table()).set_key(nobody);
        call("open inbox", self.table(), get.send()).await.map(drop)
    }

    fn table(&self) -> &str {
        &self.connection.names().inbox
    }

    async fn turn(&self) -> SemaphorePermit<'_> {
        self.calls.acquire().await.expect("invariant: the semaphore is never closed")
    }

    /// Milliseconds since 1970 by this process's wall clock.
    fn now_ms(&self) -> i64 {
        self.clock.now().as_micros().div_euclid(1_000)
    }

    async fn update(&self, key: &InboxKey) -> UpdateItemFluentBuilder {
        self.connection
            .tables()
            .await
            .update_item()
            .table_name(self.table())
            .set_key(Some(row::key(key)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    /// Sends a conditional update: what was written, or the item that stood in its way.
    async fn send(
        &self,
        operation: &'static str,
        update: UpdateItemFluentBuilder,
    ) -> Result<Result<Item, Item>> {
        let _turn = self.turn().await;
        match Box::pin(update.send()).await {
            Ok(answer) => Ok(Ok(answer.attributes.unwrap_or_default())),
            Err(SdkError::ServiceError(refused)) => match refused.err() {
                UpdateItemError::ConditionalCheckFailedException(failed) => {
                    Ok(Err(failed.item.clone().unwrap_or_default()))
                }
                _ => Err(failed(operation, self.table(), SdkError::ServiceError(refused))),
            },
            Err(error) => Err(failed(operation, self.table(), error)),
        }
    }

    async fn claim_once(&self, request: &ClaimRequest) -> Result<Claim> {
        let beat = Uuid::now_v7().simple().to_string();
        let claiming = Claiming {
            request,
            beat: &beat,
            // A lease that we have watched for its whole duration ends with this very write, if it still is
            // the lease that we have watched.
            watched_out: self.watch.is_out(&request.key, self.clock.tick()),
            now_ms: self.now_ms(),
            skew_max: self.options.skew_max,
        };
        let update = claiming.put_into(self.update(&request.key).await);
        let update = update.return_values(ReturnValue::UpdatedNew);
        match self.send("claim", update).await? {
            Ok(written) => {
                let token = number(&written, TOKEN).ok_or_else(|| absent("claim", "token"))?;
                let tries = number(&written, ATTEMPTS).unwrap_or(1);
                Ok(self.claimed(request, &beat, (token, tries, row::lost(&written))))
            }
            Err(old) => {
                let row = Row::of(&old, "claim")?;
                Ok(match answer::to_claim(row, request, &beat) {
                    Refused::Ours { token, tries, lost } => {
                        self.claimed(request, &beat, (token, tries, lost))
                    }
                    Refused::Mismatch => Claim::Mismatch,
                    Refused::Processed { result } => {
                        self.watch.forget(&request.key);
                        Claim::Processed { result: self.fetch(&request.key, result).await? }
                    }
                    Refused::Leased { beat, duration } => {
                        let now = self.clock.tick();
                        let remaining = self.watch.saw(&request.key, &beat, duration, now);
                        Claim::Leased { remaining }
                    }
                })
            }
        }
    }

    /// Watches a lease of our own like anybody's: a successor in this process need not wait longer.
    fn claimed(
        &self,
        request: &ClaimRequest,
        beat: &str,
        (token, tries, lost): (u64, u32, u32),
    ) -> Claim {
        self.watch.saw(&request.key, beat, request.duration, self.clock.tick());
        Claim::Claimed(ClaimLease { key: request.key.clone(), token, tries, lost })
    }

    async fn prolong(&self, lease: &ClaimLease, duration: Duration) -> Result<()> {
        let beat = Uuid::now_v7().simple().to_string();
        let kept = Kept { lease, now_ms: self.now_ms() };
        let update = kept.prolong(self.update(&lease.key).await, &beat, duration);
        match self.send("heartbeat", update).await? {
            Ok(_) => {
                self.watch.saw(&lease.key, &beat, duration, self.clock.tick());
                Ok(())
            }
            Err(_) => Err(fenced("heartbeat", lease)),
        }
    }

    async fn finish(&self, lease: &ClaimLease, result: &[u8]) -> Result<()> {
        let kept = Kept { lease, now_ms: self.now_ms() };
        let retention = self.options.retention;
        let sent = match fits(result) {
            true => {
                let update = kept.complete(self.update(&lease.key).await, result, retention);
                self.send("complete", update).await
            }
            false => Err(too_large("complete", result)),
        };
        let (sent, left_out) = match sent {
            Err(error) if error.kind() == ErrorKind::TooLarge => {
                self.finish_full(&kept, result).await?
            }
            sent => (sent?, false),
        };
        match sent {
            Ok(_) => {}
            // The answer to the first try may have been lost.
            Err(old) if Row::of(&old, "complete").is_ok_and(|row| row.was_completed(lease)) => {}
            Err(_) => return Err(fenced("complete", lease)),
        }
        self.watch.forget(&lease.key);
        match left_out {
            false => Ok(()),
            true => Err(too_large("complete", result)),
        }
    }

    async fn let_go(&self, lease: &ClaimLease, tried: Tried) -> Result<()> {
        let kept = Kept { lease, now_ms: self.now_ms() };
        let update = kept.release(self.update(&lease.key).await, tried);
        match self.send("release", update).await? {
            Ok(_) => {}
            Err(old) if Row::of(&old, "release").is_ok_and(|row| row.was_released(lease)) => {}
            Err(_) => return Err(fenced("release", lease)),
        }
        self.watch.forget(&lease.key);
        Ok(())
    }

    async fn stored_step(&self, lease: &ClaimLease, step: &str) -> Result<Option<Bytes>> {
        let Some(item) = self.read("step", &lease.key).await? else {
            return Err(fenced("step", lease));
        };
        if !Row::of(&item, "step")?.is_held_by(lease) {
            return Err(fenced("step", lease));
        }
        match row::steps_of(&item).and_then(|steps| steps.get(step)) {
            None => Ok(None),
            Some(AttributeValue::B(blob)) => Ok(Some(Bytes::copy_from_slice(blob.as_ref()))),
            Some(_) => Err(Error::new(ErrorKind::TooLarge, "step").message(format!(
                "the step `{}` was made, and its result had no room in the row; it is not made again: \
                 return an address of what is large, and settle this event by hand",
                step.escape_debug()
            ))),
        }
    }

    async fn store_step(&self, lease: &ClaimLease, step: &str, result: &[u8]) -> Result<()> {
        let sent = match fits(result) {
            true => self.put_step(lease, step, b(result)).await,
            false => Err(too_large("complete step", result)),
        };
        let (sent, left_out) = match sent {
            // The effect has happened: that it was made is kept, and how large its result was.
            Err(error) if error.kind() == ErrorKind::TooLarge => {
                (self.store_step_without(lease, step, result.len()).await?, true)
            }
            sent => (sent?, false),
        };
        match (sent, left_out) {
            (Ok(_), false) => Ok(()),
            (Ok(_), true) => Err(too_large("complete step", result)),
            (Err(_), _) => Err(fenced("complete step", lease)),
        }
    }

    async fn put_step(
        &self,
        lease: &ClaimLease,
        step: &str,
        said: AttributeValue,
    ) -> Result<Result<Item, Item>> {
        let kept = Kept { lease, now_ms: self.now_ms() };
        let update = kept.hold(self.update(&lease.key).await);
        let update = step_names(update, step)
            // The first result stays: the step was done once.
            .update_expression("SET #steps.#step = if_not_exists(#steps.#step, :result)")
            .expression_attribute_values(":result", said);
        self.send("complete step", update).await
    }

    /// The item of a row as it is now.
    async fn read(&self, operation: &'static str, key: &InboxKey) -> Result<Option<Item>> {
        let _turn = self.turn().await;
        let client = self.connection.tables().await;
        let get = client.get_item().table_name(self.table()).set_key(Some(row::key(key)));
        Ok(call(operation, self.table(), get.consistent_read(true).send()).await?.item)
    }
}

/// Whether a result may have room in an item, as far as its size alone says.
fn fits(result: &[u8]) -> bool {
    result.len() as u64 <= ITEM_BYTES_MAX
}

impl InboxStore for Inbox {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.claim_once(request))
    }

    fn heartbeat<'a>(
        &'a self,
        lease: &'a ClaimLease,
        duration: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.prolong(lease, duration))
    }

    fn complete<'a>(
        &'a self,
        lease: &'a ClaimLease,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.finish(lease, result))
    }

    fn release<'a>(&'a self, lease: &'a ClaimLease, tried: Tried) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.let_go(lease, tried))
    }

    fn step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
    ) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(self.stored_step(lease, step))
    }

    fn complete_step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.store_step(lease, step, result))
    }

    fn record_horizon<'a>(
        &'a self,
        handler: &'a HandlerName,
        horizon: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        self.horizons.record(handler, horizon);
        Box::pin(std::future::ready(Ok(())))
    }

    fn purge(&self, older_than: Duration, rows_max: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.purge_processed(older_than, rows_max))
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("connection", &self.connection)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Time since the inbox was made. It stands still while the machine is suspended: then a lease counts as
/// watched for less than it was, which delays and never hastens a takeover.
struct Monotonic(Instant);

impl Clock for Monotonic {
    fn tick(&self) -> Tick {
        Tick::default() + self.0.elapsed()
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        // waits: for whoever asked this clock to
        Box::pin(tokio::time::sleep(span))
    }
}
