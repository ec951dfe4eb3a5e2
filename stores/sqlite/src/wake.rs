//! Waking the relay when another process commits.
//!
//! A commit writes to the log, flushes it, and becomes visible in shared memory, which the kernel
//! does not report. So a write to the log means: look now, and keep looking for a while. Invariant:
//! no edge is lost. What counts is whether the sequences grew since the last waiter was woken, not
//! whether anybody was listening at that moment.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::watch;

use crate::connection;
use crate::file::StoreFile;
use crate::signal::{Signal, Stir};
use crate::sql;
use crate::turnstile::{Bell, Found, Turnstile};

/// How long after a write to the log the store is looked at, at this pace: from the write to the
/// commit's visibility lies one flush of the disk.
const ATTENTIVE: Duration = Duration::from_millis(500);
const PACE: Duration = Duration::from_millis(2);

/// How soon after a write the store is looked at again; twice as long each time, up to the pace. A
/// flush of a good disk takes less than a millisecond, and the pace alone would be the latency.
const PACE_FIRST: Duration = Duration::from_micros(250);

/// How long after a write of our own the kernel's word of it may come.
const OWN: Duration = Duration::from_millis(2);

/// How long to wait after the database could not be read.
const PAUSE: Duration = Duration::from_millis(100);

/// What grows when a producer commits, or an operator asks for something.
type Growth = ([i64; 4], Option<String>);

/// A watch on one database. Its thread starts with the first waiter.
pub(crate) struct Watch {
    file: Arc<StoreFile>,
    started: OnceLock<Option<Arc<Shared>>>,
}

struct Shared {
    turnstile: Turnstile<Signal>,
    /// How often growth was seen.
    seen: watch::Sender<u64>,
    own: Mutex<Own>,
}

impl Bell for Signal {
    fn ring(&self) {
        Signal::ring(self);
    }

    fn sleep_until_rung(&self) {
        Signal::sleep_until_rung(self);
    }
}

/// Writes by this store itself: a relay's renewals and settlements, which announce nothing.
#[derive(Default)]
struct Own {
    /// How many are under way.
    busy: usize,
    /// When the last one ended.
    ended: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(file: Arc<StoreFile>) -> Watch {
        Watch { file, started: OnceLock::new() }
    }

    /// Resolves when something may have been committed since the last call resolved; the first call
    /// resolves at once.
    pub(crate) async fn wait(&self) {
        let started = self.started.get_or_init(|| start(&self.file));
        let Some(shared) = started else {
            // Without a thread or a watch there is nothing to wait for: the relay polls as well.
            return std::future::pending().await;
        };
        let mut seen = shared.seen.subscribe();
        let entered = shared.turnstile.enter();
        if let Ok(now) = seen.wait_for(|seen| entered.is_news(*seen)).await {
            entered.tell(*now);
        }
    }
}

impl Watch {
    /// A write of our own begins; it ends when the answer is dropped.
    pub(crate) fn own_write(&self) -> Option<OwnWrite> {
        let shared = self.started.get()?.as_ref()?;
        shared.own().busy += 1;
        Some(OwnWrite(Arc::clone(shared)))
    }
}

/// A write of our own, for as long as it is under way.
pub(crate) struct OwnWrite(Arc<Shared>);

impl Drop for OwnWrite {
    fn drop(&mut self) {
        let mut own = self.0.own();
        own.busy -= 1;
        own.ended = Some(Instant::now());
    }
}

impl Shared {
    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what was written may be our own. Another's that came before it is visible by now,
    /// because there is one writer at a time: one look is enough. Another's that came just after it
    /// may be found by the next poll only.
    fn wrote_itself(&self) -> bool {
        let own = self.own();
        own.busy > 0 || own.ended.is_some_and(|ended| ended.elapsed() < OWN)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(Some(shared)) = self.started.get() {
            shared.turnstile.close();
        }
    }
}

fn start(file: &Arc<StoreFile>) -> Option<Arc<Shared>> {
    let shared = Arc::new(Shared {
        turnstile: Turnstile::new(Signal::new(&file.real_path()).ok()?),
        seen: watch::Sender::new(0),
        own: Mutex::default(),
    });
    let mut look = Look {
        file: Arc::clone(file),
        generation: file.generation(),
        connection: None,
        known: None,
    };
    let thread = Arc::clone(&shared);
    std::thread::Builder::new()
        .name("postrider-sqlite-wake".to_owned())
        .spawn(move || watch(&thread, &mut look))
        .ok()?;
    Some(shared)
}

fn watch(shared: &Shared, look: &mut Look) {
    let mut attentive_until = Instant::now();
    let mut pace = PACE;
    loop {
        match shared.turnstile.somebody() {
            Found::Waiting => {}
            // What was written meanwhile may become visible only now.
            Found::AfterSleep => attentive_until = Instant::now() + ATTENTIVE,
            Found::Closed => return,
        }
        let longest = match look.has_grown() {
            Ok(true) => {
                shared.seen.send_modify(|seen| *seen += 1);
                Some(PACE)
            }
            Ok(false) if Instant::now() < attentive_until => {
                let now = pace;
                pace = (pace * 2).min(PACE);
                Some(now)
            }
            Ok(false) => None,
            Err(Unreadable) => Some(PAUSE),
        };
        if shared.turnstile.bell.sleep(longest) == Stir::Written && !shared.wrote_itself() {
            attentive_until = Instant::now() + ATTENTIVE;
            pace = PACE_FIRST;
        }
    }
}

/// The database cannot be read now; nothing is known about it.
struct Unreadable;

/// The thread's own view of the database.
struct Look {
    file: Arc<StoreFile>,
    generation: u64,
    connection: Option<Connection>,
    known: Option<Growth>,
}

impl Look {
    fn has_grown(&mut self) -> Result<bool, Unreadable> {
        let found = self.read();
        if found.is_err() {
            self.connection = None;
        }
        let found = found?;
        let grown = self.known.as_ref() != Some(&found);
        self.known = Some(found);
        Ok(grown)
    }

    fn read(&mut self) -> Result<Growth, Unreadable> {
        let generation = self.file.check("wake").map_err(|_| Unreadable)?;
        if self.generation != generation {
            self.generation = generation;
            self.connection = None;
        }
        if self.connection.is_none() {
            let opened = connection::open_existing(self.file.path(), "wake");
            self.connection = Some(opened.map_err(|_| Unreadable)?);
        }
        let connection =
            self.connection.as_ref().expect("invariant: the connection was opened above");
        connection
            .prepare_cached(sql::OUTBOX_GROWTH)
            .and_then(|mut statement| {
                statement.query_row((), |row| {
                    let sequences = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
                    Ok((sequences, row.get(4)?))
                })
            })
            .map_err(|_| Unreadable)
    }
}
