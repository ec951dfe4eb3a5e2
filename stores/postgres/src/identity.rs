//! Which copy of the database publishes.
//!
//! A copy of a production database must not send its events to partners. So the store remembers where it
//! was made or adopted: the identifier that `initdb` gave the cluster, and the database's number in it
//! (`outbox_meta`, keys `cluster` and `database`). Both survive a restart, a failover to a standby, and a
//! new address; a restored dump, `create database … template`, and an upgrade to another major version
//! have others.
//!
//! A relay that runs on is told as well when another database has taken the place of its own: what it has in
//! memory, and what it has under way, belongs to the one that gave it its leases ([`Home`]).
//!
//! What it cannot see: a copy of the cluster's files, as a base backup makes it, which is what a standby
//! is too. Where the user may not ask for the cluster's identifier, the database's number alone counts.

use std::sync::{Mutex, PoisonError};

use postrider_core::{Code, Error, ErrorKind, Result};

use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::params;

const READ: Sql = sql!("identity/read");
const REMEMBER: Sql = sql!("identity/remember");

/// Where a store is, and where it was last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// As the tables have it.
    pub(crate) known: (String, String),
    /// As the server says it.
    pub(crate) found: (String, String),
}

impl Place {
    /// Whether the store is where it was. A cluster that nobody may ask for is taken to be the same.
    pub(crate) fn is_same(&self) -> bool {
        let (known, found) = (&self.known, &self.found);
        let cluster = known.0.is_empty() || found.0.is_empty() || known.0 == found.0;
        cluster && known.1 == found.1
    }
}

/// Where the store is, and where it was last.
pub(crate) async fn read(session: &Session) -> Result<Place> {
    let row = session.row("open store", &READ, params![]).await?;
    let text = |column: usize| row.get::<_, Option<String>>(column).unwrap_or_default();
    Ok(Place { known: (text(0), text(1)), found: (text(2), text(3)) })
}

/// Where a relay was given its first lease. Invariant: no event of a relay's is read elsewhere, and nothing that it settles is
/// saved there; what keeps the tables in order is not looked at. Behind a transaction pooler the look and what it is for
/// are two transactions: only a change of the place between these two is not seen. A copy has the same leases and the same token of its server's life, and the same cursors where they have not moved since, so nothing
/// else would tell it apart at once.
#[derive(Debug, Default)]
pub(crate) struct Home(Mutex<Option<(String, String)>>);

impl Home {
    /// Checks that this database is the one that publishes: for a relay, before it asks for a partition.
    ///
    /// # Errors
    /// `Conflict` if this is a copy that nobody adopted, or one that was adopted while the relay had leases elsewhere.
    pub(crate) async fn enter(&self, session: &Session) -> Result<()> {
        let place = read(session).await?;
        if !place.is_same() {
            return Err(moved("open store", NOT_ADOPTED));
        }
        let known = self.known().get_or_insert_with(|| place.found.clone()).clone();
        same_as(known, place, "open store")
    }

    /// Checks that a session leads to where the leases are of, if there are any.
    ///
    /// # Errors
    /// As [`Home::enter`].
    pub(crate) async fn check(&self, session: &Session, operation: &'static str) -> Result<()> {
        let Some(known) = self.known().clone() else { return Ok(()) };
        let place = read(session).await?;
        if !place.is_same() {
            return Err(moved(operation, NOT_ADOPTED));
        }
        same_as(known, place, operation)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const NOT_ADOPTED: &str =
    "this database is not the one that published last: a copy, or a restored dump";
const ADOPTED: &str = "this database took the place of the one that this relay began with, and was adopted: start the \
                       relay anew";

fn same_as(known: (String, String), place: Place, operation: &'static str) -> Result<()> {
    let place = Place { known, ..place };
    if place.is_same() { Ok(()) } else { Err(moved(operation, ADOPTED)) }
}

fn moved(operation: &'static str, message: &'static str) -> Error {
    Error::new(ErrorKind::Conflict, operation).code(Code::StoreMoved).message(message)
}

/// Makes this database the one that publishes, in the caller's transaction.
pub(crate) async fn remember(session: &Session) -> Result<()> {
    session.execute("adopt", &REMEMBER, params![]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_nobody_may_ask_for_is_no_other() {
        let place = |known: (&str, &str), found: (&str, &str)| Place {
            known: (known.0.into(), known.1.into()),
            found: (found.0.into(), found.1.into()),
        };
        assert!(place(("7", "16384"), ("7", "16384")).is_same());
        assert!(place(("7", "16384"), ("", "16384")).is_same());
        assert!(!place(("7", "16384"), ("8", "16384")).is_same());
        assert!(!place(("7", "16384"), ("7", "16385")).is_same());
        assert!(!place(("", "16384"), ("7", "16385")).is_same());
    }
}
