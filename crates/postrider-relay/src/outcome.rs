//! Outcomes: what a batch's answer means for each event, its key, and its endpoint.
//!
//! Keeps INV-1 (what was not acknowledged is sent again, waits, or is dead), INV-3 (what follows an
//! event that waits goes behind it) and INV-5 (a dead endpoint's events leave the windows).

use std::sync::Arc;
use std::time::Duration;

use postrider_core::waiting::{Attempted, Passed, Placement, Reason, WaitingChange};
use postrider_core::{
    DeadKeyPolicy, DestinationId, Error, ErrorKind, Fault, KeyHash, Outcome, Result, Tick, planted,
    reach,
};

use crate::attempt::{attempted, holds_key};
use crate::flow::Flow;
use crate::judge::{Attempt, Judgement, judge, judge_unnamed};
use crate::lane::{Entry, Lane, Origin};
use crate::machine::{BatchItem, Machine};
use crate::notice::Notice;
use crate::owned::FlowState;
use crate::part::put_off;
use crate::subject::{delivered, subject};

/// What an endpoint is to blame for.
enum Blame {
    /// It failed, and may have asked for a pause.
    Failed(Fault, Option<Duration>),
    /// It wants nothing any more.
    Gone(Fault),
}

/// What a broker said, if it is about each event; otherwise that it failed as a whole.
fn counted(result: Result<Vec<Outcome>>, rows: usize) -> (Vec<Outcome>, Option<Error>) {
    match result {
        Ok(outcomes) if planted!(OneAckForBatch) && outcomes.contains(&Outcome::Acked) => {
            (vec![Outcome::Acked; rows], None)
        }
        Ok(outcomes) if outcomes.len() == rows => (outcomes, None),
        Ok(outcomes) => {
            reach!(OutcomesMiscounted);
            let message = format!("{} outcomes for {rows} events", outcomes.len());
            (Vec::new(), Some(Error::new(ErrorKind::Internal, "publish").message(message)))
        }
        Err(error) => (Vec::new(), Some(error)),
    }
}

impl Machine {
    /// Acts on the answer to a batch.
    pub(crate) fn published(
        &mut self,
        destination: &DestinationId,
        endpoint: u32,
        sent: Tick,
        items: &[BatchItem],
        result: Result<Vec<Outcome>>,
    ) {
        let Some(outlet) = self.outlets.get_mut(destination) else {
            return;
        };
        outlet.answered(endpoint);
        let rows: u32 = items.iter().map(|item| item.entries).sum();
        let (outcomes, error) = counted(result, rows as usize);
        outlet.note_hindered(endpoint, self.now, sent, &outcomes);
        if outcomes.contains(&Outcome::Acked)
            && let Some((failures, away)) = outlet.acked(endpoint, self.now, &self.settings)
        {
            let topic = Arc::clone(&outlet.endpoint(endpoint).topic);
            let destination = destination.clone();
            let recovered = Notice::EndpointRecovered { destination, topic, failures, away };
            self.notices.push(recovered);
        }
        if error.is_some() {
            outlet.halve(endpoint, rows);
        }
        let last_ack = match planted!(EndpointCountsAgainstEvents) {
            true => outlet.last_ack,
            false => outlet.endpoint(endpoint).last_ack,
        };
        let before = self.stats.delivered;
        let mut outcomes = outcomes.into_iter();
        let (mut endpoint_fault, mut gone, mut retried) = (None, None, None);
        let mut faulted = Vec::new();
        for item in items {
            let attempt = |before| Attempt { alone: rows == 1, before, sent, last_ack };
            let judged = |before| {
                let judgement = match &error {
                    Some(error) => judge_unnamed(error, attempt(before)),
                    None => judge(outcomes.next().unwrap_or(Outcome::Skipped), attempt(before)),
                };
                retried = retried.max(before.filter(|_| judgement == Judgement::Delivered));
                judgement
            };
            let blame = self.settle_lane(destination, item, sent, judged);
            faulted.extend(blame.is_some().then_some(*item));
            match blame {
                Some(Blame::Gone(fault)) => gone = gone.or(Some(fault)),
                Some(Blame::Failed(fault, after)) => {
                    endpoint_fault = endpoint_fault.or(Some((fault, after)));
                }
                None => {}
            }
        }
        self.outlets.get_mut(destination).into_iter().for_each(|it| it.relents(endpoint, retried));
        let delivered = self.stats.delivered - before;
        self.stats.tally(destination).delivered += delivered;
        if let Some(fault) = &gone {
            self.disable(destination, endpoint, fault);
        }
        let disabled = self.outlets.get(destination).is_some_and(|o| o.is_disabled(endpoint));
        if disabled {
            // It is not to be tried again, whatever it answered: all of it goes to wait.
            faulted.iter().for_each(|item| self.requeue(destination, item, None));
        } else if let Some((fault, after)) = endpoint_fault {
            self.endpoint_failed(destination, endpoint, sent, &fault, after, &faulted);
        }
    }

