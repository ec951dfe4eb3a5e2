//! Room: how much a flow may read.
//!
//! Keeps INV-6: a flow reads no further than its window and the relay's budget allow, but every flow is
//! sure of one page. And INV-5: a destination that takes nothing leaves room to the others.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::{Cursor, DestinationId, Tick};

use crate::flow::Flow;
use crate::machine::Machine;
use crate::owned::Owned;

/// How much of what is left a destination leaves that takes nothing, for each byte that it holds. However many of
/// them there are, three quarters of what each of them found are there for the next, and for those who are well.
const STILL_LEAVES: u64 = 3;

/// How long the built-in destination follows another one of which nothing is acknowledged. Events without
/// a route are found so much later while a broker is away.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Bytes by both bounds of a relay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bytes {
    /// Read and not saved: what a crash may deliver again.
    pub(crate) unsaved: u64,
    /// In memory.
    pub(crate) memory: u64,
}

impl Bytes {
    fn less(self, other: Bytes) -> Bytes {
        Bytes {
            unsaved: self.unsaved.saturating_sub(other.unsaved),
            memory: self.memory.saturating_sub(other.memory),
        }
    }

    fn max(self, other: Bytes) -> Bytes {
        Bytes { unsaved: self.unsaved.max(other.unsaved), memory: self.memory.max(other.memory) }
    }
}

/// Bytes that may still be read.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// By all flows together.
    pub(crate) left: Bytes,
    /// The same, if those that acknowledge something held nothing.
    rest: Bytes,
    /// By each, if all of them read at once.
    pub(crate) share: u64,
    /// What each destination holds, if there is more than one.
    held: BTreeMap<DestinationId, Held>,
}

/// What a destination holds: what no save would free.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: Bytes,
    /// In so many partitions.
    flows: u64,
    /// Some of its events have no outcome.
    is_open: bool,
    /// And none has got one for as long as a publication may take.
    is_still: bool,
    /// Bytes of the pages that are being read for it: the least of each, and all that was asked for in this step.
    asked: u64,
}

impl Held {
    fn add(&mut self, flow: &Flow, page: u64) {
        let window = &flow.window;
        self.bytes.unsaved += flow.taken_bytes + window.bytes() - window.savable_bytes();
        self.bytes.memory += flow.open_bytes();
        self.flows += 1;
        self.is_open |= window.open_bytes() > 0;
        self.asked += if flow.fetching { page } else { 0 };
    }

    /// What it may still read, of what is left: no more than it leaves free. One that takes nothing leaves more; and what it
    /// reads stays, so for it what is `asked` for counts as well.
    fn of(self, left: Bytes, asked: u64) -> Bytes {
        if !self.is_still {
            return left.less(self.bytes);
        }
        let of = |left: u64, held: u64| {
            left.saturating_sub(STILL_LEAVES * (held + asked)) / (STILL_LEAVES + 1)
        };
        Bytes {
            unsaved: of(left.unsaved, self.bytes.unsaved),
            memory: of(left.memory, self.bytes.memory),
        }
    }
}

impl Budget {
    /// Bytes that a destination may still read: one of several holds no more than what it leaves free, and less
    /// than that if it takes nothing. However many are dead, whoever is well then finds as much room as each of them
    /// has.
    fn of(&self, destination: &DestinationId) -> Bytes {
        self.held.get(destination).map_or(self.left, |held| held.of(self.left, held.asked))
    }

    /// The same when nothing is being read, and for one that takes nothing, when the others are at rest: that they are
    /// busy for a moment is no reason to copy what it holds to the store.
    fn at_rest(&self, destination: &DestinationId) -> Bytes {
        self.held
            .get(destination)
            .map_or(self.left, |held| held.of(if held.is_still { self.rest } else { self.left }, 0))
    }

    /// Counts a page that was asked for.
    pub(crate) fn asked(&mut self, destinations: &[DestinationId], bytes: u64) {
        for destination in destinations {
            if let Some(held) = self.held.get_mut(destination) {
                held.asked += bytes;
            }
        }
    }

    /// Whether several destinations share the room.
    pub(crate) fn is_shared(&self) -> bool {
        !self.held.is_empty()
    }
}

/// What destinations at one cursor share.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    /// Of the longest window.
    bytes: u64,
    /// Without an outcome, in all of them.
    open: u64,
}

impl Shared {
    fn add(&mut self, bytes: u64, open: u64) {
        (self.bytes, self.open) = (self.bytes.max(bytes), self.open + open);
    }
}

