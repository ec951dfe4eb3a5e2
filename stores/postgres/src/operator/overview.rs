//! The overview: everything at a glance, by the database's clock.
//!
//! Invariant: its cost does not grow with the outbox. What is before a cursor is counted where it is
//! little, and reckoned from its first events where it is much; waiting events are counted by their
//! index; what would need a look at rows looks at a stated number of them. What does grow are the sums of
//! the settled log: a row for 4,096 events of a destination, or for as few as its partitions leave of them.

use std::collections::{BTreeMap, HashMap};

use postrider_core::operate::{
    DestinationView, ErrorGroup, Overview, PartitionView, RelayView, SettledTotals,
};
use postrider_core::source::StoreFacts;
use postrider_core::waiting::{Counts, WaitingState};
use postrider_core::{
    Destination, DestinationState, Error, ErrorKind, Hindrance, PartitionId, RelayId, Result,
    Timestamp,
};

use super::delivery::{Standing, standings};
use super::value::{count, flag, number, partition, shown, small, text, time};
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{Moment, params};
use crate::{PostgresStore, identity, schema};

const CURSORS_COUNT: Sql = sql!("operator/cursors_count");
const DEAD_SINCE: Sql = sql!("operator/dead_since");
const ENDPOINTS: Sql = sql!("operator/endpoints");
const KEPT: Sql = sql!("operator/kept");
const PARTITIONS: Sql = sql!("operator/partitions");
const PENDING: Sql = sql!("operator/pending");
const RANGES_COUNT: Sql = sql!("operator/ranges_count");
const REASONS: Sql = sql!("operator/reasons");
const RELAYS: Sql = sql!("operator/relays");
const REQUESTS_OPEN_COUNT: Sql = sql!("operator/requests_open_count");
const RETRY_NEXT: Sql = sql!("operator/retry_next");
const SCHEDULED_TOTALS: Sql = sql!("operator/scheduled_totals");
const SEQUENCE: Sql = sql!("operator/sequence");
const SETTLED_TOTALS: Sql = sql!("operator/settled_totals");
const WAITING_COUNTS: Sql = sql!("operator/waiting_counts");
const WAITING_CREATED_AT: Sql = sql!("operator/waiting_created_at");

/// Waiting rows of a destination whose reasons are read, and dead letters whose times are: enough to
/// tell what is wrong, and milliseconds.
const LOOKED_AT_MAX: i64 = 10_000;

/// Events before all cursors together that are looked at: some hundredths of a second.
const AHEAD_MAX: i64 = 30_000;

/// Events before one cursor that are looked at, at least and at most.
const AHEAD_OF_ONE: (i64, i64) = (16, 2_000);

/// Scheduled events that are counted one by one.
const SCHEDULED_COUNTED_MAX: i64 = 100_000;

/// Reasons that are shown.
const REASONS_MAX: i64 = 10;

/// Disabled endpoints that are shown.
const ENDPOINTS_MAX: i64 = 100;

/// The state of everything.
pub(super) async fn read(store: &PostgresStore) -> Result<Overview> {
    let tx = store.sessions().begin_reading("overview").await?;
    let seen = whole(&tx, store.name()).await;
    tx.end("overview").await;
    let mut seen = seen?;
    if let Some((pending, since)) = store.inner.beside.pending().await? {
        let own =
            seen.destinations.iter_mut().filter(|view| view.id.as_str() != Destination::UNROUTED);
        own.for_each(|view| (view.pending, view.pending_since) = (pending, since));
    }
    Ok(seen)
}

/// Whether the database is a copy that nobody adopted. Who may not ask is not told: the doctor names the grant that is
/// missing, and a relay does not start without it. Nothing more is asked in the transaction, which ends with a refusal.
async fn is_copy(session: &Session) -> Result<bool> {
    match identity::read(session).await {
        Ok(place) => Ok(!place.is_same()),
        Err(error) if error.kind() == ErrorKind::Unauthorized => Ok(false),
        Err(error) => Err(error),
    }
}

