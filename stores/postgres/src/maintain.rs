//! What the tables need from time to time: new ones made ahead, empty ones taken away, the default one split
//! off where it grew while nobody was there, ranges of an index summed up, and dead versions of cursors counted.
//!
//! Done by whoever renews leases, in a task beside that, on a session of its own. Invariant: it waits for no
//! lock longer than 200 ms, so nobody waits behind it for longer; what it does not get it tries again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::{Code, Error, ErrorKind, PartitionId, Result, RetryClass};

use crate::session::Session;
use crate::setup::Layout;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::params;
use crate::{apart, schema};

const AHEAD: Sql = sql!("maintain/ahead");
const DETACH: Sql = sql!("maintain/detach");
const SPLIT: Sql = sql!("maintain/split");
const SUMMARIZE: Sql = sql!("maintain/summarize");
const PATIENCE: Sql = sql!("maintain/patience");

/// How often tables are made ahead: two million events are room for as long at a hundred thousand a second. As
/// often versions of cursors are counted: twenty of them are no matter.
const EVERY: Duration = Duration::from_secs(20);

/// How often empty tables are taken away: they cost nothing but a moment when a statement is planned.
const DETACH_EVERY: Duration = Duration::from_secs(60);

/// The longest pause after tries that found a transaction open. Every try may hold producers up for 200 ms.
const DETACH_PAUSE_MAX: Duration = Duration::from_secs(600);

/// How often a lock is asked for before it is left to the next time.
const TRIES_MAX: usize = 5;

/// The default table is split off when it has more bytes: what can be looked through under a lock within a
/// tenth of a second. `outbox_ahead` has the same limit.
const DEFAULT_MAX: i64 = 64 * 1024 * 1024;

/// How long the default table may be looked through: half a terabyte. No producer waits for that.
const LOOK_THROUGH_MAX: Duration = Duration::from_secs(2 * 3_600);

/// Steps of a split, with one more that finds nothing to do, and one that puts an old mark away.
const STEPS_MAX: usize = 6;

/// What a process remembers of the tables.
#[derive(Debug, Default)]
pub(crate) struct Maintained {
    layout: OnceLock<Layout>,
    /// A relay has looked whether the server's counters lie behind a cursor. Every fetch looks again.
    counters: AtomicBool,
    /// How many dead versions a cursor's row had when they were counted last.
    versions: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When tables are next made ahead; at once, if never.
    ahead_at: Option<Instant>,
    detach_at: Option<Instant>,
    detach_pause: Duration,
    split_at: Option<Instant>,
    split_pause: Duration,
    under_way: bool,
    /// What was told of that keeps the tables from being seen to.
    told: Option<String>,
    /// Where a partition is looked through for what may be deleted, by the number before.
    looks: BTreeMap<u16, i64>,
}

impl Maintained {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counters_were_checked(&self) -> bool {
        self.counters.load(Ordering::Relaxed)
    }

    pub(crate) fn counters_checked(&self) {
        self.counters.store(true, Ordering::Relaxed);
    }

    /// How far apart saves of cursors should be, by the last count.
    pub(crate) fn saves_apart(&self) -> Duration {
        apart::saves_apart(self.versions.load(Ordering::Relaxed))
    }

    /// From where to look on for what may be deleted.
    pub(crate) fn looks_from(&self, partition: PartitionId) -> i64 {
        self.state().looks.get(&partition.0).copied().unwrap_or_default()
    }

    pub(crate) fn look_from(&self, partition: PartitionId, after: i64) {
        self.state().looks.insert(partition.0, after);
    }

    /// What is due, if it is not under way already: to make tables, to take some away.
    fn begin(&self, now: Instant) -> Option<(bool, bool)> {
        let mut state = self.state();
        let is_due = |at: Option<Instant>| at.is_none_or(|at| at <= now);
        let due = (is_due(state.ahead_at), is_due(state.detach_at));
        if state.under_way || due == (false, false) {
            return None;
        }
        state.under_way = true;
        Some(due)
    }

