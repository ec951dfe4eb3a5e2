//! Ranges: of a key of which so much waits that nothing more of it is copied, and the reading of what was left out.
//!
//! Keeps INV-6 (a key that waits costs the store some thousand rows), INV-1 and INV-3 (what a range stands for is copied
//! behind the key's waiting rows before the range ends, in the write that says so: all of it, once).
//!
//! While a key has a range, each row of it that is read is passed as waiting and not copied. Those that the saved cursor
//! may not have passed are kept in memory, with their events. When few rows of the key are left in `waiting`, the store is
//! read on from the range's cursor up to the saved one, and what is of the key is copied. The page that reaches the saved
//! cursor ends the range: what that had not passed when the page was asked for is what was kept, and is copied too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use postrider_core::range::{RANGES_MAX, Range, RangeChange};
use postrider_core::source::{FetchedRow, Malformed};
use postrider_core::waiting::{Passed, Placement, Reason};
use postrider_core::{Cursor, Event, KeyHash, Payload, Tick, planted, reach};

use crate::attempt::attempted;
use crate::flow::Flow;
use crate::notice::Notice;
use crate::outlet::Outlet;
use crate::settings::Settings;
use crate::window::Ordinal;

/// So many pages without an event of the key are read before the range's cursor is saved on its own: what a crash has read
/// again, and what retention is held back by.
const PAGES_UNSAVED_MAX: u32 = 32;

/// The ranges of a flow.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Nothing where the store keeps none.
    spans: Option<BTreeMap<KeyHash, Span>>,
    /// Rows that were passed for a range, and that the saved cursor may not have passed.
    kept: VecDeque<(Ordinal, FetchedRow)>,
    kept_bytes: u64,
    /// The page that is being read for one of them.
    pub(crate) reading: Option<(KeyHash, u64)>,
    /// When the next may be read.
    pub(crate) read_at: Tick,
    /// Of which a page was read last.
    last: Option<KeyHash>,
}

/// A range, and how far it is read.
#[derive(Debug)]
struct Span {
    version: u64,
    /// Where the store has it, once everything is written that is on its way.
    saved: Cursor,
    /// From where it is read on.
    read: Cursor,
    /// The first row that it stands for, if it began in this reading.
    opened: Option<Ordinal>,
    /// What the store is to be told of it, with the cursor that passes that row.
    untold: Option<Range>,
    /// Pages that were read since it was saved.
    pages: u32,
    /// What was copied of it and holds nothing: dead letters of which no route takes any more, or that are no events.
    dead: u32,
}

impl Ranges {
    /// What a flow finds when it is loaded.
    pub(crate) fn found(ranges: Option<Vec<Range>>) -> Ranges {
        let span = |range: Range| {
            let (saved, read) = (range.cursor.clone(), range.cursor);
            let span = Span {
                version: range.version,
                saved,
                read,
                opened: None,
                untold: None,
                pages: 0,
                dead: 0,
            };
            (range.key_hash, span)
        };
        let spans = ranges.map(|ranges| ranges.into_iter().map(span).collect());
        Ranges { spans, ..Ranges::default() }
    }

    /// Their keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyHash> + '_ {
        self.spans.iter().flat_map(|spans| spans.keys().copied())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.spans.as_ref().map_or(0, BTreeMap::len)
    }

    /// Whether one stands for what comes of a key.
    pub(crate) fn has(&self, key: KeyHash) -> bool {
        self.spans.as_ref().is_some_and(|spans| spans.contains_key(&key))
    }

    /// Bytes of events that are kept.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    fn keep(&mut self, ordinal: Ordinal, row: &FetchedRow) {
        self.kept_bytes += row.bytes;
        self.kept.push_back((ordinal, row.clone()));
    }

    /// Forgets what the saved cursor has passed. Not while a page is being read: it ends where that cursor stood.
    fn forget_before(&mut self, unsaved: Ordinal) {
        if self.reading.is_some() {
            return;
        }
        while let Some((_, row)) = self.kept.pop_front_if(|(ordinal, _)| *ordinal < unsaved) {
            self.kept_bytes -= row.bytes;
        }
    }

    /// Takes out what is kept of a key, in order.
    fn take_kept(&mut self, key: KeyHash) -> Vec<FetchedRow> {
        let kept = std::mem::take(&mut self.kept);
        let (of_key, rest): (VecDeque<_>, VecDeque<_>) =
            kept.into_iter().partition(|(_, row)| row.key_hash == key);
        self.kept = rest;
        let rows: Vec<FetchedRow> = of_key.into_iter().map(|(_, row)| row).collect();
        self.kept_bytes -= rows.iter().map(|row| row.bytes).sum::<u64>();
        rows
    }
}