async fn whole(session: &Session, name: &str) -> Result<Overview> {
    let schema = check(session).await?;
    let meta = schema::meta(session).await?;
    let partitions = u16::try_from(schema::number(&meta, "partitions")?).unwrap_or(u16::MAX);
    let clock = session.row("overview", &SEQUENCE, params![]).await?;
    let (now, sequence) = (time(&clock, 0).unwrap_or_default(), count(&clock, 1));
    let all = i32::from(partitions);
    let kept = session.row("overview", &KEPT, params![all]).await?;
    let scheduled = params![all, SCHEDULED_COUNTED_MAX];
    let scheduled = session.row("overview", &SCHEDULED_TOTALS, scheduled).await?;
    let counted = count(&scheduled, 0);
    let requests = session.row("overview", &REQUESTS_OPEN_COUNT, params![]).await?;
    Ok(Overview {
        facts: StoreFacts { name: name.to_owned(), partitions, schema },
        now,
        definitions: schema::number(&meta, "definitions_version")?,
        enqueued: sequence.saturating_sub(count(&clock, 2)),
        kept: number(&kept, 0).map_or(0, |_| count(&kept, 1)),
        oldest: time(&kept, 2),
        relays: relays(session, now).await?,
        partitions: self::partitions(session, now).await?,
        destinations: destinations(session, sequence).await?,
        scheduled: if counted < SCHEDULED_COUNTED_MAX.unsigned_abs() {
            counted
        } else {
            count(&scheduled, 1)
        },
        scheduled_next: time(&scheduled, 2),
        requests: count(&requests, 0),
        stray_bytes: number(&kept, 3).map(i64::unsigned_abs),
        copy: is_copy(session).await?,
    })
}

/// Says what is wrong with the tables before a statement fails on them.
async fn check(session: &Session) -> Result<u32> {
    match schema::version(session).await? {
        found if found >= schema::NEEDS => Ok(found),
        found => Err(Error::new(ErrorKind::SchemaMissing, "overview").message(format!(
            "the tables have version {found}, this program needs {}: run `postrider init`",
            schema::NEEDS
        ))),
    }
}

/// How long until a moment; zero if it is over.
fn until(now: Timestamp, then: Timestamp) -> std::time::Duration {
    crate::typed::span(then.as_micros().saturating_sub(now.as_micros()))
}

async fn relays(session: &Session, now: Timestamp) -> Result<Vec<RelayView>> {
    let rows = session.rows("overview", &RELAYS, params![Moment::from(now)]).await?;
    let view = |row| {
        Ok(RelayView {
            owner: RelayId::new(shown(row, 0))?,
            current: flag(row, 1),
            expires_in: until(now, time(row, 2).unwrap_or_default()),
            hindrances: Hindrance::read(&shown(row, 3)),
        })
    };
    rows.iter().map(view).collect()
}

async fn partitions(session: &Session, now: Timestamp) -> Result<Vec<PartitionView>> {
    let rows = session.rows("overview", &PARTITIONS, params![]).await?;
    let view = |row| {
        let expires_at = time(row, 3).unwrap_or_default();
        let owner = text(row, 1).filter(|_| expires_at > now);
        Ok(PartitionView {
            partition: PartitionId(u16::try_from(partition(row, 0)).unwrap_or(u16::MAX)),
            host: text(row, 2).filter(|_| owner.is_some()),
            expires_in: owner.as_ref().map(|_| until(now, expires_at)),
            owner: owner.map(RelayId::new).transpose()?,
            takeovers: small(row, 4),
            paused: flag(row, 5),
        })
    };
    rows.iter().map(view).collect()
}

