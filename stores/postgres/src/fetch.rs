//! Reading what was committed: the difference of two snapshots.
//!
//! A fetch is one statement for all partitions that ask at the same moment. It reads the token of the
//! server's life, the sequence, a snapshot, which of the destinations are gone, and for each partition a page of what that snapshot sees and
//! the cursor's base did not. Invariants: what is handed out is durable (INV-2); what an answer of another
//! life of the server says is refused (INV-1). The arithmetic is [`postrider_core::snapshot`]'s.

use std::sync::Arc;

use postrider_core::snapshot::{Leg, SequenceTick, SnapshotCursor, Verdict};
use postrider_core::source::{FetchRequest, FetchedRow, Page};
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, Result};

use crate::answer::{Answer, Fixed, Found, Server};
use crate::gap;
use crate::gather::Reply;
use crate::gone_back;
use crate::open::all_seen;
use crate::question;
use crate::room::Room;
use crate::session::Session;
use crate::sessions::Line;
use crate::setup::Setup;
use crate::store::PostgresStore;
use crate::tick::judge;
use crate::typed::partition;

/// So many numbers are read at most for a page of the way between two cursors. Pages share a statement and a session, and
/// behind the last row of an old target lies all that was written since: of 32 partitions these are some 6,000 rows.
const STRETCH: u64 = 200_000;

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
    let mut questions = Vec::with_capacity(open.len());
    for index in open {
        match Asked::new(&group[index]) {
            Ok(asked) => questions.push((index, asked)),
            Err(error) => answers[index] = Some(Err(error)),
        }
    }
    for (index, page) in read(store, questions).await {
        answers[index] = page;
    }
    let reply = |(question, answer): (_, Option<_>)| match answer {
        Some(answer) => Reply::Is(answer),
        None => Reply::Again(question),
    };
    group.into_iter().zip(answers).map(reply).collect()
}

/// Questions with their places in the group.
type Questions<'a> = Vec<(usize, Asked<'a>)>;

/// What becomes of them. `None` where the statement had no room for a page.
type Pages = Vec<(usize, Option<Result<Page>>)>;

async fn read(store: &PostgresStore, mut questions: Questions<'_>) -> Pages {
    if questions.is_empty() {
        return Vec::new();
    }
    match ask(store, &mut questions).await {
        Ok(pages) => questions.into_iter().map(|(index, _)| index).zip(pages).collect(),
        Err(error) => {
            let refused = |(index, _)| (index, Some(Err(error.repeated())));
            questions.into_iter().map(refused).collect()
        }
    }
}

/// One statement.
async fn ask(
    store: &PostgresStore,
    questions: &mut Questions<'_>,
) -> Result<Vec<Option<Result<Page>>>> {
    let session = store.sessions().line(Line::Page, "fetch").await?;
    store.tick(&session).await?;
    let of = |asked: &Asked<'_>| store.life_of(&asked.request.lease);
    let known: Vec<_> = questions.iter().map(|(_, asked)| of(asked)).collect();
    let (room, tick) = store.remembered().room_and_tick();
    let pages = questions.len();
    questions.iter_mut().for_each(|(_, asked)| asked.limit(room, pages));
    let partitions = questions.iter().map(|(_, asked)| partition(asked.request.lease.partition));
    let mut answer = Answer::new(&store.fixed(&session).await?, partitions.collect());
    let asked = questions.iter().map(|(_, asked)| asked);
    question::ask(&session, asked, (room, tick), |row| answer.take(row)).await?;
    let server = answer.server()?;
    if server.has_policies {
        all_seen(&session, "fetch").await?;
    }
    if let Some(seen) = server.life {
        store.remembered().given = Some((server.given, seen));
    }
    if answer.events() > 0 {
        if !server.is_flushed {
            store.flush(server.given, &server.written, server.life).await?;
        }
        store.await_standby(&server.written, server.life).await?;
    }
    answer.refuse_strayed(&session).await?;
    answer.note_sizes(&mut store.remembered().room);
    let found: Vec<Vec<Found>> = (1..).map(|n| answer.page(n)).take(questions.len()).collect();
    let asked = questions.iter().map(|(_, asked)| asked);
    let nexts = gap::look(&session, asked.zip(&found)).await?;
    let mut pages = Vec::with_capacity(questions.len());
    let read = found.into_iter().zip(nexts);
    for (((_, asked), known), (rows, next)) in questions.iter().zip(known).zip(read) {
        if judge(known, server.life) != Verdict::Keep {
            pages.push(Some(Err(store.other_life(&session, "fetch", server.life).await)));
        } else if tick.is_none_or(|tick| Some(tick.incarnation) != server.life) {
            // The statement went by a tick of another life: with one of this it is asked again.
            pages.push(None);
        } else if let Some(gone) = server.gone_of(&asked.request.destinations) {
            pages.push(Some(Err(not_there(gone))));
        } else if rows.first().is_some_and(|first| first.decoded.is_none()) {
            pages.push(None);
        } else {
            pages.push(Some(asked.page(&server, tick, rows, next)));
        }
    }
    Ok(pages)
}