    /// Records the judgements of one lane's share of a batch, and puts the lane where it belongs.
    /// Returns the endpoint's fault, if there was one.
    fn settle_lane(
        &mut self,
        destination: &DestinationId,
        item: &BatchItem,
        sent: Tick,
        mut judged: impl FnMut(Option<Tick>) -> Judgement,
    ) -> Option<Blame> {
        let flow = self
            .owned
            .get_mut(&item.partition)
            .filter(|owned| owned.lease.token == item.token)
            .and_then(|owned| owned.flow(destination));
        let ours = flow.filter(|flow| {
            flow.lanes.get(&item.key).is_some_and(|lane| lane.in_flight == item.entries)
        });
        let Some(flow) = ours else {
            // Not ours any more. The outcomes are still consumed, one per entry.
            reach!(AnswerForLostLane);
            (0..item.entries).for_each(|_| _ = judged(None));
            return None;
        };
        let now = self.now;
        let mut kept: Vec<(Entry, Judgement)> = Vec::new();
        for _ in 0..item.entries {
            let Some(lane) = flow.lanes.get_mut(&item.key) else {
                break;
            };
            lane.in_flight = 0;
            let Some(mut entry) = lane.pop() else { break };
            let judgement = judged(entry.tried);
            if judgement != Judgement::Untried {
                entry.tried = Some(sent);
                if matches!(entry.origin, Origin::Waiting { .. }) {
                    flow.remember(entry.row.seq, sent);
                }
            }
            let (outlet, settings) = (self.outlets.get_mut(destination), &self.settings);
            let heard = outlet.and_then(|it| it.hears(&entry, &judgement, now, settings));
            self.notices.extend(heard);
            if judgement == Judgement::Delivered {
                self.stats.delivered += 1;
                self.stats.progressed_at = now;
                if !self.notices.no_deliveries
                    && let Some(outlet) = self.outlets.get(destination)
                {
                    self.notices.push(delivered(flow, outlet, &entry, now.since(sent)));
                }
                deliver(flow, item.key, &entry, now);
            } else {
                reach!(OutcomeUntried, if judgement == Judgement::Untried);
                kept.push((entry, judgement));
            }
        }
        if flow.unsaved_since.is_none() && flow.has_outcomes() {
            flow.unsaved_since = Some(now);
        }
        let mut kept = kept.into_iter();
        let Some((head, judgement)) = kept.next() else {
            reach!(LaneDelivered);
            self.requeue(destination, item, None);
            return None;
        };
        // What was not delivered goes back in front, in order; then the first of it decides.
        if let Some(lane) = flow.lanes.get_mut(&item.key) {
            let behind: Vec<Entry> = lane.drain().collect();
            lane.push(head);
            kept.map(|(entry, _)| entry).chain(behind).for_each(|entry| lane.push(entry));
        }
        self.judge_head(destination, item, judgement)
    }