async fn destinations(session: &Session, sequence: u64) -> Result<Vec<DestinationView>> {
    let mut pending = pending(session, sequence).await?;
    let mut waits = waits(session).await?;
    let mut settled = settled(session).await?;
    let mut errors = reasons(session).await?;
    let mut disabled: HashMap<String, Vec<String>> = HashMap::new();
    for row in session.rows("overview", &ENDPOINTS, params![ENDPOINTS_MAX]).await? {
        disabled.entry(shown(&row, 0)).or_default().push(shown(&row, 1));
    }
    let mut dead_since = moments(session, &DEAD_SINCE, params![LOOKED_AT_MAX]).await?;
    let mut retry_next = moments(session, &RETRY_NEXT, params![]).await?;
    let view = |standing: Standing| {
        let id = standing.definition.id;
        let name = id.as_str();
        let ahead = pending.remove(name).unwrap_or_default();
        let waits = waits.remove(name).unwrap_or_default();
        let state = [DestinationState::Active, DestinationState::Paused];
        DestinationView {
            kind: standing.kind,
            version: standing.version,
            state: state[usize::from(standing.paused)],
            pending: ahead.pending.min(sequence.saturating_sub(ahead.least)),
            pending_since: ahead.oldest.map(|(since, _)| since),
            waiting: waits.counts,
            ranges: waits.ranges,
            waiting_since: waits.since,
            dead_since: dead_since.remove(name),
            retry_next: retry_next.remove(name),
            settled: settled.remove(name).unwrap_or_default(),
            saved_at: ahead.saved_at(),
            errors: errors.remove(name).unwrap_or_default(),
            disabled: disabled.remove(name).unwrap_or_default(),
            id,
        }
    };
    Ok(standings(session).await?.into_iter().map(view).collect())
}

/// Moments by destination.
async fn moments(
    session: &Session,
    statement: &Sql,
    values: &[crate::typed::Param<'_>],
) -> Result<HashMap<String, Timestamp>> {
    let rows = session.rows("overview", statement, values).await?;
    Ok(rows.iter().filter_map(|row| Some((shown(row, 0), time(row, 1)?))).collect())
}

/// What lies before a destination's cursors.
struct Ahead {
    pending: u64,
    /// When the oldest event before any of its cursors was created, and when that cursor was saved.
    oldest: Option<(Timestamp, Timestamp)>,
    /// When any of its cursors was last saved.
    saved: Option<Timestamp>,
    /// The least number that any of its cursors has reached.
    least: u64,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead { pending: 0, oldest: None, saved: None, least: u64::MAX }
    }
}

impl Ahead {
    /// When the cursor that is furthest behind was saved: cursors with nothing before them are saved while it stands.
    fn saved_at(&self) -> Option<Timestamp> {
        self.oldest.map(|(_, saved)| saved).or(self.saved)
    }
}

/// What lies before one cursor, as far as it was looked at.
#[derive(Clone, Copy)]
struct Look {
    /// How many events were seen, and how many of them the cursor has not passed.
    looked: u64,
    unpassed: u64,
    /// The numbers of the first and the last that was seen.
    first: u64,
    last: u64,
    /// At most so many were to be seen.
    most: u64,
    sequence: u64,
}

impl Look {
    /// How many events are there: counted, if all were seen; else what follows is taken for as dense as
    /// what was seen, and for not passed.
    fn pending(self) -> u64 {
        if self.looked < self.most {
            return self.unpassed;
        }
        let seen = u128::from(self.last.saturating_sub(self.first)) + 1;
        let rest = u128::from(self.sequence.saturating_sub(self.last));
        let estimate = (rest * u128::from(self.looked)).div_ceil(seen).min(rest);
        self.unpassed.saturating_add(u64::try_from(estimate).unwrap_or(u64::MAX))
    }
}

async fn pending(session: &Session, sequence: u64) -> Result<HashMap<String, Ahead>> {
    let cursors = session.row("overview", &CURSORS_COUNT, params![]).await?;
    let share = AHEAD_MAX / number(&cursors, 0).unwrap_or(1).max(1);
    let most = share.clamp(AHEAD_OF_ONE.0, AHEAD_OF_ONE.1);
    let mut all: HashMap<String, Ahead> = HashMap::new();
    for row in session.rows("overview", &PENDING, params![most]).await? {
        let look = Look {
            looked: count(&row, 2),
            unpassed: count(&row, 3),
            first: count(&row, 4),
            last: count(&row, 5).saturating_sub(count(&row, 7).saturating_sub(count(&row, 8))),
            most: most.unsigned_abs(),
            sequence: sequence.saturating_sub(count(&row, 7)),
        };
        let ahead = all.entry(shown(&row, 0)).or_default();
        ahead.pending = ahead.pending.saturating_add(look.pending());
        ahead.least = ahead.least.min(count(&row, 1));
        let saved = time(&row, 9);
        ahead.oldest = ahead.oldest.into_iter().chain(time(&row, 6).zip(saved)).min();
        ahead.saved = ahead.saved.max(saved);
    }
    Ok(all)
}