    fn made_ahead(&self, now: Instant) {
        self.state().ahead_at = Some(now + EVERY);
    }

    /// Notes whether empty tables could be taken away; each failure doubles the pause.
    fn detached(&self, now: Instant, done: bool) {
        let mut state = self.state();
        state.detach_pause = match done {
            true => DETACH_EVERY,
            false => (state.detach_pause * 2).clamp(DETACH_EVERY, DETACH_PAUSE_MAX),
        };
        state.detach_at = Some(now + state.detach_pause);
    }

    /// Whether to try the split now; each time the pause doubles, until it is done.
    fn begin_split(&self, now: Instant) -> bool {
        let mut state = self.state();
        if state.split_at.is_some_and(|at| at > now) {
            return false;
        }
        state.split_pause = (state.split_pause * 2).clamp(EVERY, DETACH_PAUSE_MAX);
        state.split_at = Some(now + state.split_pause);
        true
    }

    fn was_split(&self) {
        let mut state = self.state();
        (state.split_at, state.split_pause) = (None, Duration::ZERO);
    }

    /// Ends it, and says whether a person is to hear how it went: of each trouble once, and of its end. What others have
    /// locked, and a server that is away, come and go by themselves.
    fn end(&self, done: &Result<()>) -> bool {
        let mut state = self.state();
        state.under_way = false;
        let told = match done {
            Err(error) if error.retry_class() == RetryClass::Transient => return false,
            Err(error) => Some(error.to_string()),
            Ok(()) => None,
        };
        let is_news = state.told != told;
        state.told = told;
        is_news
    }
}

/// How the outbox lies on disk. It never changes.
pub(crate) async fn layout(store: &PostgresStore, session: &Session) -> Result<Layout> {
    if let Some(known) = store.maintained().layout.get() {
        return Ok(*known);
    }
    let layout = schema::setup(session).await?.layout.unwrap_or_default();
    Ok(*store.maintained().layout.get_or_init(|| layout))
}

/// Sees to the tables if it is time, beside what the caller does.
pub(crate) fn when_due(store: &PostgresStore) {
    let Some((ahead, detach)) = store.maintained().begin(Instant::now()) else { return };
    let store = store.clone();
    tokio::spawn(async move {
        let done = maintain(&store, ahead, detach).await;
        if !store.maintained().end(&done) {
            return;
        }
        let name = store.name();
        match done {
            Ok(()) => tracing::info!(store = name, "the outbox's tables are seen to again"),
            Err(error) => tracing::warn!(
                store = name, %error,
                "the outbox's tables are not seen to; it is tried again, and until then events go to the default table"
            ),
        }
    });
}

/// A table was emptied.
pub(crate) fn detach_soon(store: &PostgresStore) {
    let mut state = store.maintained().state();
    if state.detach_pause <= DETACH_EVERY {
        state.detach_at = None;
    }
}

async fn maintain(store: &PostgresStore, ahead: bool, detach: bool) -> Result<()> {
    let maintained = store.maintained();
    if ahead {
        maintained.made_ahead(Instant::now());
    }
    if detach {
        // Until it is known better, so that a failure is not tried again at once.
        maintained.detached(Instant::now(), false);
    }
    let session = store.sessions().connect("maintain").await?;
    if ahead {
        // Somebody vacuums: then there is less to do the next time.
        _ = session.row("maintain", &SUMMARIZE, params![]).await;
        if let Ok(versions) = apart::versions(&session).await {
            maintained.versions.store(versions, Ordering::Relaxed);
        }
    }
    if layout(store, &session).await? == Layout::Plain {
        return Ok(());
    }
    let made = match ahead {
        true => make_ahead(&session).await,
        false => Ok(0),
    };
    if detach {
        // Also where none can be made.
        session.row("maintain", &DETACH, params![]).await?;
        maintained.detached(Instant::now(), true);
    }
    if made? < 0 && maintained.begin_split(Instant::now()) {
        split(store, session).await?;
        maintained.was_split();
    }
    Ok(())
}

