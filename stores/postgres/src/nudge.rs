//! Telling relays in other processes of a commit, so that they need not poll for it.
//!
//! Invariants: nothing here is in the way of a transaction, which neither waits for a notification nor
//! carries one (transactions that notify commit one after the other); and nothing is promised: a nudge that
//! is lost costs one poll.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::Result;
use tokio::sync::watch;

use crate::Names;
use crate::connect::Address;
use crate::pooler::{Pooler, Way};
use crate::session::Session;
use crate::sql::Texts;
use crate::typed::params;
use crate::wake::{NOTIFY, Pause};

/// At most one notification in this time, however many commits there are: below what a poll costs, and
/// above what a relay needs to fetch.
const EVERY: Duration = Duration::from_millis(3);

/// How long the session is kept without a commit.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// How long a notification may take. Later the relay has polled.
const DEADLINE: Duration = Duration::from_secs(5);

/// Tells relays of commits, at most once in a few milliseconds, from a background session of its own.
///
/// Make one per process and say [`committed`](Nudger::committed) after each commit with events:
///
/// ```no_run
/// # use postrider_core::{NewEvent, Result};
/// # use postrider_postgres::{Nudger, Outbox};
/// # async fn place(client: &mut tokio_postgres::Client, nudger: &Nudger, event: &NewEvent)
/// #     -> std::result::Result<(), Box<dyn std::error::Error>> {
/// let tx = client.transaction().await?;
/// // … the change itself …
/// Outbox::new().enqueue(&tx, event).await?;
/// tx.commit().await?;
/// nudger.committed();
/// # Ok(()) }
/// ```
///
/// Dropped with its last clone, it sends what is still to be told, and ends.
#[derive(Clone, Debug)]
pub struct Nudger {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    address: Address,
    texts: Arc<Texts>,
    /// How often there was something to tell. Its receiver is the task that tells.
    commits: watch::Sender<u64>,
    starting: Mutex<()>,
}

impl Nudger {
    /// For tables with the default names. Nothing is connected before the first commit.
    ///
    /// # Errors
    /// `Config` if it is no address of a PostgreSQL database. The error does not repeat it.
    pub fn new(url: &str) -> Result<Nudger> {
        Nudger::named(url, Names::default())
    }

    /// For tables with names of their own.
    ///
    /// # Errors
    /// As [`Nudger::new`].
    pub fn named(url: &str, names: Names) -> Result<Nudger> {
        Ok(Nudger::of(Address::parse(url)?, names))
    }

    pub(crate) fn of(address: Address, names: Names) -> Nudger {
        let inner = Inner {
            address,
            texts: Arc::new(Texts::new(names)),
            commits: watch::Sender::new(0),
            starting: Mutex::default(),
        };
        Nudger { inner: Arc::new(inner) }
    }

    /// Says that a transaction with events has committed. Returns at once and never fails; outside of a
    /// Tokio runtime it does nothing.
    pub fn committed(&self) {
        let inner = &self.inner;
        inner.commits.send_modify(|commits| *commits += 1);
        if inner.commits.receiver_count() > 0 {
            return;
        }
        let _starting = inner.starting.lock().unwrap_or_else(PoisonError::into_inner);
        // A runtime that ended took its task along.
        if inner.commits.receiver_count() == 0
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let mut commits = inner.commits.subscribe();
            commits.mark_changed();
            runtime.spawn(tell(inner.address.clone(), Arc::clone(&inner.texts), commits));
        }
    }
}

/// Tells of commits until nobody can say that there was one.
async fn tell(address: Address, texts: Arc<Texts>, mut commits: watch::Receiver<u64>) {
    let (mut session, mut pause) = (None, Pause::default());
    // What is sent is a single statement, and nothing is prepared: any pooler will do.
    let way = Arc::new(Way::new(Pooler::Transaction, address.name()));
    loop {
        match tokio::time::timeout(KEPT_FOR, commits.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                session = None;
                continue;
            }
        }
        let rest = match notify(&address, &texts, &way, &mut session).await {
            Ok(()) => {
                pause = Pause::default();
                EVERY
            }
            Err(error) => {
                tracing::debug!(store = address.name(), %error, "cannot tell of a commit");
                session = None;
                pause.next()
            }
        };
        tokio::time::sleep(rest).await; // waits: what commits meanwhile is told of together
    }
}

async fn notify(
    address: &Address,
    texts: &Arc<Texts>,
    way: &Arc<Way>,
    session: &mut Option<Session>,
) -> Result<()> {
    let session = match session {
        Some(open) if !open.is_closed() => open,
        slot => {
            let (client, wire) = address.connect("notify").await?;
            // Ends by itself when the client is dropped or the connection is lost.
            tokio::spawn(async move { _ = wire.await });
            slot.insert(Session::new(
                client,
                Arc::clone(texts),
                Arc::clone(way),
                DEADLINE,
                &Arc::default(),
            ))
        }
    };
    session.execute("notify", &NOTIFY, params![""]).await.map(drop)
}
