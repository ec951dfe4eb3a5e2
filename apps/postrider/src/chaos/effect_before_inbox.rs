//! `effect-before-inbox`: a handler makes its effect, dies, and never wrote down that it did.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_core::inbox::Verdict;
use postrider_core::{Error, ErrorKind, Event, HandlerName, RetryPolicy, Subscription as _};
use postrider_inbox::{Consumer, ConsumerOptions, Context, Leased, Outcome};
use postrider_local::LocalBroker;
use postrider_sqlite::Transactional;

use crate::chaos::bank::Bank;
use crate::chaos::by_hand::{self, ByHand};
use crate::chaos::scene::{self, HANDLER, Scene};
use crate::failure::Failure;

pub(crate) async fn play(scene: &mut Scene) -> Result<(), Failure> {
    let queue = scene.queue("queue")?;
    by_hand::send(&queue, by_hand::message("1")).await?;
    scene.story.wrong("charge, then write the id into the inbox");
    let charges = charge_then_write(scene, &queue, "by-hand").await?;
    scene.story.judge(format!("the customer was charged {charges} times"), charges == 2);

    scene.story.right("an effect outside the database: claim, then a step with a key of its own");
    let charges = match scene.is_guarded() {
        true => charge_in_a_step(scene, &queue).await?,
        false => charge_then_write(scene, &queue, "without-a-guard").await?,
    };
    scene.story.judge("the customer was charged once", charges == 1);
    if scene.is_guarded() {
        let rows = charge_in_the_transaction(scene, &queue).await?;
        scene.story.judge("an effect in the database: one row, with its marker", rows == 1);
    }
    Ok(())
}

/// The first worker dies between the two; the second does both.
async fn charge_then_write(
    scene: &mut Scene,
    queue: &LocalBroker,
    group: &str,
) -> Result<usize, Failure> {
    let seen = ByHand::open(&scene.path(&format!("{group}-inbox.db")))?;
    let bank = Bank::default();
    let workers = by_hand::subscribe(queue, group, Duration::from_millis(200)).await?;
    for worker in 1..=2 {
        let Some((delivery, event)) = by_hand::next(&workers, scene::PATIENCE).await? else {
            return Err(Failure::plain("the message of the wrong way did not come"));
        };
        bank.charge_anew(&event.aggregate_id);
        if worker == 1 {
            scene.story.tell("worker 1 charges, and dies before it writes the id down");
            continue;
        }
        seen.see(event.id)?;
        workers.ack(&delivery).await?;
        scene.story.tell("worker 2 finds nothing written, charges, writes, acknowledges");
    }
    Ok(bank.charges("1"))
}

/// A try that ends between the charge and its record, and the one after it.
async fn charge_in_a_step(scene: &mut Scene, queue: &LocalBroker) -> Result<usize, Failure> {
    let bank = Arc::new(Bank::default());
    let died = Arc::new(AtomicBool::new(false));
    let handler = dying(Arc::clone(&bank), Arc::clone(&died));
    let name = HandlerName::new(HANDLER)?;
    let receiver = Leased::builder(name, Arc::clone(&scene.store.inbox), handler).build()?;
    let subscription = by_hand::subscribe(queue, HANDLER, Duration::from_secs(5)).await?;
    consume(Consumer::builder(Arc::new(subscription)).receiver(Arc::new(receiver))).await?;
    let calls = bank.calls();
    scene.story.tell(format!("a try ends after the charge; the provider is asked {calls} times"));
    scene.story.judge("both times with the same key", died.load(Ordering::Relaxed) && calls == 2);
    Ok(bank.charges("1"))
}

/// A handler whose first try ends after the provider has charged.
fn dying(
    bank: Arc<Bank>,
    died: Arc<AtomicBool>,
) -> impl Fn(Arc<Event>, Context) -> postrider_core::BoxFuture<'static, postrider_core::Result<Outcome>>
+ Send
+ Sync
+ 'static {
    move |event, context| {
        let (bank, died) = (Arc::clone(&bank), Arc::clone(&died));
        Box::pin(async move {
            let charge = |key: String| async move {
                let receipt = bank.charge(&key, &event.aggregate_id);
                if died.swap(true, Ordering::Relaxed) {
                    return Ok(receipt);
                }
                Err(Error::new(ErrorKind::Unavailable, "charge").message("the worker is gone"))
            };
            Ok(Outcome::Ack(context.step("charge", charge).await?))
        })
    }
}

/// The same where the effect is a row: a handler that fails after it leaves neither row nor marker.
async fn charge_in_the_transaction(
    scene: &mut Scene,
    queue: &LocalBroker,
) -> Result<usize, Failure> {
    let path = scene.path("billing.db");
    postrider_sqlite::init(&path)?;
    let billing = postrider_sqlite::connect(&path)?;
    let trouble = |e: rusqlite::Error| Failure::plain(format!("the billing database: {e}"));
    billing.execute_batch(include_str!("../../sql/demo/charges.sql")).map_err(trouble)?;
    let (name, failed) = (HandlerName::new("charge-row")?, AtomicBool::new(false));
    let receiver = Transactional::new(&path, name, move |tx, event| {
        tx.execute(
            include_str!("../../sql/demo/charge.sql"),
            (event.id.to_string(), &*event.aggregate_id),
        )?;
        match failed.swap(true, Ordering::Relaxed) {
            true => Ok(Verdict::Done),
            false => Err("the worker is gone before its commit".into()),
        }
    })?;
    let subscription = by_hand::subscribe(queue, "charge-row", Duration::from_secs(5)).await?;
    consume(Consumer::builder(Arc::new(subscription)).receiver(Arc::new(receiver))).await?;
    scene
        .story
        .tell("the same in one transaction: a try that fails is rolled back with its marker");
    let mut statement =
        billing.prepare(include_str!("../../sql/demo/list_charges.sql")).map_err(trouble)?;
    let rows = statement.query_map((), |row| row.get::<_, String>(0)).map_err(trouble)?;
    Ok(rows.count())
}

/// Consumes one message, however many tries it takes.
async fn consume(builder: postrider_inbox::ConsumerBuilder) -> Result<(), Failure> {
    let retry = RetryPolicy { delay_min: Duration::from_millis(100), ..RetryPolicy::default() };
    let options = ConsumerOptions { retry, ..ConsumerOptions::default() };
    let consumer = builder.options(options).start()?;
    let done = consumer.reached(|stats, _| stats.done > 0);
    let in_time = tokio::time::timeout(scene::PATIENCE, done).await;
    consumer.drain(Duration::from_secs(1));
    consumer.stopped().await;
    in_time.map(drop).map_err(|_| Failure::plain("the consumer did not come to an end"))
}
