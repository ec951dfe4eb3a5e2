//! Whether the store's sessions are its own, or a pooler's that hands each transaction to another one.
//!
//! Behind such a pooler (PgBouncer in transaction mode) every transaction is still a transaction, so
//! nothing that the store promises depends on the answer. What is lost is comfort: prepared statements,
//! settings of a session, and LISTEN. Invariant: where the answer is not known, nothing relies on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use postrider_core::operate::Finding;
use postrider_core::operate::findings::{coded, good};
use postrider_core::{Code, Error, ErrorKind, Result};
use tokio::time::Instant;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::error::{During, of_postgres};
use crate::pooler_news::{forget, is_news};
use crate::sql::{Sql, Texts, sql};

const BEGIN: Sql = sql!("session/begin");
const MARK: Sql = sql!("pooler/mark");
const SEEN: Sql = sql!("pooler/seen");
const ROLLBACK: Sql = sql!("pooler/rollback");

/// How long an examination holds: as long as it takes to open all sessions. Whoever puts a pooler in between
/// breaks the sessions that there are, and what they prepared may be somebody else's under the same name.
const HOLDS_FOR: Duration = Duration::from_secs(5);

/// How long an examination may take. A pool of a single session, which it holds itself, answers never.
const TAKES_AT_MOST: Duration = Duration::from_secs(3);

/// What stands between the store and the server.
///
/// ```
/// use postrider_postgres::{Options, Pooler, PostgresStore};
///
/// let mut options = Options::default();
/// options.pooler = "transaction".parse()?;
/// assert_eq!(options.pooler, Pooler::Transaction);
/// let store = PostgresStore::with("postgres://relay@127.0.0.1:6432/shop", options)?;
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pooler {
    /// The store finds out with its first two sessions, and again when it connects anew. The default.
    #[default]
    Auto,
    /// Nothing, or a pooler in session mode: statements are prepared, and commits are listened for. It must
    /// be true: elsewhere a statement may be somebody else's of the same name.
    None,
    /// A pooler that hands each transaction to another session: nothing is prepared or set, and the relay
    /// polls.
    Transaction,
}

impl Pooler {
    /// The name as it is written in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Pooler::Auto => "auto",
            Pooler::None => "none",
            Pooler::Transaction => "transaction",
        }
    }
}

impl std::str::FromStr for Pooler {
    type Err = Error;

    fn from_str(text: &str) -> Result<Pooler> {
        let all = [Pooler::Auto, Pooler::None, Pooler::Transaction];
        all.into_iter().find(|pooler| pooler.as_str() == text).ok_or_else(|| {
            Error::new(ErrorKind::Config, "read pooler")
                .message("a pooler is `auto`, `none`, or `transaction`")
                .context("pooler", text.escape_debug())
        })
    }
}

/// Whose the sessions are, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ownership {
    Unknown,
    Own,
    Shared,
}

/// Whether a notification comes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Hearing {
    Unknown,
    Heard,
    Deaf,
}

/// What was found out about the way to the server.
#[derive(Debug)]
pub(crate) struct Way {
    pooler: Pooler,
    /// What the store is called.
    store: Arc<str>,
    ownership: AtomicU8,
    hearing: AtomicU8,
    /// Whether a statement was lost in a session of somebody else's: no examination can unsay that.
    lost: AtomicBool,
    examined: tokio::sync::Mutex<Option<Instant>>,
}

