//! Where a rewind goes back to: the number of the first event to send again.
//!
//! Invariant: never before the history that is kept, and never to where the destination has not been.

use postrider_core::{Code, DestinationId, Error, ErrorKind, Result, Start, Timestamp};

use super::value::invalid;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{Moment, params, signed, unsigned};

const HISTORY: Sql = sql!("operator/history");
const FIRST_SINCE: Sql = sql!("operator/first_since");
const HAS_PASSED: Sql = sql!("operator/has_passed");

/// Numbers that one statement looks through for the first event since a moment: far less than its
/// deadline allows.
const STRETCH: u64 = 1_000_000;

/// What is kept.
struct History {
    kept_from: u64,
    /// When the oldest event that is kept was created.
    begins: Option<Timestamp>,
    last: u64,
}

impl History {
    async fn read(session: &Session) -> Result<History> {
        let row = session.row("submit", &HISTORY, params![]).await?;
        Ok(History {
            kept_from: unsigned(row.get::<_, Option<i64>>(0).unwrap_or_default()).max(1),
            begins: row.get::<_, Option<Moment>>(1).map(Timestamp::from),
            last: unsigned(row.get::<_, Option<i64>>(2).unwrap_or_default()),
        })
    }

    /// The error for a rewind to what retention has deleted.
    fn gone(&self) -> Error {
        let begins = self.begins.map_or_else(
            || "no event is kept".to_owned(),
            |begins| format!("the oldest moment that can be replayed is {begins}"),
        );
        Error::new(ErrorKind::NotFound, "submit").code(Code::HistoryGone).message(format!(
            "the history from there on was deleted by retention; {begins}; nothing was changed"
        ))
    }
}

/// The first event to send again. Owners look once more when they carry it out: retention goes on.
pub(super) async fn target(
    session: &Session,
    destination: &DestinationId,
    to: Start,
) -> Result<u64> {
    let history = History::read(session).await?;
    let target = match to {
        Start::Beginning => history.kept_from,
        Start::At(moment) => since(session, &history, moment).await?,
        Start::Now => {
            return Err(invalid("submit", "a rewind goes back: say `beginning`, or a moment"));
        }
    };
    let values = params![destination.as_str(), signed(target)];
    if session.row("submit", &HAS_PASSED, values).await?.get(0) {
        return Ok(target);
    }
    let message =
        "the destination has not passed any event from there on: there is nothing to replay";
    Err(invalid("submit", message).context("destination", destination).context("from", target))
}

/// The first event that was created at or after a moment.
async fn since(session: &Session, history: &History, moment: Timestamp) -> Result<u64> {
    if history.kept_from > 1 && history.begins.is_none_or(|begins| moment < begins) {
        return Err(history.gone());
    }
    let mut from = history.kept_from;
    while from <= history.last {
        let through = history.last.min(from.saturating_add(STRETCH - 1));
        let values = params![signed(from), signed(through), Moment::from(moment)];
        let found: Option<i64> = session.row("submit", &FIRST_SINCE, values).await?.get(0);
        if let Some(found) = found {
            return Ok(unsigned(found));
        }
        from = through + 1;
    }
    Err(Error::new(ErrorKind::NotFound, "submit")
        .message("no event was created at or after that moment; nothing was changed")
        .context("moment", moment))
}
