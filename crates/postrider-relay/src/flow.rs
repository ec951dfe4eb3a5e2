//! Flows: one (partition, destination), from its cursor to its lanes.
//!
//! A flow owns its pair's window, lanes, waiting keys, and what the next settlement writes. It decides
//! where each fetched row goes, and keeps INV-3 there: what follows an event that waits goes behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::source::Loaded;
use postrider_core::waiting::{Passed, Placement, Reason, RowRef, SettlementPart, WaitingChange};
use postrider_core::{DestinationId, Event, KeyHash, PartitionId, Tick, planted, reach};

use crate::attempt::attempted;
use crate::entering::Entering;
use crate::gauge::Passage;
use crate::hot::Hot;
use crate::lane::{Entry, KeyMap, Lane, Origin};
use crate::notice::Notice;
use crate::range::Ranges;
use crate::skip::Skipping;
use crate::subject::Subject;
use crate::trial::Trial;
use crate::window::Window;

/// One (partition, destination) that has been loaded.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) partition: PartitionId,
    pub(crate) window: Window,
    pub(crate) lanes: KeyMap<Lane>,
    /// How many waiting events hold each key, those to be written with the next settlement included.
    pub(crate) waiting: KeyMap<u32>,
    /// Events that wait though the cursor has not passed them: found again by the fetch.
    pub(crate) ahead: BTreeSet<u64>,
    /// Keys with events out of `waiting` whose outcome is not saved yet, with how many.
    pub(crate) engaged: BTreeMap<KeyHash, u32>,
    /// Bytes of events out of `waiting` that stand in lanes.
    pub(crate) taken_bytes: u64,
    /// Bytes of events that enter `waiting`, until that is written.
    pub(crate) entering_bytes: u64,
    /// Events on their way into `waiting`, not saved yet.
    pub(crate) entering: Entering,
    /// Keys of which nothing more is copied into `waiting`.
    pub(crate) ranges: Ranges,
    /// Keys whose followers wait until a dead letter is recorded.
    pub(crate) skipping: Skipping,
    /// So many rows yet are sent one at a time: the relay died here more than once.
    pub(crate) careful: u32,
    /// And so many that come out of `waiting`.
    pub(crate) wary: u32,
    /// The suspect whose turn it is.
    pub(crate) trial: Option<Trial>,
    /// When each waiting event was last tried by this process.
    pub(crate) tried: BTreeMap<u64, Tick>,
    /// Events that this process left to a disabled endpoint. One that comes back was let out.
    pub(crate) stranded: BTreeSet<u64>,
    /// What the next settlement writes besides the cursor.
    pub(crate) part: SettlementPart,
    /// The key of each change in `part`, and whether the event held it.
    pub(crate) changed: Vec<(KeyHash, bool)>,
    /// Since when something is unsaved.
    pub(crate) unsaved_since: Option<Tick>,
    /// Its cursor was saved under this lease.
    pub(crate) was_saved: bool,
    /// When a full window last gave up a place, because all of it had been tried in vain.
    pub(crate) gave_way: Tick,
    /// A page is being read.
    pub(crate) fetching: bool,
    /// Which of this relay's pages was the last; who has the same has read it together.
    pub(crate) page: u64,
    /// Keys with long lanes, for which the reading may wait.
    pub(crate) hot: Hot,
    /// When to read next.
    pub(crate) poll_at: Tick,
    pub(crate) pace: crate::pace::Pace,
    /// The store said that there may be more while a page was being read.
    pub(crate) woken: bool,
    /// When to ask for waiting events next.
    pub(crate) due_at: Tick,
    /// They are being asked for.
    pub(crate) asking: bool,
    /// The last answer was full of keys that have a lane: the next is to be about the others.
    pub(crate) crowded: bool,
    /// The last answer said that nothing is due.
    pub(crate) nothing_due: bool,
    /// A drain has read everything up to its target.
    pub(crate) reached: bool,
    /// Events up to this number were sent before the destination was rewound.
    pub(crate) replay_through: u64,
    /// Entries of lanes that stand in the window: as many as it has open slots.
    pub(crate) open: usize,
    /// Events of the window that were acknowledged, less those whose saving began.
    pub(crate) acked: u64,
    /// When the last was, or when it was loaded.
    pub(crate) moved_at: Tick,
    /// Of the built-in destination.
    pub(crate) unrouted: bool,
    /// Events that came to wait, and that left.
    pub(crate) passage: Passage,
    /// What is to be said of it.
    pub(crate) notices: Vec<Notice>,
}