impl Flow {
    /// Passes a row whose key has a range, or gets one now, and says whether it did. `before` is the cursor that has passed
    /// everything before the row.
    pub(crate) fn pass_by_range(
        &mut self,
        ordinal: Ordinal,
        row: &FetchedRow,
        before: &Cursor,
        outlet: &Outlet,
        settings: &Settings,
    ) -> bool {
        if !self.ranges.has(row.key_hash)
            && !self.open_range(ordinal, row, before, outlet, settings)
        {
            return false;
        }
        reach!(RangePassed);
        if !planted!(RangeForgetsWindow) {
            self.ranges.keep(ordinal, row);
        }
        self.window.settle(ordinal, Passed::Waiting);
        true
    }

    /// Lets a range stand for what follows of a key, if so much of it waits. Not where rows are found again that wait already:
    /// they would lie behind the range's cursor. Nor where rows are suspected: they have their own way into `waiting`.
    fn open_range(
        &mut self,
        ordinal: Ordinal,
        row: &FetchedRow,
        before: &Cursor,
        outlet: &Outlet,
        settings: &Settings,
    ) -> bool {
        let key = row.key_hash;
        let waits = u64::from(self.waiting_of(key));
        if waits < u64::from(settings.range_after) || !self.ahead.is_empty() || self.careful > 0 {
            return false;
        }
        let Some(spans) = self.ranges.spans.as_mut().filter(|spans| spans.len() < RANGES_MAX)
        else {
            return false;
        };
        let name = match &row.event {
            Ok(event) | Err(Malformed { event: Some(event), .. }) => event.key(),
            // Nobody could look for it by its name.
            Err(_) => return false,
        };
        reach!(RangeOpened);
        let (saved, read) = (before.clone(), before.clone());
        let version = outlet.version;
        let range = Range { key_hash: key, key: name.into(), cursor: before.clone(), version };
        let untold = Some(range);
        let opened = Some(ordinal);
        spans.insert(key, Span { version, saved, read, opened, untold, pages: 0, dead: 0 });
        self.wait_for_range(key);
        let subject = self.subject(row.row, row.event.as_ref().ok().cloned());
        self.notices.push(Notice::RangeOpened { subject, waiting: waits });
        true
    }

    /// Of which ranges the store is told in the write that moves its cursor: those that begin before it. Told earlier, one
    /// would begin where no later reading passes, for what is read again has other pages.
    pub(crate) fn ranges_to_tell(&mut self) -> Vec<RangeChange> {
        let open_from = self.window.open_from();
        let spans = self.ranges.spans.iter_mut().flat_map(BTreeMap::values_mut);
        let passed = spans.filter(|span| span.opened.is_some_and(|opened| opened < open_from));
        passed.filter_map(|span| span.untold.take().map(RangeChange::Open)).collect()
    }

    /// A settlement is written: ranges that ended with it hold their keys no more, and what the cursor has passed is not
    /// kept any longer.
    pub(crate) fn ranges_settled(&mut self, changes: &[RangeChange]) {
        for change in changes {
            if let RangeChange::Close { key_hash, .. } = change {
                self.unwait(*key_hash);
            }
        }
        self.ranges.forget_before(self.window.unsaved_from());
    }

    /// The key of a range that is to be read on: few of its rows are left. One after the other, a page of each, so that a
    /// long one keeps no other waiting. `has_room`: whether more of the destination may wait. What is copied and does not wait
    /// for its turn, since no route takes it any more, is not held back by what is left of the key; so there it is asked for.
    pub(crate) fn range_to_read(&self, settings: &Settings, has_room: bool) -> Option<KeyHash> {
        let few = u64::from(settings.range_after / 4);
        // The range itself holds the key too.
        let left = |key: KeyHash| u64::from(self.waiting_of(key)).saturating_sub(1);
        let spans = self.ranges.spans.iter().flatten();
        let wanted = spans.filter(|(key, span)| {
            left(**key) <= few && (has_room || span.dead < settings.range_after)
        });
        let (mut keys, last) = (wanted.map(|(key, _)| *key).peekable(), self.ranges.last);
        let first = keys.peek().copied();
        keys.find(|key| Some(*key) > last).or(first)
    }

