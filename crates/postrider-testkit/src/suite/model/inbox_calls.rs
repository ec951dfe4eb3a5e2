//! Random calls of several workers on the rows of any inbox, and of transactions beside them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::{
    Claim, ClaimLease, ClaimRequest, Event, EventId, HandlerName, InboxKey, InboxStore, Payload,
    Tried,
};
use proptest::prelude::*;

use super::inbox::Rows;
use super::{Broken, Effort, Met, Rule, answered, explore, holds, units};
use crate::suite::{InboxHarness, Then, TransactionalProbe};

/// Workers beside each other.
const WORKERS: u8 = 3;

/// Which rows transactions and claims are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixed {
    /// The same: a transaction is refused while a worker holds a lease.
    Yes,
    /// Others: the store does not say that it keeps the two apart.
    No,
}

/// An event, a handler, and which of two payloads.
#[derive(Clone, Copy, Debug)]
struct Message {
    event: u8,
    handler: u8,
    other_payload: bool,
}

/// A call of a worker, a transaction, or time that passes. Which claim it is about is picked among
/// those there were.
#[derive(Clone, Debug)]
enum Call {
    Claim { worker: u8, message: Message, lease: u32 },
    Heartbeat { which: u8, lease: u32 },
    Complete { which: u8, result: u8 },
    Release { which: u8 },
    Step { which: u8, step: u8 },
    CompleteStep { which: u8, step: u8, result: u8 },
    Purge { older_than: u32, rows_max: u32 },
    Accept { message: Message, then: Then },
    Pass { span: u32 },
}

const CLAIMS: [&str; 14] = [
    "claimed",
    "claimed what is leased",
    "taken over",
    "claimed what was let go",
    "claimed what was done",
    "claimed with another payload",
    "prolonged",
    "prolonged after its end",
    "completed",
    "completed twice",
    "let go",
    "a stale claim wrote nothing",
    "a step was found",
    "purged",
];
const TRANSACTIONS: [&str; 3] = ["accepted", "accepted what was done", "accepted and undone"];
const BESIDE_CLAIMS: [&str; 2] = ["accepted what is leased", "accepted after a claim's end"];

fn call() -> impl Strategy<Value = Call> {
    let message = (0u8..2, 0u8..2, prop_oneof![9 => Just(false), 1 => Just(true)]);
    let message = message.prop_map(|(event, handler, other_payload)| Message {
        event,
        handler,
        other_payload,
    });
    let then =
        prop_oneof![2 => Just(Then::Commit), 1 => Just(Then::Fail), 1 => Just(Then::Abandon)];
    let which = any::<u8>;
    prop_oneof![
        6 => (0..WORKERS, message.clone(), 1u32..5)
            .prop_map(|(worker, message, lease)| Call::Claim { worker, message, lease }),
        2 => (which(), 1u32..5).prop_map(|(which, lease)| Call::Heartbeat { which, lease }),
        2 => (which(), any::<u8>()).prop_map(|(which, result)| Call::Complete { which, result }),
        1 => which().prop_map(|which| Call::Release { which }),
        2 => (which(), 0u8..2).prop_map(|(which, step)| Call::Step { which, step }),
        2 => (which(), 0u8..2, any::<u8>())
            .prop_map(|(which, step, result)| Call::CompleteStep { which, step, result }),
        1 => (0u32..4, 1u32..3)
            .prop_map(|(older_than, rows_max)| Call::Purge { older_than, rows_max }),
        2 => (message, then).prop_map(|(message, then)| Call::Accept { message, then }),
        4 => (1u32..4).prop_map(|span| Call::Pass { span }),
    ]
}