impl Way {
    pub(crate) fn new(pooler: Pooler, store: &str) -> Way {
        let ownership = match pooler {
            Pooler::Auto => Ownership::Unknown,
            Pooler::None => Ownership::Own,
            Pooler::Transaction => Ownership::Shared,
        };
        Way {
            pooler,
            store: store.into(),
            ownership: AtomicU8::new(ownership as u8),
            hearing: AtomicU8::new(Hearing::Unknown as u8),
            lost: AtomicBool::new(false),
            examined: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn ownership(&self) -> Ownership {
        if self.lost.load(Ordering::Relaxed) {
            return Ownership::Shared;
        }
        let known = [Ownership::Unknown, Ownership::Own, Ownership::Shared];
        known[usize::from(self.ownership.load(Ordering::Relaxed))]
    }

    pub(crate) fn hearing(&self) -> Hearing {
        let known = [Hearing::Unknown, Hearing::Heard, Hearing::Deaf];
        known[usize::from(self.hearing.load(Ordering::Relaxed))]
    }

    /// Notes what a notification sent to ourselves has shown.
    pub(crate) fn hears(&self, hearing: Hearing) {
        let before = self.hearing();
        self.hearing.store(hearing as u8, Ordering::Relaxed);
        if before == hearing {
            return;
        }
        match hearing {
            Hearing::Deaf if is_news(&self.store) => tracing::warn!(
                store = &*self.store,
                code = %Code::SessionsShared,
                "notifications do not come through; commits are found by polling"
            ),
            Hearing::Deaf => {}
            _ => tracing::debug!(store = &*self.store, "notifications come through"),
        }
    }

    /// Notes what an examination found.
    pub(crate) fn owns(&self, ownership: Ownership) {
        if self.pooler != Pooler::Auto {
            return;
        }
        let before = self.ownership();
        self.ownership.store(ownership as u8, Ordering::Relaxed);
        if before == ownership {
            return;
        }
        if ownership == Ownership::Own {
            forget(&self.store);
        } else if ownership == Ownership::Shared && is_news(&self.store) {
            tracing::warn!(
                store = &*self.store,
                code = %Code::SessionsShared,
                "a pooler hands each transaction to another session: statements are sent unprepared, \
                 and commits are found by polling"
            );
        }
    }

    /// Notes that a prepared statement was gone: whatever the next examination finds, sessions are handed over.
    pub(crate) fn lost(&self) {
        self.owns(Ownership::Shared);
        self.lost.store(self.pooler == Pooler::Auto, Ordering::Relaxed);
    }

    /// Whether the way is to be examined now; then the guard is held until that is done.
    pub(crate) async fn wants_examination(&self) -> Option<Examination<'_>> {
        if self.pooler != Pooler::Auto {
            return None;
        }
        let examined = self.examined.lock().await;
        match *examined {
            Some(at) if at.elapsed() < HOLDS_FOR => None,
            _ => Some(Examination { way: self, examined }),
        }
    }

    /// What the doctor says of it.
    pub(crate) fn finding(&self) -> Finding {
        let warning =
            |message: &str, advice: &str| coded("pooler", message, advice, Code::SessionsShared);
        match (self.pooler, self.ownership(), self.hearing()) {
            (Pooler::Transaction, ..) => good(
                "pooler",
                "a pooler in transaction mode is said to lie between: statements are not prepared, and \
                 the relay polls",
            ),
            (_, Ownership::Shared, _) => warning(
                "a pooler in transaction mode lies between: statements are not prepared, limits of a \
                 session are not set, commits are not heard of, and the relay polls",
                "give the relay a direct connection or a pool in session mode, or set `pooler = \
                 \"transaction\"` to say that it is meant",
            ),
            (_, _, Hearing::Deaf) => warning(
                "a notification that was sent was not heard: the relay polls",
                "look for a pooler or proxy between the relay and the server",
            ),
            (_, Ownership::Unknown, _) => warning(
                "there was no second session to see whether a pooler lies between",
                "look at max_connections and at the limits of the role and the database",
            ),
            _ => good("pooler", "the session is the server's own"),
        }
    }
}

/// The right to examine the way.
pub(crate) struct Examination<'a> {
    way: &'a Way,
    examined: tokio::sync::MutexGuard<'a, Option<Instant>>,
}

impl Examination<'_> {
    /// Examines the way with two sessions that were just opened.
    ///
    /// # Errors
    /// `Config` if the pooler hands each *statement* to another session: then there are no transactions.
    pub(crate) async fn examine(
        mut self,
        texts: &Texts,
        (one, other): (&Client, &Client),
    ) -> Result<()> {
        let found = tokio::time::timeout(TAKES_AT_MOST, compare(texts, one, other)).await;
        // A session that has to wait for the other one's end shares it.
        let ownership = found.unwrap_or(Ok(Ownership::Shared))?;
        self.way.owns(ownership);
        *self.examined = Some(Instant::now());
        Ok(())
    }
}

/// So often it is looked: whose session the pooler hands out next depends on how it queues them, and on who else
/// asks.
const ROUNDS: usize = 4;

/// What a statement found: what was left in its session, the process that serves it, and how many transactions that has
/// begun.
type Seen = (String, i32, Option<i64>);

/// A session as it was left, and what was strange about it since.
struct Left {
    seen: Seen,
    surplus: u32,
}

impl Left {
    /// Whether what is found next shows that somebody else was given the session. That more transactions were begun in it has to be
    /// found twice: a server that catches up with others' changes of tables begins one by itself, in a session with
    /// nothing to do.
    fn is_shared(&mut self, found: Seen) -> bool {
        let begun = self.seen.2.map(|begun| begun + 1);
        let is_same = (&found.0, found.1) == (&self.seen.0, self.seen.1);
        let is_counted = found.2.is_some() == begun.is_some();
        self.surplus += u32::from(found.2 != begun);
        self.seen = found;
        !is_same || !is_counted || self.surplus > 1
    }
}

