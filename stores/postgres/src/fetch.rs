//! Reading what was committed: the difference of two snapshots.
//!
//! A fetch is one statement for all partitions that ask at the same moment. It reads the token of the
//! server's life, the sequence, a snapshot, and for each partition a page of what that snapshot sees and
//! the cursor's base did not. Invariants: what is handed out is durable (INV-2); what an answer of another
//! life of the server says is refused (INV-1). The arithmetic is [`postrider_core::snapshot`]'s.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::snapshot::{
    Drawn, Incarnation, SequenceTick, Snapshot, SnapshotCursor, Verdict,
};
use postrider_core::source::{FetchRequest, FetchedRow, Page};
use postrider_core::{Cursor, Error, ErrorKind, Result};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::gather::Reply;
use crate::gone_back;
use crate::question;
use crate::room::Room;
use crate::row::{self, Decoder};
use crate::session::Session;
use crate::sessions::Line;
use crate::store::PostgresStore;
use crate::tick::{judge, life};
use crate::typed::unsigned;

/// Columns before an event's: n, cut, xid.
const EVENT: usize = 3;

/// The page behind a cursor.
pub(crate) async fn fetch(store: &PostgresStore, request: &FetchRequest) -> Result<Page> {
    let store = store.clone();
    let asked = store.inner.fetches.clone();
    asked
        .ask("fetch", request.clone(), move |group| {
            let store = store.clone();
            async move { fetch_all(&store, group).await }
        })
        .await
}

/// The pages of a group, as many as one statement has room for. The others are asked for again.
async fn fetch_all(
    store: &PostgresStore,
    group: Vec<FetchRequest>,
) -> Vec<Reply<FetchRequest, Page>> {
    let mut answers: Vec<Option<Result<Page>>> =
        gone_back::look(store, &group).await.into_iter().map(|refused| refused.map(Err)).collect();
    let pages_max = store.remembered().room.pages_max();
    let is_open = |index: &usize| answers[*index].is_none();
    let open: Vec<usize> = (0..group.len()).filter(is_open).take(pages_max).collect();
    let questions: Vec<&FetchRequest> = open.iter().map(|index| &group[*index]).collect();
    let pages = match questions.is_empty() {
        true => Ok(Vec::new()),
        false => read(store, &questions).await,
    };
    match pages {
        Ok(pages) => {
            for (index, page) in open.into_iter().zip(pages) {
                answers[index] = page;
            }
        }
        Err(error) => {
            for index in open {
                answers[index] = Some(Err(error.repeated()));
            }
        }
    }
    let reply = |(question, answer): (_, Option<_>)| match answer {
        Some(answer) => Reply::Is(answer),
        None => Reply::Again(question),
    };
    group.into_iter().zip(answers).map(reply).collect()
}

/// One statement. `None` where it had no room for a page.
async fn read(
    store: &PostgresStore,
    questions: &[&FetchRequest],
) -> Result<Vec<Option<Result<Page>>>> {
    let session = store.sessions().line(Line::Read, "fetch").await?;
    store.tick(&session).await?;
    let asked: Vec<Result<Asked<'_>>> =
        questions.iter().map(|question| Asked::new(question)).collect();
    let known: Vec<_> = questions.iter().map(|question| store.life_of(&question.lease)).collect();
    let (room, tick) = store.remembered().room_and_tick();
    let rows =
        question::ask(&session, asked.iter().flatten(), (room, questions.len()), tick).await?;
    let mut rows = rows.into_iter();
    let Some(first) = rows.next() else {
        return Err(Error::new(ErrorKind::Internal, "fetch").message("a fetch had no first row"));
    };
    let server = Server::read(&first)?;
    if let Some(seen) = server.life {
        store.remembered().given = Some((server.given, seen));
    }
    if !rows.as_slice().is_empty() {
        if !server.is_flushed {
            store.flush(server.given, &server.written, server.life).await?;
        }
        store.await_standby(&server.written, server.life).await?;
    }
    let mut pages = Vec::with_capacity(questions.len());
    let mut decoder = Decoder::new(&store.default_source(&session).await?, EVENT);
    note_sizes(store, rows.as_slice());
    let mut parts = parts(rows);
    let mut number = 0;
    for (asked, known) in asked.into_iter().zip(known) {
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => {
                pages.push(Some(Err(error)));
                continue;
            }
        };
        number += 1;
        let rows = parts.remove(&number).unwrap_or_default();
        if judge(known, server.life) != Verdict::Keep {
            pages.push(Some(Err(store.other_life(&session, "fetch", server.life).await)));
        } else if tick.is_none_or(|tick| Some(tick.incarnation) != server.life) {
            // The statement went by a tick of another life: with one of this it is asked again.
            pages.push(None);
        } else if rows.first().is_some_and(is_cut) {
            pages.push(None);
        } else {
            let rows_max = asked.rows_max(room, questions.len());
            pages.push(Some(asked.page(&server, tick, (rows, rows_max), &mut decoder)));
        }
    }
    Ok(pages)
}

