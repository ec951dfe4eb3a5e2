//! Owned partitions: a lease, the flows under it, and what is on its way to the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::waiting::{Settlement, SettlementPart};
use postrider_core::{Cursor, DestinationId, KeyHash, Lease, Tick};

use crate::flow::Flow;
use crate::paused::Probes;
use crate::trouble::Troubles;

/// A partition that this relay owns.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) lease: Lease,
    /// When the last successful acquisition or renewal was sent, by our clock.
    pub(crate) sent: Tick,
    pub(crate) flows: BTreeMap<DestinationId, FlowState>,
    pub(crate) settling: Option<Settling>,
    /// Begin nothing more in it: as soon as nothing of it is under way it is given away, or loaded
    /// anew.
    pub(crate) leaving: bool,
    /// Load it anew rather than giving it away.
    pub(crate) reload: bool,
    /// Requests are being carried out in it: nothing is loaded meanwhile.
    pub(crate) carrying: bool,
    /// An answer was lost that may have freed keys.
    pub(crate) miscounts: bool,
    /// How often in a row the partition was taken over from an owner that died.
    pub(crate) takeovers: u32,
    pub(crate) head: Head,
    /// When scheduled events are looked for next; `None` while they are.
    pub(crate) admit_at: Option<Tick>,
    /// When old events are looked for next.
    pub(crate) retire_at: Tick,
    /// Paused destinations, and whether they have a backlog.
    pub(crate) probes: Probes,
    /// What the store refuses.
    pub(crate) trouble: Troubles,
}

/// A flow, or the way to it.
#[derive(Debug)]
pub(crate) enum FlowState {
    Wanted(Tick),
    /// Since when.
    Loading(Tick),
    Ready(Box<Flow>),
}

/// The target of a drain of one partition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Head {
    /// What was scheduled and is due enters before it is read.
    Scheduled,
    Wanted(Tick),
    Asked,
    Known(Cursor),
}

/// A settlement on its way, kept until the store has answered for it.
#[derive(Debug)]
pub(crate) struct Settling {
    /// When to send it (again); `None` while it is under way.
    pub(crate) retry_at: Option<Tick>,
    pub(crate) attempts: u32,
    /// An attempt failed in a way that does not say whether it is written.
    pub(crate) in_doubt: bool,
    /// Requests were carried out in the partition since it was first sent: sent again, it could undo
    /// them.
    pub(crate) crossed: bool,
    /// Shared with the command: it may name thousands of rows.
    pub(crate) settlement: Arc<Settlement>,
    /// Of each part, the key of each change in it and whether the event held it.
    pub(crate) changed: Vec<Vec<(KeyHash, bool)>>,
}

impl Settling {
    /// One that is sent now.
    pub(crate) fn new(
        lease: Lease,
        parts: Vec<(SettlementPart, Vec<(KeyHash, bool)>)>,
    ) -> Settling {
        let (parts, changed) = parts.into_iter().unzip();
        let settlement = Arc::new(Settlement { lease, parts });
        Settling {
            retry_at: None,
            attempts: 0,
            in_doubt: false,
            crossed: false,
            settlement,
            changed,
        }
    }
}

impl Owned {
    pub(crate) fn new(lease: Lease, takeovers: u32, sent: Tick) -> Owned {
        Owned {
            lease,
            sent,
            flows: BTreeMap::new(),
            settling: None,
            leaving: false,
            reload: false,
            carrying: false,
            miscounts: false,
            takeovers,
            head: Head::Scheduled,
            admit_at: Some(sent),
            retire_at: sent,
            probes: Probes::default(),
            trouble: Troubles::default(),
        }
    }

    /// The flows that are loaded.
    pub(crate) fn ready(&self) -> impl Iterator<Item = (&DestinationId, &Flow)> {
        self.flows.iter().filter_map(|(id, state)| match state {
            FlowState::Ready(flow) => Some((id, &**flow)),
            _ => None,
        })
    }

    /// Until when the flows that are loaded wait for those that are being loaded.
    pub(crate) fn loading_until(&self) -> Option<Tick> {
        /// Longer than a load takes; one that takes longer holds nobody.
        const WAIT_MAX: std::time::Duration = std::time::Duration::from_millis(500);
        let since = self.flows.values().filter_map(|state| match state {
            FlowState::Loading(since) => Some(*since),
            _ => None,
        });
        since.min().map(|since| since + WAIT_MAX)
    }

    pub(crate) fn flow(&mut self, destination: &DestinationId) -> Option<&mut Flow> {
        match self.flows.get_mut(destination) {
            Some(FlowState::Ready(flow)) => Some(flow),
            _ => None,
        }
    }
}
