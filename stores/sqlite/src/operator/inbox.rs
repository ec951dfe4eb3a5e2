//! The inbox as an operator sees it: pages of it, forgetting, and marking by hand.
//!
//! Invariants: nothing that a handler is at is touched, and its lease decides that by the database's
//! clock; what is forgotten leaves a tombstone with who and why (F34); results of steps stay, because
//! they are effects that have happened: an event that is acted on again resumes behind them.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::operate::listing::{self, Gathering};
use postrider_core::operate::{
    Forgotten, InboxFilter, InboxName, InboxState, InboxView, Listed, Marked, Note, PageRequest,
};
use postrider_core::{EventId, Result};
use rusqlite::{Connection, Row, params};

use super::merge::Merge;
use super::value::{self, count, id, invalid, moment_at, shown, small, text};
use super::{audit, sql};
use crate::error::During;
use crate::store::{now, signed, span};

/// Steps of one row that are named.
const STEPS_MAX: u32 = 100;

/// A row's place in the list: later is greater. Claimed rows by when they came, processed ones by when
/// they were done, tombstones by when they were made.
type Place = (i64, usize, String, String, String, i64);

/// The streams of the list, by their number in a [`Place`].
const TOMBSTONES: usize = 0;
const PROCESSED: usize = 1;
const CLAIMED: usize = 2;

fn place(stream: usize, row: &Row<'_>) -> Place {
    let column = if stream == CLAIMED { 6 } else { 7 };
    let moment = row.get(column).unwrap_or_default();
    match stream {
        TOMBSTONES => {
            let none = String::new;
            (moment, stream, none(), none(), none(), row.get(10).unwrap_or_default())
        }
        _ => (moment, stream, shown(row, 0), shown(row, 1), shown(row, 2), 0),
    }
}

/// A page of the inbox, newest first.
pub(super) fn list(
    connection: &Connection,
    filter: &InboxFilter,
    page: &PageRequest,
) -> Result<Listed<InboxView>> {
    let mut gathering = Gathering::new(page.check()?);
    let after = page.after.as_deref().map(read_place).transpose()?;
    let now = now(connection)?;
    if let Some(event) = filter.event_id {
        return of_event(connection, filter, event, after, gathering);
    }
    let mut statements = Vec::new();
    for statement in [sql::TOMBSTONES, sql::INBOX_PROCESSED, sql::INBOX_CLAIMED] {
        statements.push(connection.prepare_cached(statement).during("inbox")?);
    }
    let mut streams = Vec::new();
    for (stream, statement) in statements.iter_mut().enumerate() {
        let from =
            if is_wanted(stream, filter) { start(stream, after.as_ref()) } else { nowhere() };
        let (moment, source, event, handler, number) = &from;
        let rows = match stream {
            TOMBSTONES => statement.query(params![moment, number]),
            _ => statement.query(params![moment, source, event, handler]),
        };
        streams.push(rows.during("inbox")?);
    }
    let mut merge = Merge::open(streams, place)?;
    while let Some((stream, row)) = merge.current() {
        let at = place(stream, row);
        let goes_on = gathering.look();
        if let Some(view) = view(connection, row, filter, now)? {
            if gathering.is_full() {
                return Ok(gathering.more());
            }
            gathering.push(view, written(&at)?);
        }
        if !goes_on {
            return Ok(gathering.more_after(written(&at)?));
        }
        merge.advance()?;
    }
    Ok(gathering.end())
}

fn is_wanted(stream: usize, filter: &InboxFilter) -> bool {
    match filter.state {
        None => true,
        Some(InboxState::Leased | InboxState::Expired) => stream == CLAIMED,
        Some(InboxState::Processed) => stream == PROCESSED,
        Some(InboxState::Forgotten) => stream == TOMBSTONES,
    }
}

/// Before which row a stream begins.
type Start = (i64, String, String, String, i64);

fn start(stream: usize, after: Option<&Place>) -> Start {
    let none = String::new;
    match after {
        None => (i64::MAX, none(), none(), none(), i64::MAX),
        Some((moment, last, source, event, handler, number)) if *last == stream => {
            (*moment, source.clone(), event.clone(), handler.clone(), *number)
        }
        // Of the same moment, what is of a lesser stream comes after; the others came before.
        Some((moment, last, ..)) if *last > stream => {
            (moment.saturating_add(1), none(), none(), none(), 0)
        }
        Some((moment, ..)) => (*moment, none(), none(), none(), 0),
    }
}