/// Calls that meet every situation once, whatever is random later.
fn script() -> Vec<Call> {
    let message = |event, handler| Message { event, handler, other_payload: false };
    let claim = |worker, message| Call::Claim { worker, message, lease: 2 };
    let other = Message { other_payload: true, ..message(0, 0) };
    let accept = |message, then| Call::Accept { message, then };
    vec![
        accept(message(1, 1), Then::Abandon),
        claim(0, message(0, 0)),
        claim(1, message(0, 0)),
        claim(1, other),
        accept(message(0, 0), Then::Commit),
        Call::CompleteStep { which: 0, step: 0, result: 7 },
        Call::Heartbeat { which: 0, lease: 2 },
        Call::Pass { span: 3 },
        accept(message(0, 0), Then::Fail),
        Call::Heartbeat { which: 0, lease: 2 },
        Call::Pass { span: 3 },
        claim(1, message(0, 0)),
        Call::Step { which: 0, step: 0 },
        Call::Heartbeat { which: 1, lease: 2 },
        Call::Complete { which: 1, result: 1 },
        Call::Release { which: 1 },
        Call::Release { which: 0 },
        claim(2, message(0, 0)),
        Call::Complete { which: 0, result: 2 },
        Call::Complete { which: 0, result: 3 },
        claim(0, message(0, 0)),
        claim(0, message(1, 0)),
        Call::Pass { span: 3 },
        accept(message(1, 0), Then::Commit),
        accept(message(0, 1), Then::Fail),
        accept(message(0, 1), Then::Abandon),
        accept(message(0, 1), Then::Commit),
        accept(message(0, 1), Then::Commit),
        Call::Purge { older_than: 2, rows_max: 1 },
        claim(0, message(0, 0)),
    ]
}

/// Plays random calls on fresh inboxes and compares every answer with the model.
///
/// # Errors
/// The rule that was broken, the shortest calls that show it, and the seed.
pub fn inbox_rows_follow_their_model<H: InboxHarness>(
    effort: Effort,
    mixed: Mixed,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("invariant: a test may start a runtime");
    let transactional = runtime.block_on(async { H::start().await.transactional().is_some() });
    let mut situations = CLAIMS.to_vec();
    if transactional {
        situations.extend(TRANSACTIONS);
        situations.extend(BESIDE_CLAIMS.iter().filter(|_| mixed == Mixed::Yes));
    }
    explore(effort, script(), call(), &situations, async |calls, met| {
        let harness = H::start().await;
        let mut play = Play::start(&harness, mixed, met);
        for call in calls {
            play.perform(&harness, call).await?;
        }
        Ok(())
    })
}

struct Play<'a> {
    unit: Duration,
    mixed: Mixed,
    rows: Rows,
    workers: Vec<Arc<dyn InboxStore>>,
    probe: Option<Arc<dyn TransactionalProbe>>,
    /// Every claim there was, and whose: a zombie forgets nothing.
    claims: Vec<(usize, ClaimLease)>,
    met: &'a Met,
}

