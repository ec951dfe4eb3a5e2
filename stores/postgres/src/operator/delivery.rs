//! What became of an event at each destination, derived from cursor, waiting row, range, and settled log.
//!
//! Invariant (INV-7): `published` is said only where the log proves that the broker acknowledged it:
//! in a bucket where nothing else happened, or where the routes say what is whose and never changed; and never of what a
//! range stands for.

use postrider_core::operate::listing;
use postrider_core::operate::{DeliveryView, Status};
use postrider_core::waiting::Reason;
use postrider_core::{Destination, DestinationId, Event, EventId, KeyHash, Result};
use tokio_postgres::Row;

use super::value::{count, flag, number, shown, small, text, time};
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{params, signed, unsigned};

const DELIVERIES: Sql = sql!("operator/deliveries");
const REQUEUES_OPEN: Sql = sql!("operator/requeues_open");
const STANDINGS: Sql = sql!("operator/standings");

/// A destination.
pub(super) struct Standing {
    pub(super) definition: Destination,
    pub(super) kind: String,
    pub(super) version: u64,
    pub(super) paused: bool,
}

impl Standing {
    /// Whether the routes are still the first ones, and it has routes of its own.
    fn original(&self) -> bool {
        self.version == 1 && !self.definition.is_unrouted()
    }

    /// Whether an event waits by a range, whose events were passed by this version of the definition. What no route takes does
    /// not, where the routes are the same still: it was passed as another's.
    pub(super) fn waits(&self, range: u64, taken: Taken) -> bool {
        let known = range == self.version && !self.definition.is_unrouted();
        taken == Taken::Delivered || !known
    }
}

/// Reads every destination, in the order of their names.
pub(super) async fn standings(session: &Session) -> Result<Vec<Standing>> {
    let rows = session.rows("read destinations", &STANDINGS, params![]).await?;
    let read = |row: &Row| {
        let definition = Destination::from_definition(&shown(row, 2));
        Ok(Standing {
            definition: definition.map_err(|e| e.context("destination", shown(row, 0)))?,
            kind: shown(row, 1),
            version: small(row, 3).into(),
            paused: shown(row, 4) == "paused",
        })
    };
    let mut standings = rows.iter().map(read).collect::<Result<Vec<Standing>>>()?;
    // Not as the database sorts: its order of letters is its own.
    standings.sort_by(|a, b| a.definition.id.cmp(&b.definition.id));
    Ok(standings)
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
}

/// Whether a destination's routes take an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Taken {
    Delivered,
    Dropped,
    No,
}

/// What routes, cursors, and the log look at.
pub(super) struct Subject<'a> {
    pub(super) seq: u64,
    /// Of the transaction that wrote it; `None` for one that the outbox has forgotten.
    pub(super) xid: Option<i64>,
    pub(super) partition: i16,
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
const OPEN_REQUEUES_MAX: i64 = 100;

/// The destinations of a store, read once for a whole page.
pub(super) struct Deliveries {
    standings: Vec<Standing>,
    /// Requeues that are not finished: what they name was passed by its cursor, and is about to be
    /// sent.
    requeues: Vec<i64>,
}

impl Deliveries {
    pub(super) async fn read(session: &Session) -> Result<Deliveries> {
        let standings = standings(session).await?;
        let limit = params![OPEN_REQUEUES_MAX];
        let requeues = session.rows("read requests", &REQUEUES_OPEN, limit).await?;
        let requeues = requeues.iter().filter_map(|row| number(row, 0)).collect();
        Ok(Deliveries { standings, requeues })
    }