/// A row whose payload and headers were larger than expected, and stayed behind.
fn is_cut(row: &Row) -> bool {
    row.try_get::<_, Option<bool>>(1).ok().flatten().unwrap_or_default()
}

/// Remembers how large rows are, for the next statement.
fn note_sizes(store: &PostgresStore, rows: &[Row]) {
    let cut = |row: &&Row| is_cut(row);
    let size = |row: &Row| row.get::<_, i32>(EVENT + row::EVENT_VERSION).unsigned_abs();
    let mut remembered = store.remembered();
    match rows.iter().filter(cut).map(size).max() {
        Some(largest) => remembered.room.too_small_for(largest.into()),
        None => {
            let largest = rows.iter().map(|row| row::variable_len(row, EVENT)).max();
            remembered.room.note(rows.len() as u64, largest.unwrap_or_default());
        }
    }
}

/// The rows of each page, by its number. Each is let go when it is decoded: the answer and what becomes of it are
/// not both there as a whole.
fn parts(rows: impl Iterator<Item = Row>) -> HashMap<i32, Vec<Row>> {
    let mut parts: HashMap<i32, Vec<Row>> = HashMap::new();
    for row in rows {
        parts.entry(row.get(0)).or_default().push(row);
    }
    parts
}

/// What the server said of itself beside the rows.
struct Server {
    /// What the sequence has given: the floor of a tick.
    given: u64,
    /// Where it stands: what a cursor must not be ahead of.
    stands: u64,
    life: Option<Incarnation>,
    now: Snapshot,
    /// The end of the log when the snapshot was taken, as text.
    written: String,
    /// Everything that the snapshot sees is on the disk.
    is_flushed: bool,
}

impl Server {
    fn read(row: &Row) -> Result<Server> {
        let (given, by_row): (i64, i64) = (row.get(2), row.get(EVENT));
        let text = |column: usize| row.get::<_, Option<&str>>(EVENT + column).unwrap_or_default();
        Ok(Server {
            given: unsigned(given),
            // One that was set and has given nothing since stands where its row says.
            stands: unsigned(if given == 0 { by_row } else { given }),
            life: row.get::<_, Option<Uuid>>(EVENT + 1).map(life),
            now: text(2).parse()?,
            written: text(3).to_owned(),
            is_flushed: position(text(3)) <= position(text(4)),
        })
    }
}

/// A position in the server's log: two numbers in hexadecimal, the higher first.
pub(crate) fn position(text: &str) -> u64 {
    let (high, low) = text.split_once('/').unwrap_or_default();
    let number = |text| u64::from_str_radix(text, 16).unwrap_or_default();
    (number(high) << 32) | number(low)
}

/// A question, with its cursors read.
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a FetchRequest,
    pub(crate) after: SnapshotCursor,
    until: Option<SnapshotCursor>,
    /// The target, where it is known before the server is asked.
    pub(crate) link: Option<SnapshotCursor>,
}