    /// From where to where a range is read on; nothing if all that it stands for is kept, for it began behind the saved
    /// cursor. Then it ends.
    pub(crate) fn begin_range_page(
        &mut self,
        key: KeyHash,
        page: u64,
        outlet: &Outlet,
        now: Tick,
    ) -> Option<(Cursor, Cursor)> {
        let span = self.ranges.spans.as_ref()?.get(&key)?;
        if span.opened.is_some_and(|opened| opened >= self.window.unsaved_from()) {
            reach!(RangeClosedUnread);
            self.close_range(key, outlet, now);
            return None;
        }
        let way = (span.read.clone(), self.window.saved_at().clone());
        reach!(RangeRead);
        self.ranges.reading = Some((key, page));
        self.ranges.last = Some(key);
        Some(way)
    }

    /// No page is being read any more, and what was kept for its sake may go.
    pub(crate) fn end_range_page(&mut self) {
        self.ranges.reading = None;
        self.ranges.forget_before(self.window.unsaved_from());
    }

    /// Copies what a page has of a key, and moves its range behind the page, or ends it.
    pub(crate) fn take_range_page(
        &mut self,
        key: KeyHash,
        rows: &[FetchedRow],
        (end, more): (Cursor, bool),
        outlet: &Outlet,
        now: Tick,
    ) {
        let Some(version) = self.span(key).map(|span| span.version) else { return };
        let mut copied = 0;
        for row in rows.iter().filter(|row| row.key_hash == key) {
            copied += usize::from(self.copy(row, version, outlet, now));
        }
        reach!(RangeCopied, if copied > 0);
        if !more {
            return self.close_range(key, outlet, now);
        }
        let Some(span) = self.span(key) else { return };
        span.read = end.clone();
        span.pages += 1;
        if (copied == 0 && span.pages < PAGES_UNSAVED_MAX) || span.saved == end {
            return;
        }
        span.pages = 0;
        let from = std::mem::replace(&mut span.saved, end.clone());
        self.part.ranges.push(RangeChange::Move { key_hash: key, from, to: end });
    }

    /// All that a range stood for is copied, but for what was kept: that is now.
    fn close_range(&mut self, key: KeyHash, outlet: &Outlet, now: Tick) {
        let Some(span) = self.ranges.spans.as_mut().and_then(|spans| spans.remove(&key)) else {
            return;
        };
        reach!(RangeClosed);
        for row in self.ranges.take_kept(key) {
            self.copy(&row, span.version, outlet, now);
        }
        match span.untold {
            None => {
                self.part.ranges.push(RangeChange::Close { key_hash: key, from: span.saved });
            }
            // The store never heard of it.
            Some(_) => self.unwait(key),
        }
        // The key may have nothing left that waits, and then nothing tells of it.
        self.look_for_due(now);
    }

    /// Lets a row of a range wait behind its key, as it would have when it was passed. Says whether it is to wait at all:
    /// one that no route takes was passed as none of this destination's, unless the definition has changed since.
    fn copy(&mut self, row: &FetchedRow, version: u64, outlet: &Outlet, now: Tick) -> bool {
        let dead = |reason, detail: String, holds_key| Placement::Dead {
            attempted: attempted(0, reason, detail),
            holds_key,
        };
        let behind = Placement::Behind(Reason::Behind);
        let (event, placement) = match &row.event {
            Err(Malformed { event: None, reason, detail }) => {
                (None, dead(*reason, detail.clone(), true))
            }
            Ok(event) | Err(Malformed { event: Some(event), .. }) => {
                let route = outlet.route_of(event);
                let goes = route.is_some_and(|at| !outlet.definition.routes[at].drop);
                let placement = match &row.event {
                    _ if !goes && version == outlet.version => return false,
                    _ if !goes => {
                        let detail = "no route of the destination takes it any more";
                        dead(Reason::NoRoute, detail.to_owned(), false)
                    }
                    Err(malformed) if event.payload != Payload::Erased => {
                        dead(malformed.reason, malformed.detail.clone(), false)
                    }
                    _ => behind,
                };
                (Some(Arc::<Event>::clone(event)), placement)
            }
        };
        if matches!(placement, Placement::Dead { holds_key: false, .. })
            && let Some(span) = self.span(row.key_hash)
        {
            span.dead = span.dead.saturating_add(1);
        }
        self.note_if_dead(row.row, event.as_ref(), &placement);
        self.enter(row.row, row.key_hash, event, placement, now);
        true
    }

    fn span(&mut self, key: KeyHash) -> Option<&mut Span> {
        self.ranges.spans.as_mut()?.get_mut(&key)
    }
}
