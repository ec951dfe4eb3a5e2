//! Which copy of the database publishes.
//!
//! A copy of a production database must not send its events to partners. So the store remembers where it
//! was made or adopted: the identifier that `initdb` gave the cluster, and the database's number in it
//! (`outbox_meta`, keys `cluster` and `database`). Both survive a restart, a failover to a standby, and a
//! new address; a restored dump, `create database … template`, and an upgrade to another major version
//! have others.
//!
//! What it cannot see: a copy of the cluster's files, as a base backup makes it, which is what a standby
//! is too. Where the user may not ask for the cluster's identifier, the database's number alone counts.

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

/// Checks that this database is the one that publishes: for a relay, before it asks for a partition.
///
/// # Errors
/// `Conflict` if this is a copy that nobody adopted.
pub(crate) async fn check(session: &Session) -> Result<()> {
    if read(session).await?.is_same() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Conflict, "open store")
        .code(Code::StoreMoved)
        .message("this database is not the one that published last: a copy, or a restored dump"))
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