/// Says how many were made, or less than none if the default table is in the way.
async fn make_ahead(session: &Session) -> Result<i32> {
    for _ in 1..TRIES_MAX {
        match session.row("maintain", &AHEAD, params![]).await {
            Err(busy) if busy.kind() == ErrorKind::Busy => {}
            made => return made.map(|row| row.get(0)),
        }
        // waits: a reader holds the default table, and the server does not say when it lets go.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    session.row("maintain", &AHEAD, params![]).await.map(|row| row.get(0))
}

/// Splits the default table off, from where the last try stopped.
async fn split(store: &PostgresStore, session: Session) -> Result<()> {
    let (name, code) = (store.name(), Code::DefaultTableGrew);
    let session = session.patient(LOOK_THROUGH_MAX);
    if session.prepares() {
        session.row("split", &PATIENCE, params![]).await?;
    }
    for _ in 0..STEPS_MAX {
        let taken = session.row("split", &SPLIT, params![DEFAULT_MAX]).await;
        match taken.as_ref().map(|row| row.get::<_, &str>(0)) {
            Ok("leapt") => {
                tracing::info!(store = name, %code, "the default table was split off");
                return Ok(());
            }
            Ok("none") => return Ok(()),
            Ok("mixed") => {
                return Err(Error::new(ErrorKind::Busy, "split").message(
                    "the default table also holds numbers below those of other tables: it is split \
                     when retention has deleted them",
                ));
            }
            Ok(step) => {
                tracing::warn!(store = name, %code, step, "the default table grew; it is being split off");
            }
            Err(error) => {
                tracing::warn!(store = name, %code, %error, "the default table is not split off yet");
                break;
            }
        }
    }
    Err(Error::new(ErrorKind::Busy, "split").message("the default table is not split off yet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_that_is_in_somebodys_way_is_tried_less_and_less_often() {
        let maintained = Maintained::default();
        let mut now = Instant::now();
        for pause in [20, 40, 80, 160, 320, 600, 600] {
            assert!(maintained.begin_split(now));
            assert!(!maintained.begin_split(now + Duration::from_secs(pause - 1)));
            now += Duration::from_secs(pause);
        }
        maintained.was_split();
        assert!(maintained.begin_split(now));
    }

    #[test]
    fn each_failure_doubles_the_pause_and_one_success_ends_it() {
        let maintained = Maintained::default();
        let now = Instant::now();
        assert_eq!(maintained.begin(now), Some((true, true)));
        assert_eq!(maintained.begin(now), None, "one at a time");
        maintained.made_ahead(now);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            maintained.detached(now, false);
            pauses.push(maintained.state().detach_pause.as_secs());
        }
        assert_eq!(pauses, [60, 120, 240, 480, 600, 600]);
        maintained.end(&Ok(()));
        assert_eq!(maintained.begin(now + EVERY), Some((true, false)));
        maintained.end(&Ok(()));
        maintained.detached(now, true);
        assert_eq!(maintained.begin(now + DETACH_EVERY), Some((true, true)));
    }

    #[test]
    fn each_trouble_is_told_once_and_its_end_and_what_others_have_locked_is_not() {
        let maintained = Maintained::default();
        let failed = |kind, message| Err(Error::new(kind, "maintain").message(message));
        let told = [
            Ok(()),
            failed(ErrorKind::Busy, "locked"),
            failed(ErrorKind::Internal, "ddl is forbidden"),
            failed(ErrorKind::Internal, "ddl is forbidden"),
            failed(ErrorKind::Unavailable, "away"),
            failed(ErrorKind::Unauthorized, "a privilege"),
            Ok(()),
            Ok(()),
        ]
        .map(|done| maintained.end(&done));
        assert_eq!(told, [false, false, true, false, false, true, true, false]);
    }
}
