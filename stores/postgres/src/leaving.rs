//! What handlers leave behind that nobody's call is there for any more, and who sees it off.
//!
//! Invariant: bounded. A session counts among the handler's own until it is known to be at nothing any more, as far as its
//! server says that soon; and whoever stops can wait for that.

use std::sync::Arc;

use postrider_core::{Error, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio_postgres::{Client, Statement};

use crate::connection::Connection;
use crate::transactional::Work;

/// Leave to have a session and a transaction, as long as any of these is there.
pub(crate) type Permit = Arc<OwnedSemaphorePermit>;

impl Work {
    /// Leave to have a session and a transaction.
    pub(crate) async fn permit(&self) -> Result<Permit> {
        let permit = Arc::clone(&self.in_work).acquire_owned().await;
        permit.map(Arc::new).map_err(|e| Error::new(ErrorKind::Closed, "receive").source(e))
    }

    /// Returns when nothing is left of what nobody waits for: no claim, and no statement.
    pub(crate) async fn at_rest(&self) {
        // It cannot end before this does.
        let _ = self.leaving.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// Something that is seen off by nobody's call, until this is dropped.
pub(crate) struct Leaving(pub(crate) Arc<Work>);

impl Leaving {
    pub(crate) fn new(work: &Arc<Work>) -> Leaving {
        work.leaving.send_modify(|count| *count += 1);
        Leaving(Arc::clone(work))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leaving.send_modify(|count| *count -= 1);
    }
}

/// A session that is at a handler's transaction. Dropped before the end of that, as where the engine drops the handler, it
/// is given up. Left alone, the server would be at the handler's statement for as long as that takes: with the event's marker
/// locked, and beside the session that takes its place.
pub(crate) struct AtWork {
    work: Arc<Work>,
    permit: Permit,
    connection: Option<Connection>,
    /// What it is at may be cancelled. Not so a commit: what waits for a standby would become visible without having reached it.
    may_be_cancelled: bool,
}

impl AtWork {
    pub(crate) fn new(work: &Arc<Work>, permit: &Permit, connection: Connection) -> AtWork {
        let (work, permit) = (Arc::clone(work), Arc::clone(permit));
        AtWork { work, permit, connection: Some(connection), may_be_cancelled: true }
    }

    /// Its client, the statement that is prepared on it, and whether it may be cancelled.
    pub(crate) fn parts(&mut self) -> (&mut Client, Option<&Statement>, &mut bool) {
        let connection = self.connection.as_mut();
        let Connection { client, accept } = connection.expect("it has one until it has ended");
        (client, accept.as_ref(), &mut self.may_be_cancelled)
    }

    /// Nothing is open on its session.
    pub(crate) fn ended(mut self) {
        if let Some(connection) = self.connection.take() {
            self.work.keep(connection);
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if !self.may_be_cancelled || connection.client.is_closed() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (leaving, permit) = (Leaving::new(&self.work), Arc::clone(&self.permit));
        runtime.spawn(async move {
            leaving.0.give_up(connection).await;
            drop(permit);
        });
    }
}