impl<'a> Play<'a> {
    fn start<H: InboxHarness>(harness: &H, mixed: Mixed, met: &'a Met) -> Play<'a> {
        let unit = harness.unit();
        Play {
            unit,
            mixed,
            rows: Rows::new(unit / 8, harness.purges_claims()),
            workers: (0..WORKERS).map(|_| harness.inbox()).collect(),
            probe: harness.transactional(),
            claims: Vec::new(),
            met,
        }
    }

    async fn perform<H: InboxHarness>(&mut self, harness: &H, call: &Call) -> Result<(), Broken> {
        match *call {
            Call::Claim { worker, message, lease } => self.claim(worker, message, lease).await,
            Call::Purge { older_than, rows_max } => self.purge(older_than, rows_max).await,
            Call::Accept { message, then } => self.accept(message, then).await,
            Call::Pass { span } => {
                harness.pass(self.unit * span).await;
                self.rows.now += self.unit * span;
                Ok(())
            }
            Call::Heartbeat { which, .. }
            | Call::Complete { which, .. }
            | Call::Release { which }
            | Call::Step { which, .. }
            | Call::CompleteStep { which, .. } => self.go_on(which, call).await,
        }
    }

    async fn claim(&mut self, worker: u8, message: Message, lease: u32) -> Result<(), Broken> {
        let message = match self.mixed {
            Mixed::Yes => message,
            Mixed::No => Message { handler: 0, ..message },
        };
        let duration = units(self.unit, lease, 2);
        let worker = usize::from(worker);
        let request = ClaimRequest::new(&message.event(), &message.handler(), duration);
        let request = answered(request, "claim request")?;
        let answer = answered(self.workers[worker].claim(&request).await, "claim")?;
        if let Claim::Claimed(lease) = &answer {
            self.claims.push((worker, lease.clone()));
        }
        let other_payload = message.other_payload;
        self.rows.claimed(&request.key, other_payload, duration, &answer, self.met)
    }

    /// What a worker does that has, or had, a claim.
    async fn go_on(&mut self, which: u8, call: &Call) -> Result<(), Broken> {
        let Some(last) = self.claims.len().checked_sub(1) else { return Ok(()) };
        let back = if which < 128 { usize::from(which) % 4 } else { usize::from(which) };
        let (worker, lease) = &self.claims[last - back % self.claims.len()];
        let (inbox, met, rows) = (&self.workers[*worker], self.met, &mut self.rows);
        match *call {
            Call::Heartbeat { lease: whole, .. } => {
                let duration = units(self.unit, whole, 2);
                let answer = inbox.heartbeat(lease, duration).await;
                rows.beaten(lease, duration, &answer, met)
            }
            Call::Complete { result, .. } => {
                let result = Bytes::from(vec![result]);
                let answer = inbox.complete(lease, &result).await;
                rows.completed(lease, &result, &answer, met)
            }
            Call::Release { .. } => {
                let answer = inbox.release(lease, Tried::Failed).await;
                rows.released(lease, &answer, met)
            }
            Call::Step { step, .. } => {
                let answer = inbox.step(lease, &name_of(step)).await;
                rows.step_read(lease, step, &answer, met)
            }
            Call::CompleteStep { step, result, .. } => {
                let result = Bytes::from(vec![result]);
                let answer = inbox.complete_step(lease, &name_of(step), &result).await;
                rows.step_stored(lease, step, &result, &answer, met)
            }
            _ => Ok(()),
        }
    }

    /// Deletes in portions until nothing is deleted any more.
    async fn purge(&mut self, older_than: u32, rows_max: u32) -> Result<(), Broken> {
        let older_than = units(self.unit, older_than, 1);
        for handler in 0..2 {
            let told = Message { event: 0, handler, other_payload: false }.handler();
            let told = self.workers[0].record_horizon(&told, Duration::ZERO).await;
            answered(told, "record horizon")?;
        }
        let mut portions = Vec::new();
        while portions.last() != Some(&0) && portions.len() < 16 {
            let purged = self.workers[0].purge(older_than, rows_max).await;
            portions.push(answered(purged, "purge")?);
        }
        let gone = self.rows.purged(older_than, rows_max, &portions, self.met)?;
        self.claims.retain(|(_, lease)| !gone.contains(&lease.key));
        Ok(())
    }

    async fn accept(&mut self, message: Message, then: Then) -> Result<(), Broken> {
        let Some(probe) = &self.probe else { return Ok(()) };
        let message = match self.mixed {
            Mixed::Yes => message,
            Mixed::No => Message { handler: 1, ..message },
        };
        let (event, handler) = (message.event(), message.handler());
        let key = answered(InboxKey::of(&event, &handler), "inbox key")?;
        let answer = probe.accept(&event, &handler, then).await;
        self.rows.accepted(&key, message.other_payload, then, &answer, self.met)?;
        let effects = probe.effects().await;
        holds(Rule::OneEffect, effects == self.rows.effects, || {
            format!(
                "{effects} effects, expected {}, after {call:?}",
                self.rows.effects,
                call = (message, then)
            )
        })
    }
}

impl Message {
    fn event(self) -> Event {
        let id = EventId::from_u128(u128::from(self.event) + 1);
        let mut event = Event::new(id, "order", "42", "order.placed");
        event.source = "/shop".into();
        let text = if self.other_payload { "{\"n\":1}" } else { "{\"n\":0}" };
        event.payload = Payload::json(text).expect("JSON");
        event
    }

    fn handler(self) -> HandlerName {
        let name = if self.handler == 0 { "billing" } else { "shipping" };
        HandlerName::new(name).expect("invariant: the name is valid")
    }
}

fn name_of(step: u8) -> String {
    format!("step-{step}")
}
