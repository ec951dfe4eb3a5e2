//! The part of a consumer: a handler of one of three kinds behind its inbox.
//!
//! | kind | its effect |
//! |---|---|
//! | `billing` | a row in the handler's own database, with the marker in one transaction |
//! | `mail` | a line at a provider outside, in a step under a lease |
//! | `shipping` | a row and a new event in the shop's database, with the marker in one transaction |

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{
    BoxFuture, Delivery, Error, ErrorKind, Event, HandlerName, NewEvent, Result, RetryPolicy,
};
use postrider_e2e::{Files, PLACED, SHIPPED};
use postrider_inbox::{Consumer, ConsumerOptions};
use postrider_local::{LocalBroker, SubscribeOptions};
use postrider_sqlite::{Outbox, Transactional};

use crate::args::{Args, config};
use crate::asked::Asked;
use crate::halt::Halt;
use crate::mail;
use crate::words::say;

pub(crate) async fn run(args: &Args, halt: Arc<Halt>, asked: Asked) -> Result<ExitCode> {
    let files = args.files()?;
    let kind = args.text("kind").unwrap_or("billing");
    let lease = args.millis("lease-ms", 1_000)?;
    let name = HandlerName::new(kind)?;
    let inner: Arc<dyn Receiver> = match kind {
        "billing" => {
            Arc::new(billing(&files, name, Arc::clone(&halt), args.number("fail-first", 0)?)?)
        }
        "mail" => Arc::new(mail::receiver(&files, name, Arc::clone(&halt), lease)?),
        "shipping" => Arc::new(shipping(&files, name, Arc::clone(&halt))?),
        other => return Err(config(format!("no kind `{other}`"))),
    };
    let options =
        SubscribeOptions { visibility: lease, deliveries_max: 50, ..SubscribeOptions::default() };
    let broker = LocalBroker::open(&files.queue)?;
    let subscription = broker.subscribe(kind, PLACED, options).await?;
    let retry = RetryPolicy { delay_min: Duration::from_millis(100), ..RetryPolicy::default() };
    let consumer = Consumer::builder(Arc::new(subscription))
        .receiver(Arc::new(Telling { inner, halt }))
        .options(ConsumerOptions { retry, ..ConsumerOptions::default() })
        .start()?;
    say("ready");
    asked.stopped().await;
    consumer.drain(Duration::from_secs(2));
    consumer.stopped().await;
    Ok(ExitCode::SUCCESS)
}

/// Says what came of each delivery, after it is true and before the broker hears of it.
struct Telling {
    inner: Arc<dyn Receiver>,
    halt: Arc<Halt>,
}

impl Receiver for Telling {
    fn handler(&self) -> &HandlerName {
        self.inner.handler()
    }

    fn counts_tries(&self) -> bool {
        self.inner.counts_tries()
    }

    fn buried<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        self.inner.buried(delivery)
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(async move {
            let verdict = self.inner.receive(event, delivery).await;
            let word = match &verdict {
                Ok(Verdict::Done) => "done",
                Ok(Verdict::Duplicate) => "duplicate",
                Ok(Verdict::Busy { .. }) => "busy",
                Ok(Verdict::Alone) => "alone",
                Ok(Verdict::Retry { fault, .. }) if fault.kind == ErrorKind::Fenced => "fenced",
                Ok(Verdict::Retry { .. }) => "retry",
                Ok(Verdict::Reject(_)) => "rejected",
                Err(error) if error.kind() == ErrorKind::Fenced => "fenced",
                Err(_) => "failed",
            };
            if word == "done" {
                self.halt.at("after_commit").await;
            }
            say(&format!("{word} {}", event.id));
            verdict
        })
    }
}

/// The handler `billing`. The first so many calls fail after their effect was written.
fn billing(
    files: &Files,
    name: HandlerName,
    halt: Arc<Halt>,
    fail_first: u64,
) -> Result<Transactional> {
    let calls = AtomicU64::new(0);
    Transactional::new(&files.billing, name, move |tx, event| {
        tx.prepare_cached(include_str!("../../../sql/charge.sql"))?
            .execute((event.id.to_string(), event.key()))?;
        if calls.fetch_add(1, Ordering::SeqCst) < fail_first {
            return Err("the handler fails on purpose".into());
        }
        halt.block_at("before_commit");
        Ok(Verdict::Done)
    })
}

/// The handler `shipping`: consumes, changes, and produces in one transaction.
fn shipping(files: &Files, name: HandlerName, halt: Arc<Halt>) -> Result<Transactional, Error> {
    Transactional::new(&files.shop, name, move |tx, event| {
        let shipped =
            NewEvent::new("order", &*event.aggregate_id, SHIPPED).json(&event.id.to_string())?;
        tx.prepare_cached(include_str!("../../../sql/ship.sql"))?
            .execute((event.id.to_string(), shipped.event().id.to_string()))?;
        Outbox::new().enqueue(tx, &shipped)?;
        halt.block_at("before_commit");
        Ok(Verdict::Done)
    })
}
