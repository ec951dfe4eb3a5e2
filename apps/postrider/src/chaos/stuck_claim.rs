//! `stuck-claim`: a worker claims an event for ten seconds and dies. Its message is back after five, while
//! the claim still stands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{Claim, ClaimRequest, Event, HandlerName};
use postrider_inbox::{Consumer, Performed};

use crate::chaos::bank::Bank;
use crate::chaos::by_hand::{self, ByHand};
use crate::chaos::queue::Queue;
use crate::chaos::scene::{self, HANDLER, RECEIVES_MAX, Scene};
use crate::failure::Failure;

/// How long the dead worker's claim stands.
const LEASE: Duration = Duration::from_secs(10);

/// How long a message stays with a worker that says nothing.
const VISIBILITY: Duration = Duration::from_secs(5);

/// The visibility of the wrong way, whose outcome does not depend on it.
const SOON: Duration = Duration::from_millis(200);

pub(crate) async fn play(scene: &mut Scene) -> Result<(), Failure> {
    scene.story.wrong("a list of ids that were seen, written before the work begins");
    let (charges, gone) = see_and_vanish(scene).await?;
    let text = format!("the queue is empty, and the customer was charged {charges} times");
    scene.story.judge(text, charges == 0 && gone);

    scene.story.right("a claim with a lease of 10 s, and a message that is back after 5 s");
    let charges = match scene.is_guarded() {
        true => claim_and_vanish(scene).await?,
        false => see_and_vanish(scene).await?.0,
    };
    scene.story.judge("the customer was charged once", charges == 1);
    Ok(())
}

/// A worker writes the id down and vanishes; the next one believes the list. How often the customer was charged, and
/// whether the message is gone.
async fn see_and_vanish(scene: &mut Scene) -> Result<(usize, bool), Failure> {
    let queue = scene.lay("by-hand", RECEIVES_MAX).await?;
    let seen = ByHand::open(&scene.path("by-hand-inbox.db"))?;
    let bank = Bank::default();
    queue.send(by_hand::message("1")).await?;
    let workers = queue.subscribe(SOON).await?;
    for worker in 1..=2 {
        let Some((delivery, event)) = by_hand::next(&*workers, scene::PATIENCE).await? else {
            return Err(Failure::plain("the message of the wrong way did not come"));
        };
        let is_new = seen.see(event.id)?;
        if is_new && worker == 1 {
            scene.story.tell("worker 1 writes the id down, and dies");
            continue;
        }
        let mut told = "finds the id, and acknowledges: a duplicate";
        if is_new {
            bank.charge_anew(&event.aggregate_id);
            told = "writes the id down, charges, and acknowledges";
        }
        workers.ack(&delivery).await?;
        scene.story.tell(format!("worker {worker} {told}"));
    }
    // Longer than a message stays with a worker that said nothing.
    let gone = by_hand::next(&*workers, 2 * queue.visibility(SOON)).await?.is_none();
    Ok((bank.charges("1"), gone))
}

/// A worker claims and vanishes. One successor is a bare loop that leaves on the queue what is leased;
/// another is the consumer engine, with a handler and a queue of its own.
async fn claim_and_vanish(scene: &mut Scene) -> Result<usize, Failure> {
    let queue = scene.lay("queue", RECEIVES_MAX).await?;
    let beside_it = scene.lay("engine", RECEIVES_MAX).await?;
    let sent = by_hand::message("1");
    let event = Arc::clone(&sent.event);
    for handler in [HANDLER, ENGINE] {
        claim(scene, &event, handler).await?;
    }
    let claimed = Instant::now();
    scene.story.tell("a worker claims the event for 10 s, and dies");
    queue.send(sent.clone()).await?;
    beside_it.send(sent).await?;
    let bank = Arc::new(Bank::default());
    let beside = Arc::new(Bank::default());
    let engine = start_engine(scene, &beside_it, &beside).await?;
    let leased = try_until_done(scene, &queue, &bank).await?;
    let took = claimed.elapsed();
    scene.story.judge("two answers were `leased`, and the message stayed queued", leased == 2);
    let charged_late = took >= LEASE && took < LEASE + VISIBILITY;
    let text =
        format!("the claim was taken over when it ran out, after {:.1} s", took.as_secs_f64());
    scene.story.judge(text, charged_late);
    let done = tokio::time::timeout(VISIBILITY, engine.reached(|stats, _| stats.done > 0));
    let stats = done.await.unwrap_or_else(|_| engine.stats());
    engine.drain(Duration::from_secs(1));
    engine.stopped().await;
    let once = stats.done == 1 && stats.rejected == 0 && beside.charges("1") == 1;
    let text = format!(
        "Postrider's own consumer waited for the rest at once: asked {} times, charged once",
        stats.busy + 1
    );
    scene.story.judge(text, once && stats.busy >= 1);
    Ok(bank.charges("1"))
}

/// The handler behind the consumer engine.
const ENGINE: &str = "charge-by-engine";

async fn claim(scene: &Scene, event: &Event, handler: &str) -> Result<(), Failure> {
    let request = ClaimRequest::new(event, &HandlerName::new(handler)?, LEASE)?;
    match scene.store.inbox.claim(&request).await? {
        Claim::Claimed(_) => Ok(()),
        other => Err(Failure::plain(format!("the first claim was answered {other:?}"))),
    }
}

async fn start_engine(
    scene: &Scene,
    queue: &Queue,
    bank: &Arc<Bank>,
) -> Result<postrider_inbox::ConsumerHandle, Failure> {
    let subscription = queue.subscribe(VISIBILITY).await?;
    let receiver = Arc::new(scene.payer_named(ENGINE, bank)?);
    Ok(Consumer::builder(subscription).receiver(receiver).start()?)
}

/// Tries each delivery, leaves what is leased where it is, and says how often that was.
async fn try_until_done(
    scene: &mut Scene,
    queue: &Queue,
    bank: &Arc<Bank>,
) -> Result<usize, Failure> {
    let workers = queue.subscribe(VISIBILITY).await?;
    let payer = scene.payer(bank)?;
    let mut leased = 0;
    while let Some((delivery, event)) = by_hand::next(&*workers, scene::PATIENCE).await? {
        match payer.perform(&event).await? {
            Performed::Busy(rest) => {
                leased += 1;
                let text = format!(
                    "delivery {leased}: leased, for {:.1} s more; left on the queue",
                    rest.as_secs_f64()
                );
                scene.story.tell(text);
            }
            Performed::Now(_) => {
                workers.ack(&delivery).await?;
                scene
                    .story
                    .tell(format!("delivery {}: claimed, charged, acknowledged", leased + 1));
                return Ok(leased);
            }
            other => return Err(Failure::plain(format!("a claim was answered {other:?}"))),
        }
    }
    Err(Failure::plain("the message did not come back"))
}