/// What waits at a destination.
#[derive(Default)]
struct Waits {
    counts: Counts,
    /// Of how many keys more waits than that.
    ranges: u64,
    /// When the oldest that is not dead was created.
    since: Option<Timestamp>,
}

async fn waits(session: &Session) -> Result<HashMap<String, Waits>> {
    let mut all: HashMap<String, Waits> = HashMap::new();
    let mut oldest: BTreeMap<String, i64> = BTreeMap::new();
    for row in session.rows("overview", &WAITING_COUNTS, params![]).await? {
        let (destination, count, first) = (shown(&row, 0), count(&row, 2), number(&row, 3));
        let counts = &mut all.entry(destination.clone()).or_default().counts;
        let slot = match shown(&row, 1).parse::<WaitingState>()? {
            WaitingState::Retrying => &mut counts.retrying,
            WaitingState::Parked => &mut counts.parked,
            WaitingState::Held => &mut counts.held,
            WaitingState::Disabled => &mut counts.disabled,
            WaitingState::Dead => {
                counts.dead = count;
                continue;
            }
            WaitingState::Discarded => continue,
        };
        *slot = count;
        let known = oldest.entry(destination).or_insert(i64::MAX);
        *known = (*known).min(first.unwrap_or(i64::MAX));
    }
    let (names, numbers): (Vec<String>, Vec<i64>) = oldest.into_iter().unzip();
    let created = moments(session, &WAITING_CREATED_AT, params![names, numbers]).await?;
    for (destination, at) in created {
        all.entry(destination).or_default().since = Some(at);
    }
    for row in session.rows("overview", &RANGES_COUNT, params![]).await? {
        all.entry(shown(&row, 0)).or_default().ranges = count(&row, 1);
    }
    Ok(all)
}

async fn settled(session: &Session) -> Result<HashMap<String, SettledTotals>> {
    let rows = session.rows("overview", &SETTLED_TOTALS, params![]).await?;
    let sums = rows.iter().map(|row| {
        let sums = SettledTotals {
            count: count(row, 1),
            acked: count(row, 2),
            other_route: count(row, 3),
            dropped: count(row, 4),
            waiting: count(row, 5),
            erased: count(row, 6),
        };
        (shown(row, 0), sums)
    });
    Ok(sums.collect())
}

async fn reasons(session: &Session) -> Result<HashMap<String, Vec<ErrorGroup>>> {
    let mut all: HashMap<String, Vec<ErrorGroup>> = HashMap::new();
    let bounds = params![LOOKED_AT_MAX, REASONS_MAX];
    for row in session.rows("overview", &REASONS, bounds).await? {
        let group =
            ErrorGroup { reason: shown(&row, 1), detail: shown(&row, 2), count: count(&row, 3) };
        all.entry(shown(&row, 0)).or_default().push(group);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_backlog_is_counted_and_a_long_one_reckoned_by_its_density() {
        let look = Look { looked: 7, unpassed: 5, first: 101, last: 200, most: 10, sequence: 900 };
        assert_eq!(look.pending(), 5);
        // One in ten of the numbers was an event of the partition.
        let look = Look { looked: 10, unpassed: 10, ..look };
        assert_eq!(look.pending(), 10 + 70);
        // Every number was.
        let look = Look { looked: 100, unpassed: 100, ..look };
        assert_eq!(look.pending(), 800);
        let look = Look { sequence: 200, ..look };
        assert_eq!(look.pending(), 100);
    }
}
