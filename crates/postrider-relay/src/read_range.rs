//! Read range: ask for what ranges stand for, a page at a time for the whole relay.
//!
//! Keeps INV-6: a page that is read for one key has rows of all others, which are thrown away; there is one of them.

use postrider_core::source::{FetchRequest, Page};
use postrider_core::{DestinationId, ErrorKind, PartitionId, Result, Tick};

use crate::command::Command;
use crate::fetch::is_void;
use crate::flow::Flow;
use crate::machine::{Asked, Machine};
use crate::trouble::Work;

impl Machine {
    /// Reads on for the range that has waited longest, if one is to be read.
    pub(crate) fn read_ranges(&mut self) {
        while let Some((partition, destination)) = self.range_wanted() {
            let (now, settings) = (self.now, self.settings);
            let has_room = self.may_read(&destination);
            let page = self.stats.fetches + 1;
            let Some(outlet) = self.outlets.get(&destination) else { return };
            let Some(owned) = self.owned.get_mut(&partition) else { return };
            let lease = owned.lease.clone();
            let Some(flow) = owned.flow(&destination) else { return };
            let Some(key) = flow.range_to_read(&settings, has_room) else { return };
            flow.ranges.read_at = now;
            let Some((after, until)) = flow.begin_range_page(key, page, outlet, now) else {
                // It has ended.
                continue;
            };
            let token = lease.token;
            let request = FetchRequest {
                lease,
                destinations: vec![destination.clone()],
                after,
                until: Some(until),
                rows_max: settings.window.page_rows_max,
                bytes_max: settings.window.page_bytes_max,
            };
            self.stats.fetches = page;
            self.reading_range = true;
            let asked = Asked::ReadRange { partition, token, destination, page };
            self.command(asked, Command::Fetch(request));
        }
    }

    /// Where a range is to be read now, if one may be.
    fn range_wanted(&self) -> Option<(PartitionId, DestinationId)> {
        if self.reading_range || self.mode.is_draining() {
            return None;
        }
        let flows = self.owned.iter().filter(|(_, owned)| !owned.leaving).flat_map(|(p, owned)| {
            owned.ready().map(move |(destination, flow)| (*p, destination, flow))
        });
        let wanted = flows.filter(|(_, destination, flow)| {
            flow.ranges.len() > 0
                && flow.ranges.read_at <= self.now
                && self.is_open(destination)
                && self.reads_range(destination, flow)
        });
        let longest = wanted.min_by_key(|(.., flow)| flow.ranges.read_at);
        longest.map(|(partition, destination, _)| (partition, destination.clone()))
    }

    /// Whether a range of a flow is to be read on.
    pub(crate) fn reads_range(&self, destination: &DestinationId, flow: &Flow) -> bool {
        flow.range_to_read(&self.settings, self.may_read(destination)).is_some()
    }

    /// When a range may be read again whose page was refused.
    pub(crate) fn range_wake_at(&self, destination: &DestinationId, flow: &Flow) -> Option<Tick> {
        let wanted = flow.ranges.len() > 0 && flow.ranges.reading.is_none();
        (wanted && self.reads_range(destination, flow)).then_some(flow.ranges.read_at)
    }

    pub(crate) fn range_read(
        &mut self,
        (partition, token): (PartitionId, u64),
        destination: &DestinationId,
        page: u64,
        result: Result<Page>,
    ) {
        let (now, stops) = (self.now, self.mode.is_draining());
        self.reading_range = false;
        // Not at once: where no page of one comes in time, those of other flows shall have their turn.
        let again = self.again_within(self.settings.heartbeat);
        let Some(outlet) = self.outlets.get(destination) else { return };
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        if owned.lease.token != token {
            return;
        }
        let stops = stops || owned.leaving;
        let asked = owned.flow(destination).and_then(|flow| flow.ranges.reading);
        let Some((key, _)) = asked.filter(|(_, asked)| *asked == page) else { return };
        let result = match result {
            Err(error) if is_void(&error) => return self.refused(partition, token, error),
            result => result,
        };
        let gone = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let read = owned.trouble.note(Work::ReadRange, Some(destination), result);
        let Some(flow) = owned.flow(destination) else { return };
        match read {
            // What is not saved is read again.
            Some(_) if stops => {}
            Some(page) => {
                // However little of the key is on it: a one-shot run that reads on does not stand still.
                self.stats.progressed_at = now;
                flow.take_range_page(key, &page.rows, (page.end, page.more), outlet, now);
            }
            None => flow.ranges.read_at = again,
        }
        flow.end_range_page();
        if flow.unsaved_since.is_none() && flow.has_outcomes() {
            flow.unsaved_since = Some(now);
        }
        if gone {
            // It was removed, or has another name now.
            self.define_again();
        }
    }
}
