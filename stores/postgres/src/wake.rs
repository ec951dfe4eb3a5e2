//! Hearing of commits: one session that listens, where sessions are the store's own, and polling
//! everywhere.
//!
//! A notification says "look now", and no more: what it tells of may be gone already, and what is there may
//! never be told of. Invariant: no edge is lost while the session stands. What counts is whether anything
//! was heard since the last waiter was woken, not whether anybody waited at that moment; and a session that
//! is new counts as something heard.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use postrider_core::{Jitter, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;
use uuid::Uuid;

use crate::connect::Wire;
use crate::pooler::{Hearing, Ownership, Pooler};
use crate::session::Session;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::{Inner, PostgresStore};
use crate::typed::params;

const LISTEN: Sql = sql!("wake/listen");
pub(crate) const NOTIFY: Sql = sql!("wake/notify");

/// How long nothing may be heard before the store sends itself a notification, to see whether one comes.
const QUIET: Duration = Duration::from_secs(60);

/// How long a notification to ourselves may take.
const ROUND_TRIP: Duration = Duration::from_secs(5);

/// How long the store only polls after no notification came through.
const DEAF_FOR: Duration = Duration::from_secs(600);

/// What a notification that only the sender heeds begins with.
const PROBE: &str = "probe ";

/// A watch on one database's commits. Its session is opened for the first waiter.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How often something was heard.
    heard: watch::Sender<u64>,
    /// The last notification to ourselves that came back.
    returned: watch::Sender<String>,
    /// As of which number waiters were woken.
    told: AtomicU64,
}

/// Resolves when something may have been committed since the last call resolved.
pub(crate) async fn wake(store: &PostgresStore) {
    if store.inner.options.pooler == Pooler::Transaction {
        return std::future::pending().await;
    }
    let watch = &store.inner.watch;
    watch.start(&store.inner);
    let told = watch.shared.told.load(Ordering::Relaxed);
    let mut heard = watch.shared.heard.subscribe();
    let now = heard.wait_for(|heard| *heard > told).await.map(|now| *now);
    match now {
        Ok(now) => _ = watch.shared.told.fetch_max(now, Ordering::Relaxed),
        // The sender lives as long as the store.
        Err(_) => std::future::pending().await,
    }
}

