//! Waiting until a standby has what is to be published.
//!
//! After an asynchronous failover the new primary lacks what it had not received: events that were published
//! would be of transactions that never happened there. With [`PublishAfter::Standby`] nothing is published
//! that this standby does not have on its disk (INV-2).

use std::str::FromStr;
use std::time::Duration;

use postrider_core::snapshot::Incarnation;
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::Instant;
use uuid::Uuid;

use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::tick::life;
use crate::typed::params;

const FLUSHED: Sql = sql!("standby/flushed");

/// How long a fetch waits for the standby: below the relay's patience with its store.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often the primary is asked how far the standby is, at first and at last.
const ASK_FIRST: Duration = Duration::from_millis(1);
const ASK_LAST: Duration = Duration::from_millis(50);

/// What must have an event on its disk before it is published.
///
/// ```
/// use postrider_postgres::{Options, PostgresStore, PublishAfter};
///
/// let mut options = Options::default();
/// options.publish_after = "standby:berlin".parse()?;
/// assert_eq!(options.publish_after, PublishAfter::Standby("berlin".into()));
/// let store = PostgresStore::with("postgres://relay@127.0.0.1/shop", options)?;
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PublishAfter {
    /// The server itself. The default. After a failover to a standby that lacked something, events of
    /// transactions that are lost may have been published.
    #[default]
    Local,
    /// The standby with this `application_name` as well. While it is not there, nothing is published. The name is
    /// meant to be one standby's: of several that are connected all must have it, and one that is away is not known.
    Standby(Box<str>),
}

impl FromStr for PublishAfter {
    type Err = Error;

    /// Reads `local` or `standby:NAME`.
    fn from_str(text: &str) -> Result<PublishAfter> {
        match text.split_once(':') {
            None if text == "local" => Ok(PublishAfter::Local),
            Some(("standby", name)) if !name.is_empty() => Ok(PublishAfter::Standby(name.into())),
            _ => Err(Error::new(ErrorKind::Config, "read publish_after")
                .message("publish_after is `local` or `standby:NAME`")
                .context("publish_after", text.escape_debug())),
        }
    }
}

impl std::fmt::Display for PublishAfter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PublishAfter::Local => f.write_str("local"),
            PublishAfter::Standby(name) => write!(f, "standby:{name}"),
        }
    }
}

impl PostgresStore {
    /// What must have an event on its disk.
    pub(crate) fn publish_after(&self) -> &PublishAfter {
        &self.inner.options.publish_after
    }

    /// Waits until the standby has the log up to a position that this server has flushed, if one is asked
    /// for. The position is one of the server's life that is named.
    ///
    /// # Errors
    /// `Unavailable` if the standby stays behind; `Conflict` if another server answers, or the same in
    /// another life: its positions say nothing of what was read.
    pub(crate) async fn await_standby(
        &self,
        position: &str,
        read_in: Option<Incarnation>,
    ) -> Result<()> {
        let PublishAfter::Standby(name) = self.publish_after() else {
            return Ok(());
        };
        let until = Instant::now() + PATIENCE;
        let mut ask = ASK_FIRST;
        loop {
            let session = self.sessions().line(Line::Flush, "await standby").await?;
            let name: &str = name;
            let found =
                session.optional("await standby", &FLUSHED, params![name, position]).await?;
            let behind = match &found {
                Some(row) if row.get::<_, Option<bool>>(0) == Some(true) => {
                    let seen = row.get::<_, Option<Uuid>>(2).map(life);
                    return self.same_life(&session, read_in, seen).await;
                }
                Some(row) if row.get(1) => {
                    "this user may not see how far the standby is; grant pg_monitor"
                }
                Some(_) => "the standby is behind",
                None => "the standby is not connected",
            };
            if Instant::now() >= until {
                return Err(Error::new(ErrorKind::Unavailable, "await standby")
                    .message(format!("{behind}; nothing that it lacks is published"))
                    .context("standby", name));
            }
            tokio::time::sleep(ask).await; // waits: the server does not tell when a standby has flushed
            ask = (ask * 2).min(ASK_LAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["local", "standby:b", "standby:a:b"] {
            assert_eq!(text.parse::<PublishAfter>().unwrap().to_string(), text);
        }
        for text in ["", "standby", "standby:", "remote:x"] {
            assert_eq!(text.parse::<PublishAfter>().unwrap_err().kind(), ErrorKind::Config);
        }
    }
}