impl Asked<'_> {
    fn new(request: &FetchRequest) -> Result<Asked<'_>> {
        let after = SnapshotCursor::decode(&request.after)?;
        let until = request.until.as_ref().map(SnapshotCursor::decode).transpose()?;
        let link = match &until {
            _ if after.target().is_some() => Some(after.clone()),
            // Nothing is left before the head: a target that is the base itself has no rows.
            Some(head) if after.covers(&head.base()) => Some(after.toward(after.base(), None)?),
            Some(head) => Some(after.toward(head.base(), Some(head.floor()))?),
            None => None,
        };
        Ok(Asked { request, after, until, link })
    }

    /// `tick`: what the statement chose its rows by. A later one that serves its snapshot would lose rows.
    fn page(
        &self,
        server: &Server,
        tick: Option<SequenceTick>,
        (rows, rows_max): (Vec<Row>, usize),
        decoder: &mut Decoder,
    ) -> Result<Page> {
        check_rewound(self.after.floor_ahead().max(self.after.position()), server.stands)?;
        let goes_on = self.after.target().is_some();
        let covered = self.until.as_ref().is_some_and(|head| self.after.covers(&head.base()));
        if covered && !goes_on {
            let end = self.request.after.clone();
            return Ok(Page { rows: Vec::new(), end, more: false });
        }
        let link = match &self.link {
            Some(link) => link.clone(),
            None => {
                let tick = tick.filter(|tick| tick.xid < server.now.xmax());
                let floor = tick.map(|tick| tick.floor);
                self.after.toward(server.now.clone(), floor)?
            }
        };
        let base = link.encode()?;
        let found = rows.len();
        let rows = self.rows(rows, &link, &base, decoder);
        let full = found >= rows_max || rows.len() < found;
        if full {
            let last = rows.last().map_or_else(|| link.position(), |row| row.row.seq);
            return Ok(Page { rows, end: base.at(last), more: true });
        }
        if rows.is_empty() && !goes_on && !link.gains() {
            // An idle partition's cursor stays what it is.
            return Ok(Page { rows, end: self.request.after.clone(), more: false });
        }
        let drained = link.drained();
        // A target that an earlier fetch began may be old: what was committed since is looked for at once.
        let more = goes_on && self.until.as_ref().is_none_or(|head| !drained.covers(&head.base()));
        Ok(Page { rows, end: drained.encode()?, more })
    }

    /// The rows as events, as far as the page's bytes suffice, and one at least.
    fn rows(
        &self,
        found: Vec<Row>,
        link: &SnapshotCursor,
        base: &Cursor,
        decoder: &mut Decoder,
    ) -> Vec<FetchedRow> {
        let mut rows = Vec::with_capacity(found.len());
        let mut bytes = 0u64;
        for row in found {
            let drawn = Drawn { xid: unsigned(row.get(2)), seq: unsigned(row.get(EVENT)) };
            debug_assert!(
                link.is_next(drawn),
                "the statement and the arithmetic differ: {drawn:?}"
            );
            debug_assert!(
                rows.last().is_none_or(|last: &FetchedRow| last.row.seq <= drawn.seq),
                "out of order: {drawn:?}"
            );
            if is_cut(&row) {
                break;
            }
            let decoded = decoder.decode(&row);
            bytes = bytes.saturating_add(decoded.bytes);
            if !rows.is_empty() && bytes > self.request.bytes_max {
                break;
            }
            rows.push(FetchedRow {
                row: decoded.row,
                cursor: base.at(decoded.row.seq),
                key_hash: decoded.key_hash,
                bytes: decoded.bytes,
                event: decoded.event,
            });
        }
        rows
    }

    /// So many rows, if so many pages share a statement.
    pub(crate) fn rows_max(&self, room: Room, pages: usize) -> usize {
        let fits = usize::try_from(room.rows_max(pages)).unwrap_or(usize::MAX);
        (self.request.rows_max.max(1) as usize).min(fits)
    }
}

fn check_rewound(after: u64, stands: u64) -> Result<()> {
    if after <= stands {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Rewound, "fetch")
        .message("the outbox numbers lie behind the cursor: the database was restored or replaced")
        .context("sequence", stands)
        .context("cursor", after))
}

impl PostgresStore {
    /// The default of `outbox.source`, which cannot change once there was an event.
    pub(crate) async fn default_source(&self, session: &Session) -> Result<Arc<str>> {
        if let Some(source) = &self.remembered().source {
            return Ok(Arc::clone(source));
        }
        let meta = crate::schema::meta(session).await?;
        let source: Arc<str> = Arc::from(meta.get("source").map_or("/outbox", String::as_str));
        self.remembered().source = Some(Arc::clone(&source));
        Ok(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_the_log_are_compared_as_numbers() {
        assert!(position("0/FFFFFFFF") < position("1/0"));
        assert!(position("A/1C") > position("9/FFFFFFFF"));
        assert_eq!(position("16/B374D848"), (0x16 << 32) | 0xB374_D848);
    }
}