    /// What became of each of some events; the destinations that one does not concern are left out.
    pub(super) async fn of(
        &self,
        session: &Session,
        subjects: &[Subject<'_>],
    ) -> Result<Vec<Vec<DeliveryView>>> {
        let numbers: Vec<i64> = subjects.iter().map(|subject| signed(subject.seq)).collect();
        let xids: Vec<Option<i64>> = subjects.iter().map(|subject| subject.xid).collect();
        let partitions: Vec<i16> = subjects.iter().map(|subject| subject.partition).collect();
        let hash = |subject: &Subject<'_>| KeyHash::of(subject.key).0.cast_signed();
        let hashes: Vec<i64> = subjects.iter().map(hash).collect();
        let asked = params![numbers, xids, partitions, self.requeues, hashes];
        let rows = session.rows("read deliveries", &DELIVERIES, asked).await?;
        let mut all: Vec<Vec<DeliveryView>> = Vec::new();
        let mut rows = rows.iter().peekable();
        for (index, subject) in subjects.iter().enumerate() {
            let taken = taken_by(&self.standings, &subject.event());
            let mut deliveries = Vec::new();
            while let Some(row) = rows.next_if(|row| count(row, 0) == index as u64 + 1) {
                let name = shown(row, 1);
                let found = self.standings.iter().position(|s| s.definition.id.as_str() == name);
                if let Some(at) = found {
                    let (standing, taken) = (&self.standings[at], taken[at]);
                    deliveries.extend(delivery(standing, row, subject, taken));
                }
            }
            deliveries.sort_by(|a, b| a.destination.cmp(&b.destination));
            all.push(deliveries);
        }
        Ok(all)
    }

    /// The destinations that would take an event which is only scheduled.
    pub(super) fn scheduled(&self, event: &Event) -> Vec<DeliveryView> {
        let taken = taken_by(&self.standings, event);
        let concerned = taken.into_iter().zip(&self.standings).filter(|(t, _)| *t != Taken::No);
        concerned.map(|(_, standing)| plain(&standing.definition.id, Status::Scheduled)).collect()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &DestinationId> {
        self.standings.iter().map(|standing| &standing.definition.id)
    }
}

/// A row of `operator/deliveries.sql`.
fn delivery(
    standing: &Standing,
    row: &Row,
    subject: &Subject<'_>,
    taken: Taken,
) -> Option<DeliveryView> {
    let (passed, before) = (flag(row, 2), flag(row, 3));
    let bucket = number(row, 9).filter(|_| passed && !before).map(|_| Bucket {
        count: count(row, 9),
        acked: count(row, 10),
        other_route: count(row, 11),
        dropped: count(row, 12),
        waiting: count(row, 13),
        erased: count(row, 14),
    });
    let id = &standing.definition.id;
    let range = number(row, 17).filter(|_| passed && !before).map(unsigned);
    let mut delivery = match waiting(id, row) {
        Some(delivery) => delivery,
        None if range.is_some_and(|range| standing.waits(range, taken)) => {
            let reason = Some(Reason::Behind.as_str().to_owned());
            DeliveryView { reason, ..plain(id, Status::Parked) }
        }
        None => {
            let place = Place { passed, before, bucket };
            let said = status(place, subject.erased, taken, standing.original())?;
            // It is asked for again because nobody knows whether it was.
            let asked_again = said == Status::Published && flag(row, 16);
            plain(id, if asked_again { Status::Settled } else { said })
        }
    };
    delivery.settled_at = time(row, 15).filter(|_| bucket.is_some());
    Some(delivery)
}

fn waiting(id: &DestinationId, row: &Row) -> Option<DeliveryView> {
    let status = listing::status_of(&text(row, 4)?).unwrap_or(Status::Held);
    let timed = matches!(status, Status::Retrying | Status::Held);
    Some(DeliveryView {
        attempts: small(row, 5),
        reason: text(row, 6),
        detail: text(row, 7).filter(|detail| !detail.is_empty()),
        next_at: time(row, 8).filter(|_| timed),
        ..plain(id, status)
    })
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

/// Where an event stands to a cursor.
#[derive(Clone, Copy)]
struct Place {
    passed: bool,
    /// It was there before the destination began.
    before: bool,
    bucket: Option<Bucket>,
}

/// What became of an event that does not wait; `None` if it does not concern the destination.
/// `original`: the routes say what was whose, because they never changed.
fn status(place: Place, erased: bool, taken: Taken, original: bool) -> Option<Status> {
    let concerned = |status| (taken != Taken::No).then_some(status);
    if !place.passed {
        return concerned(Status::Pending);
    }
    if place.before {
        return concerned(Status::BeforeStart);
    }
    let Some(bucket) = place.bucket else {
        return concerned(Status::Settled);
    };
    match bucket {
        all if all.other_route == all.count => return None,
        all if all.dropped == all.count => return Some(Status::Dropped),
        all if all.erased == all.count => return Some(Status::Erased),
        all if all.acked == all.count => return Some(Status::Published),
        all if all.acked + all.waiting == all.count && !erased => return Some(Status::Published),
        _ => {}
    }
    // The bucket is mixed.
    match taken {
        Taken::No => None,
        Taken::Dropped if original => Some(Status::Dropped),
        // Erased before it was sent, or after: the log does not say which one it was.
        Taken::Delivered if erased => Some(Status::Settled),
        Taken::Delivered if original => Some(Status::Published),
        Taken::Delivered | Taken::Dropped => Some(Status::Settled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(original: bool, bucket: Option<Bucket>, erased: bool, taken: Taken) -> Option<Status> {
        status(Place { passed: true, before: false, bucket }, erased, taken, original)
    }

    #[test]
    fn before_and_behind_the_cursor_only_what_is_taken_is_shown() {
        for (passed, before, told) in
            [(true, true, Status::BeforeStart), (false, false, Status::Pending)]
        {
            let place = Place { passed, before, bucket: None };
            assert_eq!(status(place, false, Taken::Delivered, true), Some(told));
            assert_eq!(status(place, false, Taken::No, true), None);
        }
        // What a rewind brings again is pending, though it is from before the beginning.
        let again = Place { passed: false, before: true, bucket: None };
        assert_eq!(status(again, false, Taken::Delivered, true), Some(Status::Pending));
        assert_eq!(said(true, None, false, Taken::Delivered), Some(Status::Settled));
    }

    #[test]
    fn a_bucket_of_one_kind_says_it_whatever_the_routes_say_now() {
        let of = |change: fn(&mut Bucket)| {
            let mut bucket = Bucket { count: 7, ..Bucket::default() };
            change(&mut bucket);
            said(false, Some(bucket), false, Taken::No)
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
        assert_eq!(said(true, mixed, false, Taken::Delivered), Some(Status::Published));
        assert_eq!(said(false, mixed, false, Taken::Delivered), Some(Status::Settled));
        assert_eq!(said(true, mixed, true, Taken::Delivered), Some(Status::Settled));
        assert_eq!(said(true, mixed, false, Taken::No), None);
        let left = Some(Bucket { count: 7, acked: 3, waiting: 4, ..Bucket::default() });
        assert_eq!(said(false, left, false, Taken::No), Some(Status::Published));
    }
}
