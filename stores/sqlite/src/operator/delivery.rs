//! What became of an event at each destination, derived from cursor, waiting row, range, and settled log.
//!
//! Invariant (INV-7): `published` is said only where the log proves that the broker acknowledged it:
//! in a bucket where nothing else happened, or where the routes say what is whose and never changed; and never of what a
//! range stands for.

use std::collections::HashMap;

use postrider_core::operate::listing;
use postrider_core::operate::{DeliveryView, Status};
use postrider_core::waiting::Reason;
use postrider_core::{Destination, DestinationId, Event, EventId, KeyHash, Result};
use rusqlite::{Connection, params};

use super::range::{self, RangeRow};
use super::value::{count, moment, moment_at, shown, small, text};
use super::{sql, value};
use crate::settle::BUCKET;
use crate::store::signed;

/// A destination with its cursor in the partition that the events are in.
pub(super) struct Standing {
    pub(super) definition: Destination,
    pub(super) kind: String,
    pub(super) version: u64,
    pub(super) paused: bool,
    pub(super) partition: u16,
    pub(super) position: u64,
    pub(super) origin: u64,
    pub(super) saved_at: Option<i64>,
}

/// Reads every destination.
pub(super) fn standings(connection: &Connection) -> Result<Vec<Standing>> {
    let rows = value::all(connection, "read destinations", sql::DESTINATIONS, (), |row| {
        let definition = Destination::from_definition(&shown(row, 2));
        Ok(Standing {
            definition: definition.map_err(|e| e.context("destination", shown(row, 0)))?,
            kind: shown(row, 1),
            version: count(row, 3),
            paused: shown(row, 4) == "paused",
            partition: u16::try_from(count(row, 5)).unwrap_or_default(),
            position: count(row, 6),
            origin: count(row, 7),
            saved_at: row.get(8).unwrap_or_default(),
        })
    })?;
    rows.into_iter().collect()
}

/// A row of the settled log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bucket {
    count: u64,
    acked: u64,
    other_route: u64,
    dropped: u64,
    waiting: u64,
    erased: u64,
    saved_at: i64,
}

/// Whether a destination's routes take an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Taken {
    Delivered,
    Dropped,
    No,
}

/// What routes and the log look at.
pub(super) struct Subject<'a> {
    pub(super) seq: u64,
    pub(super) key: &'a str,
    pub(super) event_type: &'a str,
    pub(super) aggregate_type: &'a str,
    pub(super) tenant: Option<&'a str>,
    pub(super) erased: bool,
}

impl Subject<'_> {
    /// The event as far as routes look at it.
    fn event(&self) -> Event {
        let id = EventId::from_u128(0);
        let mut event = Event::new(id, self.aggregate_type, "", self.event_type);
        event.tenant = self.tenant.map(Into::into);
        event
    }
}

/// Open requeues that are looked through for an event: more at once would be strange.
const OPEN_REQUEUES_MAX: u32 = 100;

/// Requeues that are not finished: what they name was passed by its cursor, and is about to be sent.
pub(super) struct OpenRequeues(Vec<u64>);

impl OpenRequeues {
    pub(super) fn read(connection: &Connection) -> Result<OpenRequeues> {
        let limit = [OPEN_REQUEUES_MAX];
        let ids = value::all(connection, "read requests", sql::REQUEUES_OPEN, limit, |row| {
            count(row, 0)
        })?;
        Ok(OpenRequeues(ids))
    }

