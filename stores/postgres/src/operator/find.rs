//! Where an event is, by its id alone.
//!
//! The outbox has no index by id, on purpose: every producer would pay for it, and an operator asks
//! seldom. An id of version 7 tells when it was minted, and numbers ascend with the time of their
//! rows, so the search begins where the event must be. An id of another kind, or of a clock that was
//! wrong, is looked for from the newest event backwards, as far as its time goes; and whoever asked is told
//! if that was not far enough.

use std::time::{Duration, Instant};

use postrider_core::{Error, ErrorKind, EventId, Result};

use super::partitions;
use super::value::{number, partition, time};
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{params, uuid};

const CREATED_AT: Sql = sql!("operator/created_at");
const EVENTS_TOP: Sql = sql!("operator/events_top");
const FIND_NEAR: Sql = sql!("operator/find_near");
const FIND_WAITING: Sql = sql!("operator/find_waiting");
const STATEMENT_TIMEOUT: Sql = sql!("operator/statement_timeout");

/// How long an id may have been minted before its row was written, or after it by a clock that is
/// wrong: looked through first.
const MARGINS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3_600)];

/// Numbers around the moment of an id that are looked through: less than a second.
const NEAR_MAX: i64 = 500_000;

/// Numbers of one statement of the search backwards: as many as a table has.
const STRETCH: i64 = 1_000_000;

/// How long the search backwards may take. Default 10 s: some ten million events of a few hundred
/// bytes, and below an operator's patience.
const SEARCH: Duration = Duration::from_secs(10);

/// What `session/begin_reading.sql` gives each statement.
const READING: Duration = Duration::from_secs(20);

/// Where an event of the outbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) partition: i16,
    pub(super) seq: i64,
}

/// Where an event is, or was before the outbox forgot it and left it to `waiting`.
///
/// # Errors
/// `Timeout` if it was not found among those that there was time to look through; it says which.
pub(super) async fn place(session: &Session, id: EventId) -> Result<Option<Place>> {
    let partitions = partitions::of(session, None).await?;
    let mut search = Search { session, id, partitions };
    if let Some(place) = search.near_its_time().await? {
        return Ok(Some(place));
    }
    if let Some(place) = search.waiting().await? {
        return Ok(Some(place));
    }
    search.backwards().await
}

struct Search<'s> {
    session: &'s Session,
    id: EventId,
    partitions: Vec<i16>,
}

impl Search<'_> {
    /// Among the events that were created when the id was minted.
    async fn near_its_time(&mut self) -> Result<Option<Place>> {
        let Some(minted) = minted(self.id) else { return Ok(None) };
        for margin in MARGINS {
            let margin = i64::try_from(margin.as_micros()).unwrap_or(i64::MAX);
            let first = self.first_created(minted.saturating_sub(margin)).await?;
            let last = self.first_created(minted.saturating_add(margin)).await?;
            let (Some(first), last) = (first, last.unwrap_or(i64::MAX)) else { return Ok(None) };
            let last = last.min(first.saturating_add(NEAR_MAX));
            if let Some(place) = self.among(first, last).await? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// The number of the first event that was created at a moment or after, by halves; `None` if all
    /// are older. Numbers do not ascend with the time to the microsecond, nor where a clock was set
    /// back; the margins are for that.
    async fn first_created(&self, moment: i64) -> Result<Option<i64>> {
        let Some(top) = self.top(i64::MAX).await? else { return Ok(None) };
        let (mut low, mut high, mut found) = (0, top, None);
        while low <= high {
            let middle = low + (high - low) / 2;
            match self.created_at(middle).await? {
                Some((seq, at)) if at < moment => low = seq.saturating_add(1),
                Some((seq, _)) => {
                    found = Some(seq);
                    high = middle - 1;
                }
                None => high = middle - 1,
            }
        }
        Ok(found)
    }

    /// The first event from a number on, and when it was created, in microseconds.
    async fn created_at(&self, from: i64) -> Result<Option<(i64, i64)>> {
        let count = i32::try_from(self.partitions.len()).unwrap_or(i32::MAX);
        let row = self.session.optional("find event", &CREATED_AT, params![count, from]).await?;
        Ok(row.and_then(|row| Some((number(&row, 0)?, time(&row, 1)?.as_micros()))))
    }

    async fn top(&self, before: i64) -> Result<Option<i64>> {
        let below = params![self.partitions, before];
        Ok(number(&self.session.row("find event", &EVENTS_TOP, below).await?, 0))
    }

    async fn among(&self, first: i64, last: i64) -> Result<Option<Place>> {
        let which = params![self.partitions, first, last, uuid(self.id)];
        let row = self.session.optional("find event", &FIND_NEAR, which).await?;
        Ok(row.and_then(|row| Some(Place { partition: partition(&row, 0), seq: number(&row, 1)? })))
    }

    /// Among the waiting events, which are few.
    async fn waiting(&self) -> Result<Option<Place>> {
        let named = params![uuid(self.id)];
        let row = self.session.optional("find event", &FIND_WAITING, named).await?;
        Ok(row.and_then(|row| Some(Place { partition: partition(&row, 0), seq: number(&row, 1)? })))
    }

    /// Among all events, newest first, while there is time.
    async fn backwards(&self) -> Result<Option<Place>> {
        let begun = Instant::now();
        let mut before = i64::MAX;
        loop {
            let Some(top) = self.top(before).await? else { return Ok(None) };
            let left = SEARCH.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(self.unfinished(before));
            }
            self.limit(left).await?;
            let first = top.saturating_sub(STRETCH - 1);
            match self.among(first, top).await {
                Ok(Some(place)) => {
                    self.limit(READING).await?;
                    return Ok(Some(place));
                }
                Ok(None) => before = first,
                Err(e) if e.kind() == ErrorKind::Timeout => {
                    return Err(self.unfinished(before).source(e));
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// How long each statement of the reading may take from now on.
    async fn limit(&self, most: Duration) -> Result<()> {
        let limit = most.as_millis().max(1).to_string();
        self.session.row("find event", &STATEMENT_TIMEOUT, params![limit]).await?;
        Ok(())
    }

    fn unfinished(&self, before: i64) -> Error {
        let told = if before == i64::MAX {
            "not even among the newest ones".to_owned()
        } else {
            format!("only that its number is not {before} or above")
        };
        Error::new(ErrorKind::Timeout, "find event")
            .message(format!(
                "{SEARCH:?} were not enough to find out whether there is such an event, {told}: there is no \
                 index by id; list the events of its key instead"
            ))
            .context("event", self.id)
    }
}

/// When an id of version 7 was minted, in microseconds since 1970.
fn minted(id: EventId) -> Option<i64> {
    let bits = id.as_u128();
    let is_timed = (bits >> 76) & 0xf == 7;
    let millis = i64::try_from(bits >> 80).ok()?;
    is_timed.then(|| millis.saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_version_7_says_when_it_was_minted() {
        let id: EventId = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f".parse().unwrap();
        assert_eq!(minted(id), Some(1_645_557_742_000_000));
        let random: EventId = "017f22e2-79b0-4cc3-98c4-dc0c0c07398f".parse().unwrap();
        assert_eq!(minted(random), None);
    }
}
