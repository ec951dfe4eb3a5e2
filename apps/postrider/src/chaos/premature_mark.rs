//! `premature-mark`: "sent" is written before the sending, and the sender dies in between.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::Broker;
use postrider_local::LocalBroker;
use postrider_relay::Point;

use crate::chaos::by_hand::{self, ByHand};
use crate::chaos::held::HoldAt;
use crate::chaos::scene::{self, DESTINATION, Scene};
use crate::failure::Failure;
use crate::target;

pub(crate) async fn play(scene: &mut Scene) -> Result<(), Failure> {
    scene.story.wrong("a sender that marks the row, then publishes");
    let queue = scene.queue("by-hand")?;
    let sent = mark_and_vanish(scene, &queue).await?;
    let text = format!("committed, marked as sent, and {sent} messages in the broker: it is lost");
    scene.story.judge(text, sent == 0);

    scene.story.right("a relay is gone at the same moment: it has read, and not sent");
    let queue = scene.queue("queue")?;
    let arrived = match scene.is_guarded() {
        true => read_and_vanish(scene, &queue).await?,
        false => mark_and_vanish(scene, &queue).await?,
    };
    scene.story.judge("the event arrived after all", arrived == 1);
    Ok(())
}

/// Marks an order as sent and sends nothing; the next sender looks for what is not marked.
async fn mark_and_vanish(scene: &mut Scene, queue: &LocalBroker) -> Result<usize, Failure> {
    let outbox = ByHand::open(&scene.path("by-hand-shop.db"))?;
    outbox.write("1")?;
    for (number, _) in outbox.unsent()? {
        outbox.mark(number)?;
        scene.story.tell("the row says sent = 1; the process is killed before it publishes");
    }
    for (_, order) in outbox.unsent()? {
        by_hand::send(queue, by_hand::message(&order)).await?;
    }
    scene.story.tell("the next process finds nothing that is not sent");
    Ok(scene::log(queue).await?.len())
}

/// Takes a relay away before it publishes, and lets another one come.
async fn read_and_vanish(scene: &mut Scene, queue: &LocalBroker) -> Result<usize, Failure> {
    scene.commit(&["1"]).await?;
    let (hold, reached) = HoldAt::new(Point::BeforePublish);
    let broker: Arc<dyn Broker> = Arc::new(queue.clone());
    let definition = target::definition(DESTINATION)?;
    let builder = scene.relay().destination(definition, Arc::clone(&broker));
    let first = builder.observer(Arc::new(hold)).start().await?;
    if tokio::time::timeout(scene::PATIENCE, reached.notified()).await.is_err() {
        return Err(Failure::plain("the relay did not come to the moment before it publishes"));
    }
    first.abort();
    first.stopped().await;
    scene.story.tell("the relay vanishes between reading and publishing");
    let overview = scene.store.operator.overview().await?;
    let settled: u64 = overview.destinations.iter().map(|one| one.settled.acked).sum();
    let empty = scene::log(queue).await?.is_empty();
    scene.story.judge("nothing was sent, and nothing says that it was", settled == 0 && empty);
    let second = scene.start_relay(broker).await?;
    let arrived = scene::has_arrived(queue, 1).await?;
    scene::stop(second).await;
    if arrived {
        scene.story.tell("the next relay takes the lease over, reads it again, and sends it");
    }
    // Long enough for a second copy to show, if there were one.
    tokio::time::sleep(Duration::from_millis(100)).await; // waits: for what should not come
    Ok(scene::log(queue).await?.len())
}