/// While the other has a transaction open, nobody else is given its session: so the one finds its own, or
/// one that does not know what it left. Or it finds its own, and somebody else was given it meanwhile: then more
/// transactions were begun in it.
async fn compare(texts: &Texts, one: &Client, other: &Client) -> Result<Ownership> {
    let mark = Uuid::now_v7().simple().to_string();
    let seen_first = seen(one, &texts.text(&MARK), &[(&mark, Type::TEXT)]).await?;
    let mut left = Left { seen: seen_first, surplus: 0 };
    let mut looks = 0;
    // After one surplus it is looked as often again.
    while looks < 2 * ROUNDS * (1 + left.surplus as usize) {
        // In every other look, so that the session of the one is the last that was given back when the other begins: most
        // poolers hand that one out first, and would give each its own again and again.
        let begins = looks % 2 == 0;
        looks += 1;
        if begins {
            begin(texts, other).await?;
        }
        if left.is_shared(seen(one, &texts.text(&SEEN), &[]).await?) {
            return Ok(Ownership::Shared);
        }
        if begins {
            other.batch_execute(&texts.text(&ROLLBACK)).await.during("examine session")?;
        }
    }
    Ok(Ownership::Own)
}

async fn seen(client: &Client, text: &str, values: &[(&(dyn ToSql + Sync), Type)]) -> Result<Seen> {
    let rows = client.query_typed(text, values).await.during("examine session")?;
    let seen = rows.first().map(|row| (row.get(0), row.get(1), row.get(2)));
    Ok(seen.unwrap_or_default())
}

async fn begin(texts: &Texts, other: &Client) -> Result<()> {
    let Err(error) = other.batch_execute(&texts.text(&BEGIN)).await else { return Ok(()) };
    match error.as_db_error() {
        Some(told) if told.message().contains("statement pooling") => {
            Err(Error::new(ErrorKind::Config, "examine session")
                .message(
                    "the pooler hands each statement to another session, so there are no \
                     transactions; set it to transaction or session mode",
                )
                .source(error))
        }
        _ => Err(of_postgres("examine session", error)),
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::operate::Level;

    use super::*;

    #[test]
    fn what_is_lost_is_said() {
        let way = Way::new(Pooler::Auto, "here");
        assert_eq!(way.finding().level, Level::Warning, "nothing is known");
        way.owns(Ownership::Own);
        assert_eq!(way.finding().level, Level::Good);
        way.hears(Hearing::Deaf);
        assert!(way.finding().message.contains("not heard"));
        way.owns(Ownership::Shared);
        let found = way.finding();
        assert_eq!((found.level, found.code), (Level::Warning, Some(Code::SessionsShared)));
        way.owns(Ownership::Own);
        assert_eq!(
            way.ownership(),
            Ownership::Own,
            "an examination is believed until the next one"
        );
        way.lost();
        way.owns(Ownership::Own);
        assert_eq!(way.ownership(), Ownership::Shared, "a statement that was lost is not unsaid");
        assert_eq!(Way::new(Pooler::Transaction, "here").finding().level, Level::Good);
        let fixed = Way::new(Pooler::None, "here");
        fixed.owns(Ownership::Shared);
        fixed.lost();
        assert_eq!(fixed.ownership(), Ownership::Own, "what is said is believed");
    }

    /// A server begins a transaction of its own in an idle session now and then; somebody else does so again and again.
    #[test]
    fn one_transaction_too_many_is_not_somebody_elses() {
        let of = |mark: &str, process, begun| (mark.to_owned(), process, begun);
        let is_shared = |found: &[Seen]| {
            let mut left = Left { seen: of("ours", 7, Some(10)), surplus: 0 };
            found.iter().any(|found| left.is_shared(found.clone()))
        };
        let ours = |begun| of("ours", 7, Some(begun));
        assert!(!is_shared(&[ours(11), ours(12), ours(13)]));
        assert!(!is_shared(&[ours(11), ours(13), ours(14)]), "once");
        assert!(is_shared(&[ours(11), ours(13), ours(14), ours(17)]), "twice");
        for other in [of("", 7, Some(11)), of("ours", 8, Some(11)), of("ours", 7, None)] {
            assert!(is_shared(&[other]));
        }
        let mut uncounted = Left { seen: of("ours", 7, None), surplus: 0 };
        assert!(!uncounted.is_shared(of("ours", 7, None)));
    }

    #[test]
    fn a_pooler_is_named() {
        for pooler in [Pooler::Auto, Pooler::None, Pooler::Transaction] {
            assert_eq!(pooler.as_str().parse::<Pooler>().unwrap(), pooler);
        }
        assert!("session".parse::<Pooler>().is_err());
    }
}