fn nowhere() -> Start {
    (i64::MIN, String::new(), String::new(), String::new(), 0)
}

fn written(place: &Place) -> Result<String> {
    serde_json::to_string(place).map_err(|e| {
        postrider_core::Error::new(postrider_core::ErrorKind::Internal, "inbox").source(e)
    })
}

fn read_place(text: &str) -> Result<Place> {
    let read: Option<Place> = serde_json::from_str(text).ok();
    read.filter(|place| place.1 <= CLAIMED).ok_or_else(|| listing::misplaced("inbox", text))
}

/// The rows of one event: a handful, one for each handler.
fn of_event(
    connection: &Connection,
    filter: &InboxFilter,
    event: EventId,
    after: Option<Place>,
    mut gathering: Gathering<InboxView>,
) -> Result<Listed<InboxView>> {
    let (now, event) = (now(connection)?, event.to_string());
    let mut rows = Vec::new();
    for source in sources(connection)? {
        let mut statement = connection.prepare_cached(sql::INBOX_OF_EVENT).during("inbox")?;
        let mut found = statement.query(params![source, event]).during("inbox")?;
        while let Some(row) = found.next().during("inbox")? {
            let stream = if shown(row, 4) == "claimed" { CLAIMED } else { PROCESSED };
            rows.push((place(stream, row), view(connection, row, filter, now)?));
        }
    }
    let mut statement = connection.prepare_cached(sql::TOMBSTONES_OF_EVENT).during("inbox")?;
    let mut found = statement.query([&event]).during("inbox")?;
    while let Some(row) = found.next().during("inbox")? {
        rows.push((place(TOMBSTONES, row), view(connection, row, filter, now)?));
    }
    rows.sort_by(|(a, _), (b, _)| b.cmp(a));
    for (place, view) in rows {
        let behind = after.as_ref().is_none_or(|after| place < *after);
        if let Some(view) = view.filter(|_| behind) {
            if gathering.is_full() {
                return Ok(gathering.more());
            }
            gathering.push(view, written(&place)?);
        }
    }
    Ok(gathering.end())
}

/// The sources that the inbox knows, by a leap of the index for each.
fn sources(connection: &Connection) -> Result<Vec<String>> {
    let mut sources: Vec<String> = Vec::new();
    loop {
        let last = sources.last().map(String::as_str).unwrap_or_default();
        let next =
            value::first(connection, "inbox", sql::INBOX_SOURCE, [last], |row| text(row, 0))?;
        match next.flatten() {
            Some(next) => sources.push(next),
            None => return Ok(sources),
        }
    }
}

/// A row as a person sees it, if the filter lets it through.
fn view(
    connection: &Connection,
    row: &Row<'_>,
    filter: &InboxFilter,
    now: i64,
) -> Result<Option<InboxView>> {
    let expires_at = signed(count(row, 8));
    let state = match shown(row, 4).as_str() {
        "forgotten" => InboxState::Forgotten,
        "processed" => InboxState::Processed,
        _ if expires_at > now => InboxState::Leased,
        _ => InboxState::Expired,
    };
    let leased = state == InboxState::Leased;
    let mut view = InboxView {
        source: shown(row, 0),
        event_id: id(row, 1).unwrap_or(EventId::from_u128(0)),
        handler: shown(row, 2),
        event_type: shown(row, 3),
        state,
        attempts: small(row, 5),
        received_at: moment_at(row, 6).unwrap_or_default(),
        ended_at: moment_at(row, 7),
        lease_left: leased.then(|| span(now, expires_at)),
        steps: Vec::new(),
        result_bytes: count(row, 9),
        forgotten_by: (state == InboxState::Forgotten)
            .then(|| format!("{}: {}", shown(row, 11), shown(row, 12))),
    };
    if !passes(&view, filter) {
        return Ok(None);
    }
    let key = params![view.source, shown(row, 1), view.handler, STEPS_MAX];
    view.steps = value::all(connection, "inbox", sql::INBOX_STEPS, key, |row| shown(row, 0))?;
    Ok(Some(view))
}

fn passes(view: &InboxView, filter: &InboxFilter) -> bool {
    filter.event_id.is_none_or(|wanted| view.event_id == wanted)
        && filter.handler.as_ref().is_none_or(|wanted| view.handler == wanted.as_str())
        && filter.source.as_ref().is_none_or(|wanted| view.source == *wanted)
        && filter.event_type.as_ref().is_none_or(|glob| glob.matches(&view.event_type))
        && filter.state.is_none_or(|wanted| view.state == wanted)
        && filter.since.is_none_or(|since| view.received_at >= since)
        && filter.until.is_none_or(|until| view.received_at < until)
}

