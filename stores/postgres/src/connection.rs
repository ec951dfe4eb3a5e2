//! A handler's connections, and the statement that is prepared on them.
//!
//! Invariant: what is prepared is used only where sessions are known to be our own. Elsewhere a statement of that name may
//! be somebody else's.

use std::sync::PoisonError;
use std::time::Duration;

use postrider_core::Result;
use tokio_postgres::{Client, Statement};

use crate::accept::Marker;
use crate::pooler::Ownership;
use crate::session::{handed_over, is_of_another_session};
use crate::transactional::Work;

/// How long a session may take to end what was cancelled.
const END_MAX: Duration = Duration::from_secs(1);

/// A connection for one transaction at a time.
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// The statement of `Inbox::receive`, where sessions keep what is prepared on them. Parsed and planned anew it takes
    /// the server longer than the row.
    pub(crate) accept: Option<Statement>,
}

impl Work {
    /// A connection on which nothing is open: one that was kept, or a new one.
    pub(crate) async fn connect(&self) -> Result<Connection> {
        let idle = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|connection| {
                !connection.client.is_closed() && self.may_be_used(connection)
            });
            idle.pop()
        };
        if let Some(connection) = idle {
            return Ok(connection);
        }
        let client = self.sessions.examined("receive").await?;
        let accept = self.prepare(&client).await?;
        Ok(Connection { client, accept })
    }

    /// The statement for the marker, where the session keeps it.
    async fn prepare(&self, client: &Client) -> Result<Option<Statement>> {
        let way = self.sessions.way();
        if way.ownership() != Ownership::Own {
            return Ok(None);
        }
        let prepared = client.prepare_typed(self.inbox.receive(), &Marker::TYPES);
        match tokio::time::timeout(self.deadline, prepared).await {
            Ok(Ok(prepared)) => Ok(Some(prepared)),
            Ok(Err(error)) if is_of_another_session(&error) => {
                Err(handed_over(way, "receive", error))
            }
            // Where it cannot be prepared it cannot be run either, and that says why.
            _ => Ok(None),
        }
    }

    /// Whether what is prepared on a connection is still its own, as far as is known.
    fn may_be_used(&self, connection: &Connection) -> bool {
        connection.accept.is_none() || self.sessions.way().ownership() == Ownership::Own
    }

    /// Gives a session up, and what it is at: nobody is to wait for that. Returns when its transaction has ended, if the
    /// server says so soon.
    pub(crate) async fn give_up(&self, connection: Connection) {
        let client = &connection.client;
        self.sessions.address().cancel(client).await;
        // Answered after the statement and the way back.
        _ = tokio::time::timeout(END_MAX, client.check_connection()).await;
    }

    /// Keeps a session on which nothing is open for the next.
    pub(crate) fn keep(&self, connection: Connection) {
        if self.may_be_used(&connection) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}
