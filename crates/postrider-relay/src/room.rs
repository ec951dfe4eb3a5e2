//! Room: how much a flow may read.
//!
//! Keeps INV-6: a flow reads no further than its window and the relay's budget allow, but every flow is
//! sure of one page.

use postrider_core::Cursor;

use crate::flow::Flow;
use crate::machine::Machine;
use crate::owned::Owned;

/// Bytes that may still be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// By all flows together.
    pub(crate) left: u64,
    /// By each, if all of them read at once.
    pub(crate) share: u64,
}

impl Machine {
    /// Bytes that the relay may still read, over all windows and all that came out of `waiting`. What
    /// destinations that read together share is in memory once.
    pub(crate) fn budget(&self) -> Budget {
        let (mut held, mut flows) = (0, 0);
        for owned in self.owned.values() {
            let mut together: Option<(&Cursor, u64)> = None;
            for (_, flow) in owned.ready() {
                flows += 1;
                held += flow.taken_bytes;
                let (read, bytes) = (flow.window.read(), flow.window.bytes());
                match &mut together {
                    Some((first, shared)) if *first == read => *shared = bytes.max(*shared),
                    Some(_) => held += bytes,
                    None => together = Some((read, bytes)),
                }
            }
            held += together.map_or(0, |(_, shared)| shared);
        }
        let left = self.settings.window.total_bytes_max.saturating_sub(held);
        Budget { left, share: left / flows.max(1) }
    }

    /// Whether another flow stands at the same cursor and gets room as soon as a settlement is
    /// answered. Waiting so long keeps both together: apart, each page is read for each of them. What
    /// a broker holds up is not waited for.
    pub(crate) fn has_slower_companion(&self, owned: &Owned, flow: &Flow, budget: Budget) -> bool {
        owned.ready().any(|(destination, other)| {
            !other.fetching
                && (owned.settling.is_some() || other.has_outcomes())
                && other.window.read() == flow.window.read()
                && self.room(other, budget).is_none()
                && self.is_open(destination)
        })
    }

    /// Room of a flow for a page, in rows and bytes; none if it is too little to be worth a query.
    pub(crate) fn room(&self, flow: &Flow, budget: Budget) -> Option<(u32, u64)> {
        let limits = &self.settings.window;
        let used = u32::try_from(flow.window.len()).unwrap_or(u32::MAX);
        let rows = limits.rows_max.saturating_sub(used).min(limits.page_rows_max);
        if used > 0 && rows < limits.page_rows_max.min(limits.rows_max / 8).max(1) {
            return None;
        }
        let least = limits.page_bytes_max / 8;
        let bytes = limits.bytes_max.saturating_sub(flow.window.bytes()).min(budget.left);
        if used > 0 && bytes < least {
            return None;
        }
        // Every flow is sure of one page, whatever the others hold. All may read at once.
        let bytes = bytes.min(limits.page_bytes_max).min(budget.share).max(least).max(1);
        Some((rows, bytes))
    }
}