impl Machine {
    /// Bytes that the relay may still read, over all windows and all that came out of `waiting`. What
    /// destinations that read together share is in memory once.
    pub(crate) fn budget(&self) -> Budget {
        let limits = &self.settings.window;
        let (mut all, mut flows) = (Bytes::default(), 0);
        let served = self.outlets.values().filter(|outlet| !outlet.definition.is_unrouted());
        let mut held = BTreeMap::new();
        if served.clone().nth(1).is_some() {
            held = served.map(|outlet| (outlet.definition.id.clone(), Held::default())).collect();
        }
        for owned in self.owned.values() {
            let mut together: Vec<(&Cursor, u64)> = Vec::new();
            let mut copies: Vec<(&Cursor, u64, Shared)> = Vec::new();
            for (destination, flow) in owned.ready() {
                flows += 1;
                let (read, bytes) = (flow.window.read(), flow.window.bytes());
                let open = flow.window.open_bytes();
                all.unsaved += flow.taken_bytes;
                all.memory += flow.open_bytes() - open + flow.window.slot_bytes();
                if let Some(own) = held.get_mut(destination) {
                    own.add(flow, limits.page_bytes_max / 8);
                }
                match together.iter_mut().find(|(at, _)| *at == read) {
                    Some((_, most)) => *most = bytes.max(*most),
                    None => together.push((read, bytes)),
                }
                // Who came to the same cursor by another page has copies of its own.
                match copies.iter_mut().find(|(at, page, _)| *at == read && *page == flow.page) {
                    Some((_, _, shared)) => shared.add(bytes, open),
                    None => copies.push((read, flow.page, Shared { bytes, open })),
                }
            }
            all.unsaved += together.iter().map(|(_, bytes)| bytes).sum::<u64>();
            // Each destination is done with others of them, but none is there twice.
            all.memory += copies.iter().map(|(.., one)| one.open.min(one.bytes)).sum::<u64>();
        }
        let most = Bytes { unsaved: limits.total_bytes_max, memory: limits.memory_bytes_max };
        let (left, mut rest) = (most.less(all), most);
        for (destination, own) in &mut held {
            own.is_still = own.is_open && self.is_still(destination);
            rest = if own.is_still { rest.less(own.bytes) } else { rest };
        }
        let share = left.unsaved.min(left.memory) / flows.max(1);
        // What several of them have read together is there once, whoever counts it.
        Budget { left, rest: rest.max(left), share, held }
    }

    /// Whether a destination has acknowledged nothing for as long as a publication may take.
    fn is_still(&self, destination: &DestinationId) -> bool {
        let last = self.outlets.get(destination).and_then(|outlet| outlet.last_ack);
        last.is_none_or(|last| last + self.settings.publish_deadline <= self.now)
    }

    /// Until when a flow that could read leaves it to another one that stands at the same cursor and has no
    /// room yet. Waiting keeps both together: apart, each page is read for each of them, from then on.
    ///
    /// Who has events of its own waits for a settlement and no longer: what a broker holds up is not waited
    /// for. The built-in destination, which sends nothing, follows whoever moves.
    pub(crate) fn waits_until(&self, owned: &Owned, flow: &Flow, budget: &Budget) -> Option<Tick> {
        if let Some(until) = self.cools_until(owned, flow) {
            return Some(until);
        }
        let beside = owned.ready().filter(|(destination, other)| {
            !other.fetching
                && other.window.read() == flow.window.read()
                && self.may_read(destination)
        });
        if flow.unrouted {
            // Only one with which it has read so far: where it merely meets somebody who is behind the others, it
            // would fall behind them too, and judge what they have passed by later routes.
            let served = beside.filter(|(_, other)| !other.unrouted && other.page == flow.page);
            let mut moving = None;
            for (_, other) in served {
                let until = other.moved_at + SILENCE_MAX;
                if self.room(other, budget).is_none() {
                    moving = moving.max((until > self.now).then_some(until));
                } else if self.waits_until(owned, other, budget).is_none() {
                    return None;
                }
            }
            return moving;
        }
        let mut holding = beside.filter(|(_, other)| {
            (owned.settling.is_some() || other.has_outcomes())
                && self.room_of(other, budget, budget.left).is_none()
                && other.open * 2 <= other.window.len()
        });
        holding.next().map(|_| Tick(u64::MAX))
    }

    /// Whether what a flow holds leaves no room for a page, whatever is being read.
    pub(crate) fn is_full(&self, flow: &Flow, budget: &Budget) -> bool {
        self.room_of(flow, budget, budget.at_rest(&flow.part.destination)).is_none()
    }

    /// Room of a flow for a page, in rows and bytes; none if it is too little to be worth a query.
    pub(crate) fn room(&self, flow: &Flow, budget: &Budget) -> Option<(u32, u64)> {
        let destination = &flow.part.destination;
        let (rows, bytes) = self.room_of(flow, budget, budget.of(destination))?;
        let first = match budget.held.get(destination) {
            // Nobody knows yet whether it takes anything, and all partitions are sure of this page.
            Some(held) if flow.page == 0 && self.is_still(destination) => {
                self.settings.window.memory_bytes_max / ((STILL_LEAVES + 1) * held.flows.max(1))
            }
            _ => u64::MAX,
        };
        Some((rows, bytes.min(first).max(1)))
    }

    /// The same, where so many bytes are left to it.
    pub(crate) fn room_of(&self, flow: &Flow, budget: &Budget, left: Bytes) -> Option<(u32, u64)> {
        let limits = &self.settings.window;
        let used = u32::try_from(flow.window.len()).unwrap_or(u32::MAX);
        let rows = limits.rows_max.saturating_sub(used).min(limits.page_rows_max);
        if used > 0 && rows < limits.page_rows_max.min(limits.rows_max / 8).max(1) {
            return None;
        }
        let least = limits.page_bytes_max / 8;
        let bytes = limits.bytes_max.saturating_sub(flow.window.bytes()).min(left.unsaved);
        if used > 0 && bytes < least {
            return None;
        }
        // What is settled takes next to nothing, saved or not, but for what is kept until a range ends.
        if flow.window.open_bytes() + flow.ranges.kept_bytes() > 0 && left.memory < least {
            return None;
        }
        // Every flow is sure of one page, whatever the others hold. All may read at once.
        let bytes = bytes.min(left.memory).min(limits.page_bytes_max).min(budget.share);
        Some((rows, bytes.max(least).max(1)))
    }
}
