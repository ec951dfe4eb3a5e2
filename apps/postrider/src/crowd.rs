//! Crowds: destinations of which half as many events wait as may, and who holds them.
//!
//! Invariant (INV-8): whoever is told that a bound comes near is told what fills it: an endpoint, a key, or a reason.

use std::collections::BTreeMap;

use postrider_core::operate::{
    DestinationView, Filter, Finding, Overview, PageRequest, Status, WaitingView, findings,
};
use postrider_core::{Code, DestinationId, Operator, Result};

use crate::shape::Blocker;
use crate::terminal::count;

/// Waiting events that are looked at to find who holds them: a page, the oldest of them.
const LOOKED_AT_MAX: u32 = 10_000;

/// A destination of which so many events wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crowd {
    destination: DestinationId,
    waiting: u64,
    /// How many may.
    most: u64,
    /// Who holds them, in words.
    holder: String,
}

/// The destinations of which half as many events wait as may, or more.
pub(crate) async fn crowds(
    operator: &dyn Operator,
    overview: &Overview,
    most: u64,
) -> Result<Vec<Crowd>> {
    let mut crowds = Vec::new();
    for view in overview.destinations.iter().filter(|view| is_crowded(view, most)) {
        let mut filter = Filter::default();
        filter.destination = Some(view.id.clone());
        filter.status =
            vec![Status::Retrying, Status::Parked, Status::Held, Status::Disabled, Status::Dead];
        let page = PageRequest { after: None, limit: LOOKED_AT_MAX };
        let rows = operator.waiting(&filter, &page).await?.rows;
        crowds.push(Crowd {
            destination: view.id.clone(),
            waiting: view.waiting.total(),
            most,
            holder: holder(view, &rows),
        });
    }
    Ok(crowds)
}

fn is_crowded(view: &DestinationView, most: u64) -> bool {
    view.waiting.total() >= most.div_ceil(2)
}

impl Crowd {
    fn is_full(&self) -> bool {
        self.waiting >= self.most
    }

    fn message(&self) -> String {
        let reads = if self.is_full() { ", and nothing new is read" } else { "" };
        format!(
            "{} events of {} wait, of {} that may{reads}: {}",
            count(self.waiting),
            self.destination,
            count(self.most),
            self.holder
        )
    }

    fn advice(&self) -> String {
        format!(
            "postrider dead ls --destination {}; mend what refuses them, then redrive or discard them",
            self.destination
        )
    }

    /// What the doctor says of it.
    pub(crate) fn finding(&self) -> Finding {
        let (message, advice, code) = (self.message(), self.advice(), Code::WaitingFull);
        match self.is_full() {
            true => findings::critical("waiting", message, advice, code),
            false => findings::coded("waiting", message, advice, code),
        }
    }

    /// What the status says of it.
    pub(crate) fn blocker(&self) -> Blocker {
        Blocker {
            kind: "waiting_full",
            critical: self.is_full(),
            message: self.message(),
            advice: self.advice(),
        }
    }
}

/// Who holds what waits: the reason of most of it, and an endpoint or a key that most of what was looked at has in
/// common.
fn holder(view: &DestinationView, rows: &[WaitingView]) -> String {
    // What is behind another one has no reason of its own.
    let reasons = view.errors.iter().filter(|group| group.reason != "behind");
    let mut told: Vec<String> = reasons
        .take(1)
        .map(|group| match &*group.detail {
            "" => format!("{} are {}", count(group.count), group.reason),
            detail => format!("{} are {} ({detail})", count(group.count), group.reason),
        })
        .collect();
    let looked_at = rows.len() as u64;
    let mut common = |what: &str, names: &mut dyn Iterator<Item = &str>| {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        names.for_each(|name| *counts.entry(name).or_default() += 1);
        // Of several that have as many, the first by name: two readings say the same.
        let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
        if let Some((name, of)) = most.filter(|(_, of)| of * 4 >= looked_at) {
            let (of, all) = (count(of), count(looked_at));
            told.push(format!("{of} of the first {all} are of {what} {name}"));
        }
    };
    common("endpoint", &mut rows.iter().filter_map(|row| row.endpoint.as_deref()));
    common("key", &mut rows.iter().map(|row| &*row.key));
    match told.is_empty() {
        true => {
            format!("no endpoint, key, or reason has a quarter of the first {}", count(looked_at))
        }
        false => told.join("; "),
    }
}

#[cfg(test)]
mod tests;