impl Watch {
    /// Starts to listen, unless that goes on. A runtime that ended took its listener along.
    fn start(&self, store: &Arc<Inner>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(listen(Arc::downgrade(store), Arc::clone(&self.shared))));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

/// Listens for as long as there is a store.
async fn listen(store: Weak<Inner>, shared: Arc<Shared>) {
    let mut pause = Pause::default();
    loop {
        let ended = listen_once(&store, &shared, &mut pause).await;
        let Some(inner) = store.upgrade() else { return };
        let name = inner.sessions.address().name().to_owned();
        drop(inner);
        let rest = match ended {
            Ok(Ended::Deaf) => DEAF_FOR,
            Ok(Ended::Lost) => pause.next(),
            Err(error) => {
                tracing::debug!(store = name, %error, "cannot listen; commits are found by polling");
                pause.next()
            }
        };
        tokio::time::sleep(rest).await; // waits: before the server is asked again
    }
}

/// Why listening ended.
enum Ended {
    /// The session broke.
    Lost,
    /// Nothing comes through.
    Deaf,
}

async fn listen_once(
    store: &Weak<Inner>,
    shared: &Arc<Shared>,
    pause: &mut Pause,
) -> Result<Ended> {
    let (session, _driver) = {
        let Some(inner) = store.upgrade() else { return Ok(Ended::Lost) };
        // A line's session is examined when it is opened.
        inner.sessions.line(Line::Flush, "wake").await?;
        if inner.sessions.way().ownership() == Ownership::Shared {
            return Ok(Ended::Deaf);
        }
        let (client, wire) = inner.sessions.address().connect("wake").await?;
        let driver = Driver(tokio::spawn(drive(wire, Arc::clone(shared))));
        (inner.sessions.wrap(client), driver)
    };
    session.batch("wake", &session.texts().text(&LISTEN)).await?;
    *pause = Pause::default();
    // What was committed while nobody listened.
    shared.heard.send_modify(|heard| *heard += 1);
    let mut heard = shared.heard.subscribe();
    let mut proved = false;
    while !session.is_closed() {
        match probe(store, shared).await {
            Some(true) => proved = true,
            // A session that once heard is dead or cut off; a new one is deaf.
            Some(false) if proved => return Ok(Ended::Lost),
            Some(false) => {
                note(store, Hearing::Deaf);
                return Ok(Ended::Deaf);
            }
            None => {}
        }
        if proved {
            note(store, Hearing::Heard);
        }
        while let Ok(Ok(())) = tokio::time::timeout(QUIET, heard.changed()).await {
            if session.is_closed() {
                return Ok(Ended::Lost);
            }
        }
    }
    Ok(Ended::Lost)
}

fn note(store: &Weak<Inner>, hearing: Hearing) {
    if let Some(inner) = store.upgrade() {
        inner.sessions.way().hears(hearing);
    }
}

/// Sends ourselves a notification over another session, and says whether it came. Over the same one it
/// would come even where a pooler keeps all others away. `None`: it could not be sent.
async fn probe(store: &Weak<Inner>, shared: &Shared) -> Option<bool> {
    let payload = format!("{PROBE}{}", Uuid::now_v7().simple());
    let mut returned = shared.returned.subscribe();
    let session: Arc<Session> = {
        let inner = store.upgrade()?;
        inner.sessions.line(Line::Flush, "wake").await.ok()?
    };
    session.execute("wake", &NOTIFY, params![payload]).await.ok()?;
    let came = returned.wait_for(|returned| *returned == payload);
    Some(matches!(tokio::time::timeout(ROUND_TRIP, came).await, Ok(Ok(_))))
}

/// Moves the session's bytes, and tells what is heard.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn drive(mut wire: Wire, shared: Arc<Shared>) {
    while let Some(Ok(message)) = poll_fn(|context| wire.poll_message(context)).await {
        if let AsyncMessage::Notification(heard) = message {
            match heard.payload().starts_with(PROBE) {
                true => _ = shared.returned.send_replace(heard.payload().to_owned()),
                false => shared.heard.send_modify(|heard| *heard += 1),
            }
        }
    }
    // Whoever waits looks once more, and whoever listens finds that the session is closed.
    drop(wire);
    shared.heard.send_modify(|heard| *heard += 1);
}

/// How long to rest after a failure: longer each time, and not all relays at once.
#[derive(Debug)]
pub(crate) struct Pause {
    longest: Duration,
    jitter: Jitter,
}

impl Pause {
    const FIRST: Duration = Duration::from_millis(100);
    const LAST: Duration = Duration::from_secs(30);

    /// Between half of the step and the whole of it.
    pub(crate) fn next(&mut self) -> Duration {
        let rest = self.longest.mul_f64(1.0 - 0.5 * self.jitter.unit());
        self.longest = (self.longest * 2).min(Pause::LAST);
        rest
    }
}

impl Default for Pause {
    fn default() -> Pause {
        let seed = Uuid::now_v7().as_u64_pair().1;
        Pause { longest: Pause::FIRST, jitter: Jitter::seeded(seed) }
    }
}

impl PostgresStore {
    /// Tells relays of something that was just committed. If it fails, they find it by themselves.
    pub(crate) async fn announce(&self) {
        if let Ok(session) = self.sessions().line(Line::Write, "notify").await {
            _ = session.execute("notify", &NOTIFY, params![""]).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_to_their_bound() {
        let mut pause = Pause::default();
        let rests: Vec<Duration> = (0..12).map(|_| pause.next()).collect();
        assert!(rests[0] >= Pause::FIRST / 2 && rests[0] <= Pause::FIRST);
        assert!(rests[11] >= Pause::LAST / 2 && rests[11] <= Pause::LAST);
    }
}
