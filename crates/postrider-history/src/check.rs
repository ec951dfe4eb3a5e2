//! The checks, one per invariant, each a pure function of the history.

use postrider_core::{EventId, Invariant};

use crate::index::Index;
use crate::{History, Record, Verdict, Violation};

/// Judges a history against INV-1 to INV-8.
pub fn check(history: &History) -> Verdict {
    let index = Index::of(history);
    let mut verdict = Verdict::default();
    for invariant in Invariant::ALL {
        verdict.judged.insert(invariant, 0);
    }
    no_loss(&index, &mut verdict);
    no_ghost(&index, &mut verdict);
    key_order(&index, &mut verdict);
    one_effect(&index, &mut verdict);
    for record in history.records() {
        judge_alone(record, &index, &mut verdict);
    }
    verdict.violations.sort();
    verdict
}

impl Verdict {
    fn judge(&mut self, invariant: Invariant) {
        *self.judged.entry(invariant).or_default() += 1;
    }

    fn broke(&mut self, invariant: Invariant, event: Option<EventId>, subject: &str, what: String) {
        self.violations.push(Violation { invariant, event, subject: subject.to_owned(), what });
    }
}

/// INV-1: what was committed arrived, or is visible in `waiting`, everywhere it should be.
fn no_loss(index: &Index<'_>, verdict: &mut Verdict) {
    for commit in index.commits.values() {
        verdict.judge(Invariant::NoLoss);
        for destination in index.missing(commit) {
            let what = format!(
                "event {} was committed as number {}, and was neither delivered nor is it waiting \
                 at {destination}",
                commit.id, commit.order
            );
            verdict.broke(Invariant::NoLoss, Some(commit.id), &commit.key, what);
        }
    }
}

/// INV-2: what arrived had been committed.
fn no_ghost(index: &Index<'_>, verdict: &mut Verdict) {
    for (destination, id) in &index.delivered {
        verdict.judge(Invariant::NoGhost);
        if index.is_ghost(*id) {
            let fate = if index.rolled_back.contains(id) {
                "its transaction was rolled back"
            } else {
                "nobody committed it"
            };
            let what = format!("event {id} was delivered to {destination}, but {fate}");
            verdict.broke(Invariant::NoGhost, Some(*id), destination, what);
        }
    }
}

/// INV-3: first deliveries of a key are in commit order, and nothing passes a waiting event that
/// holds its key; what is marked as late is the exception.
fn key_order(index: &Index<'_>, verdict: &mut Verdict) {
    for _ in &index.delivered {
        verdict.judge(Invariant::KeyOrder);
    }
    for (delivery, earlier) in index.out_of_order() {
        let key = index.commits.get(&delivery.id).map_or("", |c| &c.key);
        let what = format!(
            "event {} was first delivered to {} after event {earlier} of its key, which was \
             committed later",
            delivery.id, delivery.destination
        );
        verdict.broke(Invariant::KeyOrder, Some(delivery.id), key, what);
    }
    for (delivery, holder) in index.passed_holder() {
        let key = index.commits.get(&delivery.id).map_or("", |c| &c.key);
        let what = format!(
            "event {} was delivered to {} past event {holder} of its key, which waits there and \
             holds the key",
            delivery.id, delivery.destination
        );
        verdict.broke(Invariant::KeyOrder, Some(delivery.id), key, what);
    }
}

/// INV-4: one effect per (source, event, handler).
fn one_effect(index: &Index<'_>, verdict: &mut Verdict) {
    for ((source, id, handler), count) in &index.effects {
        verdict.judge(Invariant::OneEffect);
        if *count > 1 {
            let what =
                format!("handler {handler} acted {count} times on event {id} of source `{source}`");
            verdict.broke(Invariant::OneEffect, Some(*id), handler, what);
        }
    }
}

/// INV-5 to INV-8: facts that are judged one by one.
fn judge_alone(record: &Record, index: &Index<'_>, verdict: &mut Verdict) {
    match record {
        Record::Delay(delay) if !delay.afflicted => {
            verdict.judge(Invariant::Isolation);
            if delay.delay_ms > delay.bound_ms {
                let what = format!(
                    "event {} took {} ms to {}, though nothing is wrong with its key or route; it \
                     may take {} ms",
                    delay.id, delay.delay_ms, delay.destination, delay.bound_ms
                );
                let subject =
                    index.commits.get(&delay.id).map_or(&delay.destination, |commit| &commit.key);
                verdict.broke(Invariant::Isolation, Some(delay.id), subject, what);
            }
        }
        Record::Gauge(gauge) => {
            verdict.judge(Invariant::Bounded);
            if gauge.value > gauge.limit {
                let what = format!(
                    "{} was {}, above its limit of {}",
                    gauge.name, gauge.value, gauge.limit
                );
                verdict.broke(Invariant::Bounded, None, &gauge.name, what);
            }
        }
        Record::Published(claim) => {
            verdict.judge(Invariant::Truth);
            let acked = index.acked.get(&(&*claim.destination, claim.id));
            if acked.is_none_or(|acked| *acked > claim.order) {
                let truth = match acked {
                    None => "the broker never acknowledged it",
                    Some(_) => "the broker acknowledged it only afterwards",
                };
                let what = format!(
                    "event {} was recorded as published to {}, but {truth}",
                    claim.id, claim.destination
                );
                verdict.broke(Invariant::Truth, Some(claim.id), &claim.destination, what);
            }
        }
        Record::Progress(progress) if progress.backlog > 0 && progress.broker_healthy => {
            verdict.judge(Invariant::Progress);
            if !progress.moved && progress.blocker.is_none() {
                let what = format!(
                    "{} has {} events to send and a healthy broker, does not move, and health \
                     names nobody who holds it",
                    progress.destination, progress.backlog
                );
                verdict.broke(Invariant::Progress, None, &progress.destination, what);
            }
        }
        _ => {}
    }
}
