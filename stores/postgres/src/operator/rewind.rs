//! Where a rewind goes back to: the number of the first event to send again.
//!
//! Invariant: never before the history that is kept, and never to where the destination has not been.

use postrider_core::{Code, DestinationId, Error, ErrorKind, Result, Start, Timestamp};

use super::value::invalid;
use crate::session::Session;
use crate::since;
use crate::sql::{Sql, sql};
use crate::typed::{Moment, params, signed, unsigned};

const HISTORY: Sql = sql!("operator/history");
const HAS_PASSED: Sql = sql!("operator/has_passed");

/// What is kept.
struct History {
    kept_from: u64,
    /// When the oldest event that is kept was created.
    begins: Option<Timestamp>,
}

impl History {
    async fn read(session: &Session) -> Result<History> {
        let row = session.row("submit", &HISTORY, params![]).await?;
        Ok(History {
            kept_from: unsigned(row.get::<_, Option<i64>>(0).unwrap_or_default()).max(1),
            begins: row.get::<_, Option<Moment>>(1).map(Timestamp::from),
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
        Start::At(moment) => event_since(session, &history, moment).await?,
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
async fn event_since(session: &Session, history: &History, moment: Timestamp) -> Result<u64> {
    if history.kept_from > 1 && history.begins.is_none_or(|begins| moment < begins) {
        return Err(history.gone());
    }
    if let Some(found) =
        since::first_since(session, "submit", history.kept_from, Moment::from(moment)).await?
    {
        return Ok(found);
    }
    Err(Error::new(ErrorKind::NotFound, "submit")
        .message("no event was created at or after that moment; nothing was changed")
        .context("moment", moment))
}
