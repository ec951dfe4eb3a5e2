//! The sessions of a store: a few shared ones for single statements, and a few that are lent for
//! transactions.
//!
//! Invariant: bounded. A store has at most [`LINES`] shared sessions and as many lent ones as its
//! options say, however many partitions it owns.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::connect::Address;
use crate::identity::Home;
use crate::pooler::{Pooler, Way};
use crate::session::Session;
use crate::silence::Silence;
use crate::sql::{Sql, Texts, sql};

const SETUP: Sql = sql!("session/setup");
const SETUP_PAGE: Sql = sql!("session/setup_page");
const BEGIN: Sql = sql!("session/begin");
const BEGIN_SHARED: Sql = sql!("session/begin_shared");
const BEGIN_READING: Sql = sql!("session/begin_reading");
const COMMIT: Sql = sql!("session/commit");

/// What a shared session is for. Each has one of its own, so that a long reading delays neither a save
/// nor the renewal of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Pages of the outbox, and ticks. It plans as they want it, which is for nothing else.
    Page,
    /// Loads, what is due, and whatever else is read.
    Read,
    /// Settlements, and what else is written under a lease.
    Write,
    /// Leases: never behind anything that takes long.
    Lease,
    /// The inbox.
    Inbox,
    /// Flushes, which wait for the disk.
    Flush,
}

/// How many lines there are.
pub(crate) const LINES: usize = 6;

/// The sessions of a store.
pub(crate) struct Sessions {
    address: Address,
    texts: Arc<Texts>,
    deadline: Duration,
    way: Arc<Way>,
    lines: [tokio::sync::Mutex<Option<Arc<Session>>>; LINES],
    lent: Arc<Semaphore>,
    idle: Mutex<Vec<Session>>,
    home: Home,
    silence: Arc<Silence>,
}

impl Sessions {
    pub(crate) fn new(
        address: Address,
        texts: Arc<Texts>,
        pooler: Pooler,
        deadline: Duration,
        lent_max: usize,
    ) -> Sessions {
        let way = Arc::new(Way::new(pooler, address.name()));
        Sessions {
            address,
            texts,
            deadline,
            way,
            lines: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            lent: Arc::new(Semaphore::new(lent_max.max(1))),
            idle: Mutex::default(),
            home: Home::default(),
            silence: Arc::default(),
        }
    }

    /// Where a relay of this handle was given its first lease.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn texts(&self) -> &Arc<Texts> {
        &self.texts
    }

    /// What is known of the way to the server.
    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    /// The shared session for a purpose, connected if it is not.
    ///
    /// # Errors
    /// `Conflict` if it is a relay's, and leads to another database than its leases are of. A session of our own stays
    /// where it is; a pooler's may be of another database with each transaction.
    pub(crate) async fn line(&self, line: Line, operation: &'static str) -> Result<Arc<Session>> {
        let mut slot = self.lines[line as usize].lock().await;
        if let Some(session) = slot.as_ref().filter(|session| !session.is_closed()) {
            let session = Arc::clone(session);
            drop(slot);
            if line != Line::Inbox && !session.prepares() {
                self.home.check(&session, operation).await?;
            }
            return Ok(session);
        }
        let session = Arc::new(self.connect(operation).await?);
        if line != Line::Inbox {
            self.home.check(&session, operation).await?;
        }
        if line == Line::Page && session.prepares() {
            session.batch(operation, &self.texts.text(&SETUP_PAGE)).await?;
        }
        *slot = Some(Arc::clone(&session));
        Ok(session)
    }

    /// A transaction on a session of its own. Rolled back unless it is committed.
    pub(crate) async fn begin(&self, operation: &'static str) -> Result<Tx<'_>> {
        self.begin_as(operation, &BEGIN).await
    }

    /// The same for reading alone: all of its statements see one snapshot.
    pub(crate) async fn begin_reading(&self, operation: &'static str) -> Result<Tx<'_>> {
        self.begin_as(operation, &BEGIN_READING).await
    }

    async fn begin_as(&self, operation: &'static str, begin: &Sql) -> Result<Tx<'_>> {
        let permit = Arc::clone(&self.lent)
            .acquire_owned()
            .await
            .map_err(|e| Error::new(ErrorKind::Closed, operation).source(e))?;
        let idle = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|session| !session.is_closed());
            idle.pop()
        };
        let session = match idle {
            Some(session) => session,
            None => self.connect(operation).await?,
        };
        let begin = match session.prepares() {
            true => begin,
            false if *begin == BEGIN => &BEGIN_SHARED,
            false => begin,
        };
        session.batch(operation, &self.texts.text(begin)).await?;
        Ok(Tx { sessions: self, session: Some(session), _permit: permit })
    }

    /// A session of one's own, outside any transaction: for what cannot run in one.
    pub(crate) async fn connect(&self, operation: &'static str) -> Result<Session> {
        let (client, stood_still) = self.looked_at(operation).await?;
        let session = self.wrap(client).told(stood_still);
        if session.prepares() {
            session.batch(operation, &self.texts.text(&SETUP)).await?;
        }
        Ok(session)
    }

    /// A client as it was connected, once it is known whose the sessions are.
    pub(crate) async fn examined(&self, operation: &'static str) -> Result<Client> {
        Ok(self.looked_at(operation).await?.0)
    }

    async fn looked_at(&self, operation: &'static str) -> Result<(Client, Arc<AtomicBool>)> {
        let (client, stood_still) = self.client(operation).await?;
        if let Some(examination) = self.way.wants_examination().await
            // Where there is no second session, what is not known is not relied on.
            && let Ok((other, _)) = self.client(operation).await
        {
            examination.examine(&self.texts, (&client, &other)).await?;
        }
        Ok((client, stood_still))
    }

    /// A client, and whether its server ended it because a transaction stood still.
    async fn client(&self, operation: &'static str) -> Result<(Client, Arc<AtomicBool>)> {
        let (client, mut wire) = self.address.connect(operation).await?;
        let stood_still = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stood_still);
        // Ends by itself when the client is dropped or the connection is lost. Nobody has asked anything when the server
        // says that a transaction stood still, so it is noted here, before the client hears that it is closed.
        tokio::spawn(async move {
            let ended = (&mut wire).await;
            let still = |error: tokio_postgres::Error| {
                error.code() == Some(&SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT)
            };
            told.store(ended.is_err_and(still), Ordering::Relaxed);
            drop(wire);
        });
        Ok((client, stood_still))
    }

    /// A client as a session.
    pub(crate) fn wrap(&self, client: Client) -> Session {
        let (texts, way) = (Arc::clone(&self.texts), Arc::clone(&self.way));
        Session::new(client, texts, way, self.deadline, &self.silence)
    }

    fn give_back(&self, session: Session) {
        if !session.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
        }
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A transaction. Dropped without a commit, its connection is closed, and the server rolls it back.
#[derive(Debug)]
pub(crate) struct Tx<'a> {
    sessions: &'a Sessions,
    session: Option<Session>,
    _permit: OwnedSemaphorePermit,
}

impl Tx<'_> {
    /// Makes everything real, or nothing.
    pub(crate) async fn commit(mut self, operation: &'static str) -> Result<()> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        session.batch(operation, &self.sessions.texts.text(&COMMIT)).await?;
        self.sessions.give_back(session);
        Ok(())
    }

    /// Ends a reading, whatever it found. One that cannot be ended is closed.
    pub(crate) async fn end(self, operation: &'static str) {
        if !self.is_closed() {
            _ = self.commit(operation).await;
        }
    }
}

impl Deref for Tx<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("a transaction has its session until it is committed")
    }
}
