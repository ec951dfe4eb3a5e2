//! Lanes: the in-process queue of one (partition, destination, key), in the key's order.
//!
//! Keeps INV-3: what is under way of a lane is a prefix of its queue, and only the head, or a prefix
//! to one endpoint where the broker declares prefix order, is ever sent.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use postrider_core::waiting::RowRef;
use postrider_core::{Event, KeyHash, Tick};

use crate::window::Ordinal;

/// Where an entry came from, and so where its outcome is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A page of the outbox.
    Stream(Ordinal),
    /// The table `waiting`, with the attempts that counted so far.
    Waiting { attempts: u32, late: bool, suspect: bool, held: bool },
}

/// One event in a lane.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) event: Arc<Event>,
    pub(crate) row: RowRef,
    pub(crate) origin: Origin,
    /// Index of the endpoint in its outlet.
    pub(crate) endpoint: u32,
    /// Index of the route in the destination.
    pub(crate) route: u16,
    pub(crate) bytes: u64,
    /// When it was last tried by this process.
    pub(crate) tried: Option<Tick>,
}

/// The queue of one key. The first entry stands inline, because most keys have one.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    head: Option<Entry>,
    rest: VecDeque<Entry>,
    /// How many of the first entries are under way.
    pub(crate) in_flight: u32,
    /// Whether the lane stands in a ready queue or a timer.
    pub(crate) queued: bool,
}

impl Lane {
    pub(crate) fn push(&mut self, entry: Entry) {
        if self.head.is_none() && self.rest.is_empty() {
            self.head = Some(entry);
        } else {
            self.rest.push_back(entry);
        }
    }

    pub(crate) fn head(&self) -> Option<&Entry> {
        self.head.as_ref()
    }

    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.head.take();
        self.head = self.rest.pop_front();
        entry
    }

    /// Takes out what stands behind the first entries, of which there is at least one, in order.
    pub(crate) fn split_off(&mut self, first: usize) -> VecDeque<Entry> {
        self.rest.split_off(first.saturating_sub(1).min(self.rest.len()))
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.head.is_some()) + self.rest.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.head.iter().chain(&self.rest)
    }

    /// Takes every entry out, in order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Entry> {
        self.head.take().into_iter().chain(std::mem::take(&mut self.rest))
    }
}

/// A map by key hash. The hash is the hash: looking up costs no second one. Never iterated where the
/// order could show.
pub(crate) type KeyMap<V> = HashMap<KeyHash, V, BuildHasherDefault<KeyHasher>>;

/// Passes a key's hash through, with its bits mixed for the map's use of the high ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, bits: u64) {
        self.0 = (self.0 ^ bits).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

#[cfg(test)]
mod model;
