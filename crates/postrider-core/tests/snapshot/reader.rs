//! A reader of the model: it ticks, fetches page after page, reads ahead, and falls back to what it
//! saved.

use postrider_core::snapshot::{
    Incarnation, SequenceTick, SequenceTicks, SnapshotCursor, given_through,
};

use crate::server::{Row, Server};

const LIFE: Incarnation = Incarnation(1);

/// As PostgreSQL does it.
const LOGGED_AHEAD: u64 = 32;

/// How the floor of a snapshot is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// By the last tick that serves it.
    Tick,
    /// What the sequence says with the fetch.
    AtFetch,
    /// The highest number that any reader has seen.
    HighestSeen,
    /// By ticks that believe a fresh sequence.
    FreshAsGiven,
    /// By ticks that read the sequence while it writes ahead what it will have given.
    LoggedAhead,
    /// By ticks whose transaction has its number before the read.
    TickInTransaction,
}

#[derive(Debug)]
pub(crate) struct Reader {
    rule: Rule,
    page: usize,
    pub(crate) cursor: SnapshotCursor,
    pub(crate) ticks: SequenceTicks,
    /// A tick between its two statements.
    reading: Option<u64>,
    early_xid: Option<u64>,
    highest: u64,
    /// Rows read and not saved, each with the cursor that has passed it.
    window: Vec<(Row, SnapshotCursor)>,
    saved: SnapshotCursor,
    /// All rows in the order they were read for the first time, and those read again after a fall.
    pub(crate) read: Vec<Row>,
}

impl Reader {
    pub(crate) fn new(rule: Rule, page: usize) -> Reader {
        Reader {
            rule,
            page,
            cursor: SnapshotCursor::beginning(),
            ticks: SequenceTicks::default(),
            reading: None,
            early_xid: None,
            highest: 0,
            window: Vec::new(),
            saved: SnapshotCursor::beginning(),
            read: Vec::new(),
        }
    }

    /// One statement of a tick: the read, then the transaction of its own.
    pub(crate) fn tick(&mut self, server: &mut Server) {
        if self.rule == Rule::TickInTransaction && self.early_xid.is_none() {
            self.early_xid = Some(server.begin_xid());
            return;
        }
        let Some(floor) = self.reading.take() else {
            let (last_value, is_called) = server.sequence();
            let is_called = is_called || self.rule == Rule::FreshAsGiven;
            let ahead = if self.rule == Rule::LoggedAhead { LOGGED_AHEAD } else { 0 };
            self.reading = Some(given_through(last_value, is_called) + ahead);
            return;
        };
        let xid = self.early_xid.take().unwrap_or_else(|| server.begin_xid());
        server.end_xid(xid);
        self.ticks.note(SequenceTick { floor, xid, incarnation: LIFE });
    }

    /// One statement: a page of the target there is, or of a new one. Says whether it is worth to read
    /// on: behind the end of an old target there may be more.
    pub(crate) fn fetch(&mut self, server: &Server) -> bool {
        let goes_on = self.cursor.target().is_some();
        let link = match self.cursor.target() {
            Some(_) => self.cursor.clone(),
            None => {
                let seen = server.snapshot();
                let (last_value, is_called) = server.sequence();
                let floor = match self.rule {
                    Rule::AtFetch => Some(given_through(last_value, is_called)),
                    Rule::HighestSeen => Some(self.highest),
                    _ => self.ticks.floor_for(&seen, LIFE),
                };
                self.cursor.toward(seen, floor).unwrap()
            }
        };
        let lo = link.lo_of_page(link.target().unwrap());
        let scan = server.rows.range(lo + 1..).map(|(_, row)| *row);
        let mut found: Vec<Row> = scan.filter(|row| link.is_next(row.drawn)).collect();
        let all = server.rows.values().filter(|row| link.is_next(row.drawn));
        assert!(all.eq(&found), "where a scan begins decides nothing");
        let more = found.len() > self.page;
        found.truncate(self.page);
        for row in &found {
            let passed = link.at_position(row.drawn.seq);
            assert!(passed.has_passed(row.drawn) && !self.cursor.has_passed(row.drawn));
            self.highest = self.highest.max(row.drawn.seq);
            self.window.push((*row, passed));
            self.read.push(*row);
        }
        self.cursor = match found.last() {
            Some(last) if more => link.at_position(last.drawn.seq),
            None if !goes_on && !link.gains() => self.cursor.clone(),
            _ => link.drained(),
        };
        goes_on || !found.is_empty()
    }

    /// Saves after so many rows of the window, through the bytes of a cursor.
    pub(crate) fn save(&mut self, rows: usize) {
        let to = match self.window.get(rows.wrapping_sub(1)) {
            _ if rows >= self.window.len() => self.cursor.clone(),
            Some((_, cursor)) => cursor.clone(),
            None => return,
        };
        self.window.drain(..rows.min(self.window.len()));
        let encoded = to.encode().unwrap();
        self.saved = SnapshotCursor::decode(&encoded).unwrap();
        assert_eq!(self.saved, to);
    }

    /// Falls back to what is saved, as after a crash of the reader, and forgets the ticks. What comes
    /// again must be what was not saved, and is taken off the record.
    pub(crate) fn fall(&mut self) {
        self.cursor = self.saved.clone();
        for (row, _) in self.window.drain(..) {
            assert!(!self.saved.has_passed(row.drawn), "the saved cursor has passed {row:?}");
            self.read.retain(|read| *read != row);
        }
        for row in &self.read {
            assert!(self.saved.has_passed(row.drawn), "the saved cursor has not passed {row:?}");
        }
        self.ticks = SequenceTicks::default();
        self.reading = None;
    }
}
