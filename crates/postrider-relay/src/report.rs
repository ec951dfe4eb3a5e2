//! Report: what keeps this relay from delivering is told to the store, for whoever reads that alone.
//!
//! Keeps INV-8 where nobody sees this relay's log: a command line that has the store's address can say why a backlog
//! stands. Nothing here decides anything: a report that is lost is told again.

use postrider_core::hindrance::HINDRANCES_MAX;
use postrider_core::{DestinationId, Hindrance, Result, Tick, reach};

use crate::command::Command;
use crate::machine::{Asked, Machine};
use crate::trouble::causes;

/// What stands is told again after so many heartbeats: the relay's row in the store may be a new one.
const AGAIN_AFTER: u32 = 10;

/// What the store was told.
#[derive(Debug)]
pub(crate) struct Reporting {
    /// Nothing where that is not sure.
    told: Option<Vec<Hindrance>>,
    told_at: Tick,
    /// When to look next.
    look_at: Tick,
    asking: bool,
}

impl Default for Reporting {
    /// Of a relay that has only begun the store knows nothing, and nothing is right.
    fn default() -> Reporting {
        let (told_at, look_at) = (Tick::default(), Tick::default());
        Reporting { told: Some(Vec::new()), told_at, look_at, asking: false }
    }
}

impl Machine {
    /// Looks once in a heartbeat, and tells what has changed. While all is well this costs the store nothing.
    pub(crate) fn report(&mut self) {
        let now = self.now;
        if self.reporting.asking || now < self.reporting.look_at || self.mode.is_draining() {
            return;
        }
        self.reporting.look_at = now + self.settings.heartbeat;
        let found = self.hindrances();
        let again = !found.is_empty()
            && now >= self.reporting.told_at + self.settings.heartbeat * AGAIN_AFTER;
        if self.reporting.told.as_ref() == Some(&found) && !again {
            return;
        }
        reach!(HindranceTold, if !found.is_empty());
        reach!(HindranceOver, if found.is_empty());
        (self.reporting.asking, self.reporting.told_at) = (true, now);
        self.reporting.told = Some(found.clone());
        self.command(Asked::Report, Command::Report(self.owner.clone(), found));
    }

    /// One that was not kept is told again, whatever there is then. It is nobody's trouble: who cannot write this has
    /// other calls that say so.
    pub(crate) fn report_answered(&mut self, result: &Result<()>) {
        self.reporting.asking = false;
        if result.is_err() {
            reach!(HindranceNotTold);
            self.reporting.told = None;
        }
    }

    /// The store's own troubles, and endpoints that fail. What operators decided, the store knows.
    fn hindrances(&self) -> Vec<Hindrance> {
        let standing: Vec<DestinationId> = self.standing().cloned().collect();
        let troubles = self.owned.values().flat_map(|owned| owned.trouble.iter());
        let stores = causes(self.stats.trouble.iter().chain(troubles)).map(|(words, code)| {
            let code = code.map(|code| format!(" [{code}]"));
            Hindrance::new(None, &format!("{words}{}", code.unwrap_or_default()))
        });
        let endpoints = self.failing(&standing).map(|(destination, endpoint)| {
            let words = format!("endpoint {}: {}", endpoint.topic, endpoint.said);
            Hindrance::new(Some(destination.clone()), &words)
        });
        let parts = self.hindered().map(|(destination, endpoint, said)| {
            let words = format!("a part of endpoint {} takes nothing: {said}", endpoint.topic);
            Hindrance::new(Some(destination.clone()), &words)
        });
        let mut told = Vec::new();
        for hindrance in stores.chain(endpoints).chain(parts) {
            if !told.contains(&hindrance) {
                told.push(hindrance);
            }
            if told.len() == HINDRANCES_MAX {
                break;
            }
        }
        told
    }
}
