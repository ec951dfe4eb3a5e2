//! `lost-ack`: the broker stores a batch, and its answer is lost. Whoever sends is right to send again;
//! whoever receives must cope.

use std::sync::Arc;
use std::time::Duration;

use postrider_inbox::Consumer;

use crate::chaos::bank::Bank;
use crate::chaos::by_hand;
use crate::chaos::faulty::Faulty;
use crate::chaos::queue::Queue;
use crate::chaos::scene::{self, RECEIVES_MAX, Scene};
use crate::failure::Failure;

/// How long a message stays with a consumer that says nothing.
const VISIBILITY: Duration = Duration::from_secs(30);

const ORDERS: [&str; 3] = ["1", "2", "3"];

pub(crate) async fn play(scene: &mut Scene) -> Result<(), Failure> {
    scene.story.wrong("a consumer that charges whatever comes, and acknowledges it");
    let queue = doubled(scene, "by-hand").await?;
    let bank = Bank::default();
    let came = by_hand::charge_without_inbox(&queue, &bank).await?;
    scene.story.tell(format!("{came} messages came for {} orders", ORDERS.len()));
    let most = ORDERS.iter().map(|order| bank.charges(order)).max().unwrap_or(0);
    scene.story.judge(format!("a customer was charged {most} times"), most == 2);

    scene.story.right("the same again, and a consumer with an inbox");
    let queue = doubled(scene, "queue").await?;
    let bank = Arc::new(Bank::default());
    match scene.is_guarded() {
        true => consume(scene, &queue, &bank).await?,
        false => {
            by_hand::charge_without_inbox(&queue, &bank).await?;
        }
    }
    let once = ORDERS.iter().all(|order| bank.charges(order) == 1);
    scene.story.judge("each customer was charged once", once);
    Ok(())
}

/// Has a relay send the orders to a queue that loses its first answer.
async fn doubled(scene: &mut Scene, name: &str) -> Result<Queue, Failure> {
    let queue = scene.lay(name, RECEIVES_MAX).await?;
    let ids = scene.commit(&ORDERS).await?;
    scene.story.tell(format!("{} orders are committed with their events", ids.len()));
    let (broker, faults) = Faulty::of(queue.broker()?);
    faults.lose_next_answer();
    let relay = scene.start_relay(broker).await?;
    let sent_again = scene::until(async || {
        let settled = relay.health().borrow().delivered >= ids.len() as u64;
        Ok(faults.answer_was_lost() && settled && queue.count().await? > ids.len())
    });
    let sent_again = sent_again.await?;
    scene::stop(relay).await;
    if !sent_again {
        return Err(Failure::plain("no answer was lost, or nothing was sent again"));
    }
    scene.story.tell("the broker stores a batch, its answer is lost, the relay sends again");
    Ok(queue)
}

async fn consume(scene: &mut Scene, queue: &Queue, bank: &Arc<Bank>) -> Result<(), Failure> {
    let subscription = queue.subscribe(VISIBILITY).await?;
    let messages = queue.count().await? as u64;
    let receiver = Arc::new(scene.payer(bank)?);
    let consumer = Consumer::builder(subscription).receiver(receiver).start()?;
    let all = consumer.reached(|stats, _| stats.done + stats.duplicates >= messages);
    let stats = tokio::time::timeout(scene::PATIENCE, all)
        .await
        .map_err(|_| Failure::plain("the consumer did not come to the end of its queue"))?;
    consumer.drain(Duration::from_secs(1));
    consumer.stopped().await;
    let text = format!("{} acted on, {} recognised as duplicates", stats.done, stats.duplicates);
    scene.story.tell(text);
    let absorbed = stats.done == ORDERS.len() as u64 && stats.duplicates >= 1;
    scene.story.judge("the second copies were acknowledged, and nothing was done", absorbed);
    Ok(())
}