    /// The first event of a lane was not delivered.
    fn judge_head(
        &mut self,
        destination: &DestinationId,
        item: &BatchItem,
        judgement: Judgement,
    ) -> Option<Blame> {
        let outlet = self.outlets.get_mut(destination)?;
        if matches!(judgement, Judgement::Counts { .. }) {
            outlet.moved(self.now, &self.settings);
        }
        let flow = self.owned.get_mut(&item.partition)?.flow(destination)?;
        let head = flow.lanes.get(&item.key)?.head()?;
        let route = outlet.route(head.route);
        let attempts = match head.origin {
            Origin::Stream(_) => 0,
            Origin::Waiting { attempts, .. } => attempts,
        };
        let policy = route.dead_key;
        match judgement {
            Judgement::Delivered | Judgement::Untried => {
                // A little later, so that a broker that never tries it does not keep us busy.
                self.requeue(destination, item, Some(self.now + self.settings.poll_min));
                None
            }
            Judgement::Counts { fault, after } => {
                reach!(FailureCounted);
                self.stats.count_failure(destination);
                let attempts = attempts + 1;
                let delay = match route.retry.delay(attempts, after, &mut self.jitter) {
                    Some(delay) => Some(delay),
                    None if policy == DeadKeyPolicy::Halt => Some(route.retry.delay_max),
                    None => None,
                };
                let reason = if delay.is_some() { Reason::Failed } else { Reason::GaveUp };
                let attempted = attempted(attempts, reason, fault.to_string());
                self.give_up_or_retry(destination, item, delay, attempted, policy);
                None
            }
            Judgement::Refused { fault } => {
                self.refuse_head(destination, item, &fault);
                None
            }
            Judgement::Endpoint { fault, after } => {
                reach!(FailureOfEndpoint);
                // What came from `waiting` goes back there, once the pause is known.
                if matches!(head.origin, Origin::Stream(_)) {
                    let at = self.now + route.retry.delay_min.min(self.settings.pause_min);
                    self.requeue(destination, item, Some(at));
                }
                Some(Blame::Failed(fault, after))
            }
            Judgement::Hindered { fault, since } => {
                reach!(EventHindered);
                self.stats.count_endpoint_failure(destination);
                let delay = put_off(since, &route.retry, &self.settings, &mut self.jitter);
                let attempted = attempted(attempts, Reason::Failed, fault.to_string());
                self.give_up_or_retry(destination, item, Some(delay), attempted, policy);
                None
            }
            Judgement::Gone { fault } => {
                reach!(EndpointGone);
                Some(Blame::Gone(fault))
            }
        }
    }

    /// The head of a lane waits for another try, or is dead; what follows of its key goes behind it.
    pub(crate) fn give_up_or_retry(
        &mut self,
        destination: &DestinationId,
        item: &BatchItem,
        delay: Option<Duration>,
        attempted: Attempted,
        policy: DeadKeyPolicy,
    ) {
        let now = self.now;
        let (Some(outlet), Some(flow)) = (
            self.outlets.get_mut(destination),
            self.owned.get_mut(&item.partition).and_then(|owned| owned.flow(destination)),
        ) else {
            return;
        };
        let holds_key = holds_key(policy);
        if attempted.reason != Reason::Held {
            // A probe of what is held is none, or a one-shot run would wait for it for ever.
            self.stats.progressed_at = now;
        }
        let Some(head) = flow.lanes.get(&item.key).and_then(|lane| lane.head()) else { return };
        let (row, origin, subject) = (head.row, head.origin, subject(flow, outlet, head));
        flow.notices.push(Notice::AttemptFailed {
            subject: subject.clone(),
            attempt: attempted.attempts,
            detail: attempted.detail.clone(),
            delay,
        });
        reach!(RetryHalts, if delay.is_some() && policy == DeadKeyPolicy::Halt);
        if delay.is_none() {
            reach!(EventGaveUp, if holds_key);
            let late = matches!(origin, Origin::Waiting { late: true, .. });
            flow.note_dead(subject, &attempted, holds_key && !late);
        }
        match origin {
            Origin::Stream(_) => {
                let placement = match delay {
                    Some(delay) => Placement::Retry { delay, attempted },
                    None => Placement::Dead { attempted, holds_key },
                };
                let skips = matches!(placement, Placement::Dead { holds_key: false, .. })
                    || (delay.is_some() && planted!(RetryOvertakes));
                if skips {
                    self.skip_head(destination, item, placement);
                } else {
                    flow.spill(item.key, Some(placement), now);
                }
            }
            Origin::Waiting { late, .. } => {
                let change = match delay {
                    Some(delay) => WaitingChange::Retry { row, delay, attempted },
                    None => {
                        // One that is late by permission never holds its key.
                        let holds_key = holds_key && !late;
                        WaitingChange::Dead { row, attempted, holds_key }
                    }
                };
                flow.change(item.key, !late, change, now);
                flow.spill(item.key, None, now);
            }
        }
    }