    /// Whether one of them names an event and has not brought it out yet.
    pub(super) fn has(
        &self,
        connection: &Connection,
        destination: &DestinationId,
        partition: u16,
        seq: u64,
    ) -> Result<bool> {
        for id in &self.0 {
            let row = params![signed(*id), partition, destination.as_str(), signed(seq)];
            let open =
                value::first(connection, "read requests", sql::REQUEUE_ROW_OPEN, row, |_| ())?;
            if open.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The destinations of a store, read once for a whole page.
pub(super) struct Deliveries<'c> {
    connection: &'c Connection,
    standings: Vec<Standing>,
    /// The log's rows by destination and bucket: neighbours share one.
    buckets: HashMap<(usize, u64), Option<Bucket>>,
    requeues: OpenRequeues,
    ranges: Vec<RangeRow>,
}

impl<'c> Deliveries<'c> {
    pub(super) fn read(connection: &'c Connection) -> Result<Deliveries<'c>> {
        let standings = standings(connection)?;
        let requeues = OpenRequeues::read(connection)?;
        let ranges = range::read(connection)?;
        Ok(Deliveries { connection, standings, buckets: HashMap::new(), requeues, ranges })
    }

    /// What became of an event; the destinations that it does not concern are left out.
    pub(super) fn of(&mut self, subject: &Subject<'_>) -> Result<Vec<DeliveryView>> {
        let event = subject.event();
        let taken = taken_by(&self.standings, &event);
        let mut deliveries = Vec::new();
        for (index, taken) in taken.into_iter().enumerate() {
            if let Some(delivery) = self.at(index, subject, taken)? {
                deliveries.push(delivery);
            }
        }
        Ok(deliveries)
    }

    /// The destinations that would take an event which is only scheduled.
    pub(super) fn scheduled(&self, event: &Event) -> Vec<DeliveryView> {
        let taken = taken_by(&self.standings, event);
        let concerned = taken.into_iter().zip(&self.standings).filter(|(t, _)| *t != Taken::No);
        concerned.map(|(_, standing)| plain(&standing.definition.id, Status::Scheduled)).collect()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = (&DestinationId, u16)> {
        self.standings.iter().map(|standing| (&standing.definition.id, standing.partition))
    }

    fn at(
        &mut self,
        index: usize,
        subject: &Subject<'_>,
        taken: Taken,
    ) -> Result<Option<DeliveryView>> {
        let passed = subject.seq <= self.standings[index].position
            && subject.seq > self.standings[index].origin;
        let bucket = if passed { self.bucket(index, subject.seq / BUCKET)? } else { None };
        let standing = &self.standings[index];
        let id = &standing.definition.id;
        let mut delivery = match self.waiting(id, subject.seq)? {
            Some(delivery) => delivery,
            None if passed
                && waits_by(&self.ranges, standing, (subject.key, subject.seq), taken) =>
            {
                let reason = Some(Reason::Behind.as_str().to_owned());
                DeliveryView { reason, ..plain(id, Status::Parked) }
            }
            None => match status(standing, bucket, subject, taken) {
                // It is asked for again because nobody knows whether it was.
                Some(Status::Published)
                    if self.requeues.has(
                        self.connection,
                        id,
                        standing.partition,
                        subject.seq,
                    )? =>
                {
                    plain(id, Status::Settled)
                }
                Some(status) => plain(id, status),
                None => return Ok(None),
            },
        };
        delivery.settled_at = bucket.map(|bucket| moment(bucket.saved_at));
        Ok(Some(delivery))
    }

    fn waiting(&self, id: &DestinationId, seq: u64) -> Result<Option<DeliveryView>> {
        let place = params![id.as_str(), signed(seq)];
        let found =
            value::first(self.connection, "read waiting", sql::DELIVERY_WAITING, place, |row| {
                let status = listing::status_of(&shown(row, 0)).unwrap_or(Status::Held);
                let timed = matches!(status, Status::Retrying | Status::Held);
                DeliveryView {
                    attempts: small(row, 1),
                    reason: text(row, 2),
                    detail: text(row, 3).filter(|detail| !detail.is_empty()),
                    next_at: moment_at(row, 4).filter(|_| timed),
                    ..plain(id, status)
                }
            })?;
        Ok(found)
    }

    fn bucket(&mut self, index: usize, number: u64) -> Result<Option<Bucket>> {
        if let Some(known) = self.buckets.get(&(index, number)) {
            return Ok(*known);
        }
        let standing = &self.standings[index];
        let place = params![standing.definition.id.as_str(), standing.partition, signed(number)];
        let found = value::first(
            self.connection,
            "read settled log",
            sql::DELIVERY_BUCKET,
            place,
            |row| Bucket {
                count: count(row, 0),
                acked: count(row, 1),
                other_route: count(row, 2),
                dropped: count(row, 3),
                waiting: count(row, 4),
                erased: count(row, 5),
                saved_at: row.get(6).unwrap_or_default(),
            },
        )?;
        self.buckets.insert((index, number), found);
        Ok(found)
    }
}

/// Whether a range stands for an event that the cursor has passed and that does not wait. Not where the routes do not take it
/// that it was passed by: they are still the destination's own.
pub(super) fn waits_by(
    ranges: &[RangeRow],
    standing: &Standing,
    (key, seq): (&str, u64),
    taken: Taken,
) -> bool {
    let known =
        |range: &&RangeRow| range.version == standing.version && !standing.definition.is_unrouted();
    let key_hash = KeyHash::of(key);
    let mut ranges = ranges.iter().filter(|range| {
        range.key_hash == key_hash
            && range.destination == standing.definition.id.as_str()
            && range.partition == standing.partition
            && range.position < seq
    });
    ranges.any(|range| taken == Taken::Delivered || !known(&range))
}

fn plain(destination: &DestinationId, status: Status) -> DeliveryView {
    DeliveryView {
        destination: destination.clone(),
        status,
        attempts: 0,
        reason: None,
        detail: None,
        next_at: None,
        settled_at: None,
    }
}

/// Which destinations' routes take an event now. `unrouted` takes what no other does.
pub(super) fn taken_by(standings: &[Standing], event: &Event) -> Vec<Taken> {
    let by_routes = |standing: &Standing| match standing.definition.route(event) {
        None => Taken::No,
        Some(route) if route.drop => Taken::Dropped,
        Some(_) => Taken::Delivered,
    };
    let mut taken: Vec<Taken> = standings.iter().map(by_routes).collect();
    let routed = taken.iter().any(|taken| *taken != Taken::No);
    for (taken, standing) in taken.iter_mut().zip(standings) {
        if standing.definition.is_unrouted() && !routed {
            *taken = Taken::Delivered;
        }
    }
    taken
}

/// What became of an event that does not wait; `None` if it does not concern the destination.
fn status(
    standing: &Standing,
    bucket: Option<Bucket>,
    subject: &Subject<'_>,
    taken: Taken,
) -> Option<Status> {
    if subject.seq <= standing.origin {
        return (taken != Taken::No).then_some(Status::BeforeStart);
    }
    if subject.seq > standing.position {
        return (taken != Taken::No).then_some(Status::Pending);
    }
    let Some(bucket) = bucket else {
        return (taken != Taken::No).then_some(Status::Settled);
    };
    match bucket {
        all if all.other_route == all.count => return None,
        all if all.dropped == all.count => return Some(Status::Dropped),
        all if all.erased == all.count => return Some(Status::Erased),
        all if all.acked == all.count => return Some(Status::Published),
        all if all.acked + all.waiting == all.count && !subject.erased => {
            return Some(Status::Published);
        }
        _ => {}
    }
    // The bucket is mixed. The routes say what was whose, if they are still the first ones.
    let original = standing.version == 1 && !standing.definition.is_unrouted();
    match taken {
        Taken::No => None,
        Taken::Dropped if original => Some(Status::Dropped),
        // Erased before it was sent, or after: the log does not say which one it was.
        Taken::Delivered if subject.erased => Some(Status::Settled),
        Taken::Delivered if original => Some(Status::Published),
        Taken::Delivered | Taken::Dropped => Some(Status::Settled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Match, Route};

    fn standing(version: u64) -> Standing {
        let route = Route::all("t".parse().unwrap()).only(Match::event_type("order.*"));
        let id = DestinationId::new("a").unwrap();
        Standing {
            definition: Destination::new(id, "local", vec![route]),
            kind: "local".to_owned(),
            version,
            paused: false,
            partition: 0,
            position: 5_000,
            origin: 10,
            saved_at: None,
        }
    }

    fn subject(seq: u64, erased: bool) -> Subject<'static> {
        let (key, event_type) = ("order/1", "order.placed");
        Subject { seq, key, event_type, aggregate_type: "order", tenant: None, erased }
    }

    fn said(version: u64, bucket: Option<Bucket>, erased: bool, taken: Taken) -> Option<Status> {
        status(&standing(version), bucket, &subject(100, erased), taken)
    }

    #[test]
    fn before_and_behind_the_cursor_only_what_is_taken_is_shown() {
        for (seq, status_there) in [(10, Status::BeforeStart), (5_001, Status::Pending)] {
            let at = |taken| status(&standing(1), None, &subject(seq, false), taken);
            assert_eq!(at(Taken::Delivered), Some(status_there));
            assert_eq!(at(Taken::No), None);
        }
        assert_eq!(said(1, None, false, Taken::Delivered), Some(Status::Settled));
    }

    #[test]
    fn a_bucket_of_one_kind_says_it_whatever_the_routes_say_now() {
        let of = |change: fn(&mut Bucket)| {
            let mut bucket = Bucket { count: 7, ..Bucket::default() };
            change(&mut bucket);
            said(2, Some(bucket), false, Taken::No)
        };
        assert_eq!(of(|bucket| bucket.acked = 7), Some(Status::Published));
        assert_eq!(of(|bucket| bucket.dropped = 7), Some(Status::Dropped));
        assert_eq!(of(|bucket| bucket.erased = 7), Some(Status::Erased));
        assert_eq!(of(|bucket| bucket.other_route = 7), None);
    }

    /// R017: in a mixed bucket nothing is called published that a changed route may have passed by.
    #[test]
    fn a_mixed_bucket_is_told_apart_by_routes_that_never_changed() {
        let mixed = Some(Bucket { count: 7, acked: 3, other_route: 4, ..Bucket::default() });
        assert_eq!(said(1, mixed, false, Taken::Delivered), Some(Status::Published));
        assert_eq!(said(2, mixed, false, Taken::Delivered), Some(Status::Settled));
        assert_eq!(said(1, mixed, true, Taken::Delivered), Some(Status::Settled));
        assert_eq!(said(1, mixed, false, Taken::No), None);
        let left = Some(Bucket { count: 7, acked: 3, waiting: 4, ..Bucket::default() });
        assert_eq!(said(2, left, false, Taken::No), Some(Status::Published));
    }
}