impl Flow {
    pub(crate) fn new(
        partition: PartitionId,
        destination: DestinationId,
        loaded: Loaded,
        now: Tick,
    ) -> Flow {
        let mut waiting: KeyMap<u32> = loaded.waiting_keys.into_iter().collect();
        let passage = Passage::found(waiting.values().copied());
        let ranges = Ranges::found(loaded.ranges);
        // A range holds its key, whether anything of it waits or not.
        ranges.keys().for_each(|key| *waiting.entry(key).or_default() += 1);
        if planted!(FetchBeforeWaitingKeys) {
            waiting.clear();
        }
        reach!(FlowLoadedWithWaiting, if !waiting.is_empty());
        reach!(FlowLoadedWithAhead, if !loaded.waiting_ahead.is_empty());
        reach!(FlowReplays, if loaded.replay_through > 0);
        Flow {
            partition,
            window: Window::new(loaded.cursor),
            lanes: KeyMap::default(),
            waiting,
            ahead: loaded.waiting_ahead.into_iter().collect(),
            engaged: BTreeMap::new(),
            taken_bytes: 0,
            entering_bytes: 0,
            entering: Entering::default(),
            ranges,
            skipping: Skipping::default(),
            careful: 0,
            wary: 0,
            trial: None,
            tried: BTreeMap::new(),
            stranded: BTreeSet::new(),
            part: SettlementPart::new(destination),
            changed: Vec::new(),
            unsaved_since: None,
            was_saved: false,
            gave_way: Tick::default(),
            fetching: false,
            page: 0,
            hot: Hot::default(),
            poll_at: now,
            pace: crate::pace::Pace::default(),
            woken: false,
            due_at: now,
            asking: false,
            crowded: false,
            nothing_due: false,
            reached: false,
            replay_through: loaded.replay_through,
            open: 0,
            acked: 0,
            moved_at: now,
            unrouted: false,
            passage,
            notices: Vec::new(),
        }
    }

    /// Moves everything of a lane into `waiting`: the head as its placement says, the rest behind it.
    /// Entries that came from there are dropped: the store still has them, in order.
    pub(crate) fn spill(&mut self, key: KeyHash, head: Option<Placement>, now: Tick) {
        let Some(mut lane) = self.lanes.remove(&key) else {
            return;
        };
        let mut placement = head;
        reach!(LaneSpilled);
        for (index, entry) in lane.drain().enumerate() {
            self.let_go(&entry);
            match entry.origin {
                Origin::Stream(ordinal) if index > 0 && planted!(SpillForgetsRest) => {
                    self.window.settle(ordinal, Passed::Waiting);
                }
                Origin::Stream(ordinal) => {
                    reach!(LaneSpilledRest, if index > 0);
                    let placement = placement.take().unwrap_or(Placement::Behind(Reason::Behind));
                    // One that was never tried has no attempt before the next.
                    if let (Some(tried), Placement::Retry { .. }) = (entry.tried, &placement) {
                        self.remember(entry.row.seq, tried);
                    }
                    self.enter_waiting(ordinal, entry.row, key, Some(entry.event), placement, now);
                }
                // The head's own change is on its way; nothing is recorded of the others.
                Origin::Waiting { .. } if index > 0 => self.disengage(key),
                Origin::Waiting { .. } => {}
            }
        }
    }

    /// An entry leaves its lane for good.
    pub(crate) fn let_go(&mut self, entry: &Entry) {
        match entry.origin {
            Origin::Stream(_) => self.open = self.open.saturating_sub(1),
            Origin::Waiting { .. } => {
                self.taken_bytes = self.taken_bytes.saturating_sub(entry.bytes);
            }
        }
    }

    /// Which event a notice is about.
    pub(crate) fn subject(&self, row: RowRef, event: Option<Arc<Event>>) -> Subject {
        let (partition, destination) = (self.partition, self.part.destination.clone());
        Subject { row, partition, destination, topic: None, route: None, event }
    }

    /// Lets the head of a lane wait in the store for a while, uncounted, if it came from there; what
    /// is behind it goes with it. Says whether it did.
    pub(crate) fn postpone(&mut self, key: KeyHash, delay: Duration, now: Tick) -> bool {
        let lane = self.lanes.get(&key).filter(|lane| lane.in_flight == 0);
        let head = lane.and_then(Lane::head).map(|head| (head.row, head.origin));
        let Some((row, Origin::Waiting { late, attempts, suspect, .. })) = head else {
            return false;
        };
        let change = if suspect {
            // The attempt was saved before it was made, and does not count after all.
            let attempted = attempted(attempts, Reason::Suspect, "its endpoint was away");
            WaitingChange::Retry { row, delay, attempted }
        } else {
            WaitingChange::Postpone { row, delay }
        };
        self.change(key, !late, change, now);
        self.spill(key, None, now);
        true
    }