    /// A dead letter that does not hold its key: only the head leaves, the lane goes on.
    fn skip_head(&mut self, destination: &DestinationId, item: &BatchItem, placement: Placement) {
        let now = self.now;
        let Some(flow) =
            self.owned.get_mut(&item.partition).and_then(|owned| owned.flow(destination))
        else {
            return;
        };
        let Some(lane) = flow.lanes.get_mut(&item.key) else {
            return;
        };
        let Some(head) = lane.pop() else { return };
        reach!(DeadHeadSkipped);
        let rest: Vec<Entry> = lane.drain().collect();
        let mut alone = Lane::default();
        alone.push(head);
        flow.lanes.insert(item.key, alone);
        flow.spill(item.key, Some(placement), now);
        let mut lane = Lane::default();
        rest.into_iter().for_each(|entry| lane.push(entry));
        flow.lanes.insert(item.key, lane);
        self.requeue(destination, item, None);
    }

    /// Puts a lane back into its endpoint's queue, now or at a time; an empty one is forgotten.
    pub(crate) fn requeue(
        &mut self,
        destination: &DestinationId,
        item: &BatchItem,
        at: Option<Tick>,
    ) {
        let now = self.now;
        let Some(outlet) = self.outlets.get_mut(destination) else {
            return;
        };
        let Some(FlowState::Ready(flow)) =
            self.owned.get_mut(&item.partition).and_then(|owned| owned.flows.get_mut(destination))
        else {
            return;
        };
        let Some(lane) = flow.lanes.get_mut(&item.key) else {
            return;
        };
        let Some(endpoint) = lane.head().map(|head| head.endpoint) else {
            reach!(LaneClosed);
            flow.lanes.remove(&item.key);
            if flow.waits(item.key) && !flow.engaged.contains_key(&item.key) {
                flow.look_for_due(now);
            }
            return;
        };
        lane.queued = true;
        reach!(LaneRetries, if at.is_some());
        let lane = (item.partition, item.key);
        match at {
            Some(at) => outlet.ready_at(at, endpoint, lane),
            None => outlet.ready(endpoint, lane),
        }
    }
}

/// Records an acknowledged event where it came from.
pub(crate) fn deliver(flow: &mut Flow, key: KeyHash, entry: &Entry, now: Tick) {
    flow.let_go(entry);
    match entry.origin {
        Origin::Stream(ordinal) => {
            flow.acked += 1;
            flow.moved_at = now;
            flow.window.settle(ordinal, Passed::Acked);
        }
        Origin::Waiting { late, .. } => {
            reach!(WaitingDelivered);
            reach!(WaitingDeliveredLate, if late);
            flow.change(key, !late, WaitingChange::Delivered(entry.row), now);
        }
    }
}