/// What stands in a row, as far as a decision needs it.
struct Standing {
    processed: bool,
    lease_left: Option<Duration>,
}

fn standing(connection: &Connection, source: &str, name: &InboxName) -> Result<Option<Standing>> {
    let now = now(connection)?;
    let key = params![source, name.event_id.to_string(), name.handler.as_str()];
    value::first(connection, "inbox", sql::INBOX_ROW, key, |row| {
        let expires_at = signed(count(row, 8));
        Standing {
            processed: shown(row, 4) == "processed",
            lease_left: (expires_at > now).then(|| span(now, expires_at)),
        }
    })
}

/// The one source that has such a row; `None` if none has.
fn source_of(connection: &Connection, name: &InboxName) -> Result<Option<String>> {
    if name.source.is_some() {
        return Ok(name.source.clone());
    }
    let mut found = BTreeSet::new();
    for source in sources(connection)? {
        if standing(connection, &source, name)?.is_some() {
            found.insert(source);
        }
    }
    if found.len() > 1 {
        let names = found.into_iter().collect::<Vec<_>>().join(", ");
        return Err(invalid("inbox", "several sources have this event id: name one")
            .context("sources", names));
    }
    Ok(found.pop_first())
}

/// Forgets that a handler was done with an event. Results of its steps stay.
pub(super) fn forget(connection: &Connection, name: &InboxName, note: &Note) -> Result<Forgotten> {
    let Some(source) = source_of(connection, name)? else {
        return Ok(Forgotten::Unknown);
    };
    let Some(standing) = standing(connection, &source, name)? else {
        return Ok(Forgotten::Unknown);
    };
    if let Some(left) = standing.lease_left {
        return Ok(Forgotten::Leased { left });
    }
    let event = name.event_id.to_string();
    let tombstone =
        params![source, event, name.handler.as_str(), now(connection)?, note.who, note.why];
    connection.execute(sql::TOMBSTONE_INSERT, tombstone).during("forget")?;
    connection
        .execute(sql::INBOX_FORGET, params![source, event, name.handler.as_str()])
        .during("forget")?;
    let was = if standing.processed { "processed" } else { "claimed" };
    let subject = format!("event {event} of {source} for {} (was {was})", name.handler);
    audit::write(connection, note, "inbox forget", &subject)?;
    Ok(Forgotten::Forgotten)
}

/// Records that a handler is done with an event, because a person did its work.
pub(super) fn mark(connection: &Connection, name: &InboxName, note: &Note) -> Result<Marked> {
    let (source, event_type) = said_by(connection, name)?;
    match standing(connection, &source, name)? {
        Some(Standing { processed: true, .. }) => return Ok(Marked::Already),
        Some(Standing { lease_left: Some(left), .. }) => return Ok(Marked::Leased { left }),
        _ => {}
    }
    let event = name.event_id.to_string();
    let row = params![source, event, name.handler.as_str(), event_type, now(connection)?];
    connection.execute(sql::INBOX_MARK, row).during("mark processed")?;
    let subject = format!("event {event} of {source} for {}", name.handler);
    audit::write(connection, note, "inbox mark-processed", &subject)?;
    Ok(Marked::Marked)
}

/// Whose event it is, and its type as far as this store knows it. The row need not be there yet.
fn said_by(connection: &Connection, name: &InboxName) -> Result<(String, String)> {
    let event = name.event_id.to_string();
    let pair = |row: &Row<'_>| (shown(row, 0), shown(row, 1));
    let in_outbox = value::first(connection, "mark processed", sql::EVENT_SOURCE, [&event], pair)?;
    let forgotten = params![event, name.handler.as_str()];
    let forgotten =
        value::first(connection, "mark processed", sql::TOMBSTONE_SOURCE, forgotten, pair)?;
    let known = in_outbox.or(forgotten);
    let event_type = |source: &str| match &known {
        Some((of, event_type)) if of == source => event_type.clone(),
        _ => String::new(),
    };
    if let Some(source) = source_of(connection, name)? {
        let event_type = event_type(&source);
        return Ok((source, event_type));
    }
    known.ok_or_else(|| {
        invalid("mark processed", "this store does not know the event: name its source as well")
            .context("event", name.event_id)
    })
}