    /// The keys of lanes whose head is to go to an endpoint and is not under way. Sorted, so that the
    /// order of a map never shows.
    pub(crate) fn ready_for(&self, endpoint: u32) -> Vec<KeyHash> {
        let ready = |lane: &Lane| {
            lane.in_flight == 0 && lane.head().is_some_and(|head| head.endpoint == endpoint)
        };
        let lanes = self.lanes.iter().filter(|(_, lane)| ready(lane));
        let mut keys: Vec<KeyHash> = lanes.map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }

    /// One event out of `waiting` is no longer under way.
    pub(crate) fn disengage(&mut self, key: KeyHash) {
        if let Some(count) = self.engaged.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.engaged.remove(&key);
            }
        }
    }

    /// Records what a waiting event's attempt came to. `held` says whether it held its key.
    pub(crate) fn change(&mut self, key: KeyHash, held: bool, change: WaitingChange, now: Tick) {
        let seq = change.row().seq;
        if self.trial.as_ref().is_some_and(|trial| trial.is_over(seq)) {
            reach!(TrialOver);
            self.trial = None;
        }
        match &change {
            WaitingChange::Delivered(_)
            | WaitingChange::Erased(_)
            | WaitingChange::Disabled { .. }
            | WaitingChange::Dead { .. } => _ = self.tried.remove(&seq),
            WaitingChange::Retry { delay, .. } | WaitingChange::Postpone { delay, .. } => {
                self.due_at = self.due_at.min(now + *delay);
            }
        }
        self.part.changes.push(change);
        self.changed.push((key, held));
    }

    /// An event was tried at a time. What is only put off was not.
    pub(crate) fn remember(&mut self, seq: u64, tried: Tick) {
        /// Beyond, the lowest are forgotten, and a forgotten attempt counts one time less.
        const TRIED_MAX: usize = 16_384;
        self.tried.insert(seq, tried);
        if self.tried.len() > TRIED_MAX {
            self.tried.pop_first();
        }
    }

    /// Forgets what a settlement has written.
    pub(crate) fn settled(
        &mut self,
        written: &SettlementPart,
        changed: &[(KeyHash, bool)],
        now: Tick,
    ) {
        if let Some((_, to)) = &written.cursor {
            self.window.saved(to.clone());
            self.was_saved = true;
        }
        debug_assert!(self.taken_bytes == 0 || !self.lanes.is_empty(), "all that was taken left");
        let mut promotes = false;
        for (change, (key, held)) in written.changes.iter().zip(changed) {
            let leaves = matches!(
                change,
                WaitingChange::Delivered(_)
                    | WaitingChange::Erased(_)
                    | WaitingChange::Dead { holds_key: false, .. }
            );
            promotes |= leaves;
            self.passage.left += u64::from(!matches!(change, WaitingChange::Dead { .. }) && leaves);
            reach!(KeyFreed, if leaves && *held);
            if leaves && *held {
                self.unwait(*key);
            }
            self.disengage(*key);
            if let Some(trial) = &mut self.trial {
                trial.saved(change);
            }
        }
        for new in &written.waiting {
            let bytes = new.event.as_deref().map_or(0, Event::size_bytes);
            self.entering_bytes = self.entering_bytes.saturating_sub(bytes);
            self.entering.entered(new.key_hash, new.row.seq);
            self.skipping.entered(new.key_hash, &new.placement);
        }
        self.ranges_settled(&written.ranges);
        // Whatever left or entered may have made a head due.
        let at_once = written.waiting.iter().any(|new| match new.placement {
            Placement::Behind(_) => true,
            Placement::Retry { delay, .. } => delay.is_zero(),
            Placement::Disabled { .. } | Placement::Dead { .. } => false,
        });
        if promotes || at_once {
            self.look_for_due(now);
        }
    }

    /// Whether something is under way, or has an outcome that is not saved.
    pub(crate) fn has_outcomes(&self) -> bool {
        let unsent = self.trial.as_ref().is_some_and(Trial::is_unsent);
        unsent || !self.part.is_empty() || self.window.is_dirty()
    }

    /// Bytes of its events in memory: open in the window, kept for a range, out of `waiting`, or about to enter it.
    pub(crate) fn open_bytes(&self) -> u64 {
        let kept = self.ranges.kept_bytes();
        self.window.open_bytes() + kept + self.taken_bytes + self.entering_bytes
    }
}
