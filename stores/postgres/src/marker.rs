//! An event as a marker of the inbox, for any driver: which values, under which statement, and what the answer
//! means.
//!
//! Invariant: the deduplication key comes from the event and the handler alone; there is no way to pass another.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use postrider_core::inbox::Accepted;
use postrider_core::{Code, Error, ErrorKind, Event, HandlerName, InboxKey, Result};

use crate::Names;
use crate::sql::{Sql, sql};
use crate::staged::{Staged, Value};

const ACCEPT: Sql = sql!("inbox/accept");
#[cfg(feature = "tokio-postgres")]
const ACCEPT_TYPED: Sql = sql!("inbox/accept_typed");
#[cfg(feature = "store")]
const RECEIVE: Sql = sql!("inbox/receive");
#[cfg(feature = "store")]
const ACCEPT_MANY: Sql = sql!("inbox/accept_many");

/// The inbox of a database, for handlers that act in a transaction of their own.
///
/// Cheap to clone; holds no connection. Its `accept` takes a transaction of `tokio-postgres`; the sibling crates
/// for other drivers have an `Inbox` of their own, which is made of this one.
#[derive(Clone, Debug)]
pub struct Inbox {
    accept: Arc<str>,
    #[cfg(feature = "tokio-postgres")]
    accept_typed: Arc<str>,
    #[cfg(feature = "store")]
    receive: Arc<str>,
    #[cfg(feature = "store")]
    accept_many: Arc<str>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::named(&Names::default())
    }
}

impl Inbox {
    /// An inbox with the default names.
    pub fn new() -> Inbox {
        Inbox::default()
    }

    /// An inbox whose tables have names of their own.
    pub fn named(names: &Names) -> Inbox {
        Inbox {
            accept: names.render(ACCEPT.text).into(),
            #[cfg(feature = "tokio-postgres")]
            accept_typed: names.render(ACCEPT_TYPED.text).into(),
            #[cfg(feature = "store")]
            receive: names.render(RECEIVE.text).into(),
            #[cfg(feature = "store")]
            accept_many: names.render(ACCEPT_MANY.text).into(),
        }
    }

    /// The statement and its values. It answers one row of one text, `answer`.
    ///
    /// # Errors
    /// `Invalid` if the event has no source.
    #[doc(hidden)]
    pub fn stage<'e>(&self, event: &'e Event, handler: &'e HandlerName) -> Result<Staged<'e>> {
        let key = InboxKey::of(event, handler)?;
        let text = |text| Value::Text(Some(text));
        Ok(Staged {
            statement: Arc::clone(&self.accept),
            event_ids: vec![key.event_id],
            values: vec![
                text(Cow::Borrowed(&*event.source)),
                text(Cow::Owned(key.event_id.to_string())),
                text(Cow::Borrowed(handler.as_str())),
                text(Cow::Borrowed(&*event.event_type)),
                text(Cow::Owned(hex(&event.payload.hash()))),
            ],
        })
    }

    /// The statement for values of the columns' own types.
    #[cfg(feature = "tokio-postgres")]
    pub(crate) fn accept_typed(&self) -> &str {
        &self.accept_typed
    }

    /// The same for a transaction that a [`Transactional`](crate::Transactional) has begun, of which it answers `answer`
    /// in its second column.
    #[cfg(feature = "store")]
    pub(crate) fn receive(&self) -> &str {
        &self.receive
    }

    /// The statement for the markers of several events, which answers those that are written, and its values: a
    /// column each, and the handler.
    #[cfg(feature = "store")]
    pub(crate) fn stage_many<'e>(
        &self,
        events: &'e [Arc<Event>],
        handler: &'e HandlerName,
    ) -> Result<Staged<'e>> {
        let keys = events.iter().map(|event| InboxKey::of(event, handler));
        let event_ids = keys.map(|key| key.map(|key| key.event_id)).collect::<Result<Vec<_>>>()?;
        let texts = |of: fn(&'e Event) -> Cow<'e, str>| {
            Value::Texts(events.iter().map(|event| Some(of(event))).collect())
        };
        Ok(Staged {
            statement: Arc::clone(&self.accept_many),
            event_ids,
            values: vec![
                texts(|event| Cow::Borrowed(&*event.source)),
                texts(|event| Cow::Owned(event.id.to_string())),
                texts(|event| Cow::Borrowed(&*event.event_type)),
                texts(|event| Cow::Owned(hex(&event.payload.hash()))),
                Value::Text(Some(Cow::Borrowed(handler.as_str()))),
            ],
        })
    }

    /// What the statement's answer means.
    ///
    /// # Errors
    /// `Conflict` with [`Code::PayloadMismatch`] if the id was done with another payload; `Busy` if a worker
    /// holds a lease on it.
    #[doc(hidden)]
    pub fn accepted(
        answer: Option<&str>,
        event: &Event,
        handler: &HandlerName,
    ) -> Result<Accepted> {
        let refused = |kind, message: &str| {
            Err(Error::new(kind, "accept")
                .message(message)
                .context("event", event.id)
                .context("handler", handler))
        };
        match answer {
            Some("first_time") => Ok(Accepted::FirstTime),
            Some("duplicate") => Ok(Accepted::Duplicate),
            Some("mismatch") => refused(
                ErrorKind::Conflict,
                "this event id is known with another payload; the handler must not act on it",
            )
            .map_err(|error: Error| {
                error.code(Code::PayloadMismatch).context("source", &event.source)
            }),
            Some("leased") => refused(ErrorKind::Busy, "a worker holds a lease on the event"),
            _ => {
                refused(ErrorKind::Internal, "the database's function gave no answer that is known")
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        _ = write!(text, "{byte:02x}");
        text
    })
}
