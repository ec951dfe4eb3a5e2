//! The live path: the table's stream tells of commits, so that an idle relay need not ask the index.
//!
//! A record says *where* something was committed, and nothing is published from it: the item is read as it
//! is, in its key's order, by the owner of its partition. Invariants: only inserts of our events are heard, and writes
//! of business items that carry a stamp, where events are made of them;
//! a shard is read after its parent; and whatever is missed, doubled, or out of order costs nothing but
//! time, because the index is read from its front when the stream begins, after every gap, and at every
//! backstop. So there is no checkpoint: what a checkpoint would say, the index says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodbstreams::types::{AttributeValue, Record, ShardIteratorType};
use futures_util::{StreamExt as _, stream};
use postrider_core::{Error, Result};

use crate::connection::absent;
use crate::error::failed;
use crate::examine::check_stream;
use crate::record::{EVENT_ID, Place, SHARD};
use crate::store::{DynamoStore, Inner};
use crate::tables::describe;
use crate::tally::add;

/// Between two readings of a shard that has nothing new. The service takes five a second from all readers
/// of a shard.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// How often the shards are listed, if none of them ends: as long as a new one without a parent may stay
/// unseen.
const LIST_EVERY: Duration = Duration::from_secs(60);
/// The first pause after a failure; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How many shards are read at once.
const SHARDS_AT_ONCE: usize = 8;
/// The most records of one answer.
const RECORDS_MAX: i32 = 1_000;

/// Follows the stream for as long as the handle is there.
pub(crate) async fn follow(handle: Weak<Inner>) {
    let mut follower = Follower::default();
    let mut pause = PAUSE_MIN;
    loop {
        let Some(store) = handle.upgrade().map(DynamoStore::from_inner) else { return };
        let wait = match follower.round(&store).await {
            Ok(heard) => {
                pause = PAUSE_MIN;
                store.set_live(true);
                if heard { Duration::ZERO } else { POLL_EVERY }
            }
            Err(error) => {
                // The relay polls the index until the stream answers again.
                tracing::warn!(%error, "the stream is not read; the index is asked in its place");
                if store.is_live() {
                    add(&store.tally().interruptions, 1);
                }
                store.set_live(false);
                follower = Follower::default();
                let wait = pause;
                pause = (pause * 2).min(PAUSE_MAX);
                wait
            }
        };
        drop(store);
        // waits: a stream says nothing by itself
        tokio::time::sleep(wait).await;
    }
}

/// What is read of the stream.
#[derive(Debug, Default)]
struct Follower {
    arn: Option<String>,
    shards: BTreeMap<String, Shard>,
    /// Shards that were read to their end and are still listed.
    ended: BTreeSet<String>,
    listed: Option<Instant>,
    /// A shard has ended, so its children have begun.
    is_stale: bool,
}

/// A shard that is read.
#[derive(Clone, Debug)]
struct Shard {
    begin: Begin,
    iterator: Option<String>,
}

/// Where the reading of a shard begins.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Begin {
    /// With what comes.
    Latest,
    /// With its oldest record.
    Oldest,
    /// Behind a record.
    Behind(String),
}

/// What reading a shard once came to.
enum Read {
    Records(Vec<Record>, Option<String>),
    /// Its iterator is too old.
    Expired,
    /// Records are gone that were not read.
    Trimmed,
}

impl Follower {
    /// Reads every shard once; whether anything was heard.
    async fn round(&mut self, store: &DynamoStore) -> Result<bool> {
        let arn = match &self.arn {
            Some(arn) => arn.clone(),
            None => {
                let connection = store.connection();
                let there = describe(connection, "follow", &connection.names().outbox).await?;
                self.arn.insert(check_stream(connection, &there)?).clone()
            }
        };
        if self.is_stale || self.listed.is_none_or(|at| at.elapsed() >= LIST_EVERY) {
            self.list(store, &arn).await?;
        }
        let reads: Vec<_> = self
            .shards
            .iter()
            .map(|(id, shard)| read(store, &arn, id.clone(), shard.clone()))
            .collect();
        let reads: Vec<_> = stream::iter(reads).buffer_unordered(SHARDS_AT_ONCE).collect().await;
        let mut heard = false;
        for outcome in reads {
            let (id, read) = outcome?;
            heard |= self.take(store, &id, read);
        }
        Ok(heard)
    }

    /// Takes what a shard answered; whether anything was heard.
    fn take(&mut self, store: &DynamoStore, id: &str, read: Read) -> bool {
        let Some(shard) = self.shards.get_mut(id) else { return false };
        match read {
            Read::Records(records, next) => {
                if let Some(number) = records.last().and_then(sequence_number) {
                    shard.begin = Begin::Behind(number.to_owned());
                }
                if next.is_none() {
                    // Its children are to be read from their beginning.
                    self.shards.remove(id);
                    self.ended.insert(id.to_owned());
                    self.is_stale = true;
                } else {
                    store.lags().read(id, &records);
                    shard.iterator = next;
                }
                hear(store, &records)
            }
            Read::Expired => {
                shard.iterator = None;
                if shard.begin == Begin::Latest {
                    // Nobody knows how much came since.
                    add(&store.tally().gaps, 1);
                    store.sweep_all();
                }
                false
            }
            Read::Trimmed => {
                (shard.iterator, shard.begin) = (None, Begin::Oldest);
                store.lags().begin(id, false);
                add(&store.tally().gaps, 1);
                store.sweep_all();
                false
            }
        }
    }