/// A question, with its cursors read.
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a FetchRequest,
    pub(crate) after: SnapshotCursor,
    /// Where it is to end, if not with what is visible now.
    until: Option<SnapshotCursor>,
    /// The stretch of the way there that is read; none if nothing is left of it.
    leg: Option<Leg>,
    /// The last number that is read on this page, where it is of the way between two cursors: a target that is old has no rows
    /// behind some number, and to see that would read all that came since.
    pub(crate) through: Option<u64>,
    /// The target, where it is known before the server is asked.
    pub(crate) link: Option<SnapshotCursor>,
    /// The most rows of its page.
    pub(crate) rows_max: usize,
}

impl Asked<'_> {
    fn new(request: &FetchRequest) -> Result<Asked<'_>> {
        let after = SnapshotCursor::decode(&request.after)?;
        let until = request.until.as_ref().map(SnapshotCursor::decode).transpose()?;
        let leg = match &until {
            Some(until) => after.leg(until)?,
            None => None,
        };
        let link = match (&until, &leg) {
            (_, Some(leg)) => Some(leg.link.clone()),
            (None, None) => Some(after.clone()).filter(|after| after.target().is_some()),
            // Nothing is left of the way: a target that is the base itself has no rows.
            (Some(_), None) => {
                let end = after.drained();
                Some(end.toward(end.base(), None)?)
            }
        };
        let reads = |leg: &Leg| {
            let begins = leg.link.position().max(leg.link.ground());
            leg.through.min(begins.saturating_add(STRETCH))
        };
        let through = until.is_some().then(|| leg.as_ref().map_or(0, reads));
        Ok(Asked { request, after, until, leg, through, link, rows_max: 1 })
    }

    /// `tick`: what the statement chose its rows by. A later one that serves its snapshot would lose rows.
    /// `next`: where the first row may be behind the stretch that was read.
    fn page(
        &self,
        server: &Server,
        tick: Option<SequenceTick>,
        rows: Vec<Found>,
        next: Option<u64>,
    ) -> Result<Page> {
        // Of the way to a cursor that lies ahead as well: rows between the two have those numbers, and would seem to be none.
        for cursor in [Some(&self.after), self.until.as_ref()].into_iter().flatten() {
            check_rewound(cursor.floor_ahead().max(cursor.position()), server.stands)?;
        }
        if let Some(until) = &self.until {
            return self.page_until(until, rows, next);
        }
        let goes_on = self.after.target().is_some();
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
        let rows = self.rows(rows, &link, &base);
        let last = rows.last().map_or_else(|| link.position(), |row| row.row.seq);
        if self.is_full(rows.len(), found) {
            return Ok(Page { rows, end: base.at(last), more: true });
        }
        if rows.is_empty() && !goes_on && !link.gains() {
            // An idle partition's cursor stays what it is.
            return Ok(Page { rows, end: self.request.after.clone(), more: false });
        }
        // A target that an earlier fetch began may be old: what was committed since is looked for at once.
        Ok(Page { rows, end: link.drained().encode()?, more: goes_on })
    }

    /// The last number of the stretch that was read, where so many rows do not fill the page, and its way goes on behind that.
    pub(crate) fn stretch(&self, found: usize) -> Option<u64> {
        let (leg, through) = (self.leg.as_ref()?, self.through?);
        (found < self.rows_max && through < leg.through).then_some(through)
    }

    /// A page of what lies between two cursors: as far as the leg goes, and no further than was read.
    fn page_until(
        &self,
        until: &SnapshotCursor,
        mut found: Vec<Found>,
        next: Option<u64>,
    ) -> Result<Page> {
        let (Some(leg), Some(through)) = (&self.leg, self.through) else {
            return Ok(Page { rows: Vec::new(), end: self.request.after.clone(), more: false });
        };
        let is_full = found.len() >= self.rows_max;
        let all = found.len();
        found.retain(|found| found.drawn.seq <= through);
        let (within, base) = (found.len(), leg.link.encode()?);
        let rows = self.rows(found, &leg.link, &base);
        let reached = within < all || rows.last().is_some_and(|row| row.row.seq == through);
        if rows.len() < within || (is_full && !reached) {
            let last = rows.last().map_or_else(|| leg.link.position(), |row| row.row.seq);
            return Ok(Page { rows, end: base.at(last), more: true });
        }
        if let Some(next) = next.filter(|next| through < leg.through && *next <= leg.through) {
            return Ok(Page { rows, end: base.at(next - 1), more: true });
        }
        let end = if leg.last { until.clone() } else { leg.link.drained() };
        let more = !leg.last && end.leg(until)?.is_some();
        Ok(Page { rows, end: end.encode()?, more })
    }

    /// The rows as events, as far as the page's bytes suffice, and one at least.
    fn rows(&self, found: Vec<Found>, link: &SnapshotCursor, base: &Cursor) -> Vec<FetchedRow> {
        let mut rows = Vec::with_capacity(found.len().min(self.rows_max));
        let mut bytes = 0u64;
        for Found { drawn, decoded } in found.into_iter().take(self.rows_max) {
            debug_assert!(
                link.is_next(drawn),
                "the statement and the arithmetic differ: {drawn:?}"
            );
            debug_assert!(
                rows.last().is_none_or(|last: &FetchedRow| last.row.seq <= drawn.seq),
                "out of order: {drawn:?}"
            );
            let Some(decoded) = decoded else { break };
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

    /// Bounds its page, if so many pages share a statement.
    fn limit(&mut self, room: Room, pages: usize) {
        let fits = usize::try_from(room.rows_max(pages)).unwrap_or(usize::MAX);
        self.rows_max = (self.request.rows_max.max(1) as usize).min(fits);
    }

    /// Whether a page of so many rows ends before what was found, or may.
    fn is_full(&self, rows: usize, found: usize) -> bool {
        found >= self.rows_max || rows < found
    }
}

/// What is sent under a name that a destination had is not saved: a relay that has not heard reads no further.
pub(crate) fn not_there(destination: &DestinationId) -> Error {
    Error::new(ErrorKind::NotFound, "fetch")
        .message("the destination is not in the store: it was removed or renamed")
        .context("destination", destination)
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
    /// The number of partitions, and the default of `outbox.source`, which cannot change once there was an event.
    async fn fixed(&self, session: &Session) -> Result<Fixed> {
        if let Some(fixed) = &self.remembered().fixed {
            return Ok(fixed.clone());
        }
        let setup = crate::schema::setup(session).await?;
        let source = Arc::from(setup.source.as_deref().unwrap_or("/outbox"));
        let partitions = setup.partitions.unwrap_or(Setup::PARTITIONS);
        let fixed = Fixed { source, partitions };
        self.remembered().fixed = Some(fixed.clone());
        Ok(fixed)
    }

    /// The default of `outbox.source`.
    pub(crate) async fn default_source(&self, session: &Session) -> Result<Arc<str>> {
        Ok(self.fixed(session).await?.source)
    }
}