    /// Lists the shards, and begins those whose time has come.
    async fn list(&mut self, store: &DynamoStore, arn: &str) -> Result<()> {
        let first = self.listed.is_none();
        let client = store.connection().streams().await;
        let (mut listed, mut from) = (Vec::new(), None);
        loop {
            let ask = client.describe_stream().stream_arn(arn).set_exclusive_start_shard_id(from);
            let told = sent(store, ask.send()).await.map_err(|(_, error)| error)?;
            let told = told.stream_description.ok_or_else(|| absent("follow", "description"))?;
            listed.extend(told.shards.unwrap_or_default());
            from = told.last_evaluated_shard_id;
            if from.is_none() {
                break;
            }
        }
        let known: BTreeSet<String> =
            listed.iter().filter_map(|shard| shard.shard_id.clone()).collect();
        self.ended.retain(|id| known.contains(id));
        for shard in listed {
            let Some(id) = shard.shard_id else { continue };
            let range = shard.sequence_number_range.as_ref();
            let is_closed = range.is_some_and(|range| range.ending_sequence_number.is_some());
            if first && is_closed {
                self.ended.insert(id);
                continue;
            }
            if self.ended.contains(&id) || self.shards.contains_key(&id) {
                continue;
            }
            let parent = shard.parent_shard_id.filter(|parent| known.contains(parent));
            if parent.is_some_and(|parent| !self.ended.contains(&parent)) {
                continue;
            }
            let begin = if first { Begin::Latest } else { Begin::Oldest };
            store.lags().begin(&id, first);
            self.shards.insert(id, Shard { begin, iterator: None });
        }
        store.lags().retain(&self.shards.keys().map(String::as_str).collect());
        (self.listed, self.is_stale) = (Some(Instant::now()), false);
        Ok(())
    }
}

/// Reads a shard once.
async fn read(store: &DynamoStore, arn: &str, id: String, shard: Shard) -> Result<(String, Read)> {
    let client = store.connection().streams().await;
    let iterator = match shard.iterator {
        Some(iterator) => Some(iterator),
        None => {
            let ask = client.get_shard_iterator().stream_arn(arn).shard_id(&id);
            let ask = match shard.begin {
                Begin::Latest => ask.shard_iterator_type(ShardIteratorType::Latest),
                Begin::Oldest => ask.shard_iterator_type(ShardIteratorType::TrimHorizon),
                Begin::Behind(number) => ask
                    .shard_iterator_type(ShardIteratorType::AfterSequenceNumber)
                    .sequence_number(number),
            };
            match sent(store, ask.send()).await {
                Ok(told) => told.shard_iterator,
                Err((code, _)) if is_trimmed(&code) => return Ok((id, Read::Trimmed)),
                Err((_, error)) => return Err(error),
            }
        }
    };
    let ask = client.get_records().set_shard_iterator(iterator).limit(RECORDS_MAX);
    match sent(store, ask.send()).await {
        Ok(told) => {
            let records = told.records.unwrap_or_default();
            Ok((id, Read::Records(records, told.next_shard_iterator)))
        }
        Err((code, _)) if code == "ExpiredIteratorException" => Ok((id, Read::Expired)),
        Err((code, _)) if is_trimmed(&code) => Ok((id, Read::Trimmed)),
        Err((_, error)) => Err(error),
    }
}

fn is_trimmed(code: &str) -> bool {
    code == "TrimmedDataAccessException"
}

fn sequence_number(record: &Record) -> Option<&str> {
    record.dynamodb()?.sequence_number()
}

/// Tells the readings where events were committed; whether there was any.
fn hear(store: &DynamoStore, records: &[Record]) -> bool {
    let names = store.connection().names();
    let mut places = Vec::new();
    for record in records {
        let Some((change, name)) = record.dynamodb().zip(record.event_name()) else { continue };
        let key = |name: &str| match change.keys()?.get(name)? {
            AttributeValue::S(text) => Some(&**text),
            _ => None,
        };
        let place = key(&names.pk).zip(key(&names.sk)).map(|(pk, sk)| Place::new(pk, sk));
        let image = change.new_image().map(|image| is_stamped(|name| image.contains_key(name)));
        let derives = store.derives();
        let told = |place: &Place| tells(place, name.as_str(), image, derives);
        let Some(place) = place.filter(told) else { continue };
        if change.new_image().is_none() {
            // The item is fetched by its key all the same; the stream should carry it.
            let tally = store.tally();
            if tally.without_image.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                tracing::warn!("a record of the stream has no image; switch it to NEW_IMAGE");
            }
        }
        places.push(place);
    }
    let heard = !places.is_empty();
    if heard {
        store.hear(places);
    }
    heard
}

/// Whether a record tells of something to publish: the insert of an event, or where events are made of business
/// items, a write of one with its stamp. Marks, deletions, and the time to live do not. Of a record without an image
/// it is not known whether there is a stamp, so the item is looked at.
pub(crate) fn tells(place: &Place, name: &str, stamped: Option<bool>, derives: bool) -> bool {
    match name {
        "INSERT" if place.is_event() => true,
        "INSERT" | "MODIFY" => derives && place.may_derive() && stamped != Some(false),
        _ => false,
    }
}

/// Whether an item with these attributes is pending by its own stamp.
pub(crate) fn is_stamped(has: impl Fn(&str) -> bool) -> bool {
    has(SHARD) && has(EVENT_ID)
}

/// Waits for a call; what failed with the service's code, which decides here.
async fn sent<T, E>(
    store: &DynamoStore,
    call: impl Future<Output = Result<T, SdkError<E>>>,
) -> Result<T, (String, Error)>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    Box::pin(call).await.map_err(|error| {
        let code = error.code().unwrap_or_default().to_owned();
        (code, failed("follow", &store.connection().names().outbox, error))
    })
}
