//! `two-relays`: two senders work on one outbox, and one of them vanishes.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::Broker;
use postrider_relay::RelayHandle;

use crate::chaos::by_hand::{self, ByHand};
use crate::chaos::scene::{self, Scene};
use crate::failure::Failure;

/// Two events of each of three orders.
const ORDERS: [&str; 6] = ["1", "2", "3", "1", "2", "3"];

pub(crate) async fn play(scene: &mut Scene) -> Result<(), Failure> {
    scene.story.wrong("two processes that both look for what is not sent");
    let sent = look_twice(scene, "by-hand").await?;
    let text = format!("{} changes, {sent} messages: each went out twice", ORDERS.len());
    scene.story.judge(text, sent == 2 * ORDERS.len());

    scene.story.right("two relays on one store: each partition has one owner, by a lease");
    let sent = match scene.is_guarded() {
        true => share(scene).await?,
        false => look_twice(scene, "without-a-guard").await?,
    };
    scene.story.judge("while both lived, each event went out once", sent == ORDERS.len());
    Ok(())
}

/// Both look before either has marked.
async fn look_twice(scene: &mut Scene, name: &str) -> Result<usize, Failure> {
    let queue = scene.queue(name)?;
    let path = scene.path(&format!("{name}-shop.db"));
    let senders = [ByHand::open(&path)?, ByHand::open(&path)?];
    for order in ORDERS {
        senders[0].write(order)?;
    }
    let found = [senders[0].unsent()?, senders[1].unsent()?];
    scene.story.tell("both read the same rows, before either has marked one");
    for (sender, rows) in senders.into_iter().zip(found) {
        for (number, order) in rows {
            by_hand::send(&queue, by_hand::message(&order)).await?;
            sender.mark(number)?;
        }
    }
    Ok(scene::log(&queue).await?.len())
}

/// Two relays in peace, and then one that vanishes without a word. How many messages there were in peace.
async fn share(scene: &mut Scene) -> Result<usize, Failure> {
    let queue = scene.queue("queue")?;
    let broker: Arc<dyn Broker> = Arc::new(queue.clone());
    let mut relays = Vec::new();
    for _ in 0..2 {
        relays.push(scene.start_relay(Arc::clone(&broker)).await?);
    }
    let mut ids = scene.commit(&ORDERS).await?;
    let mut orders = ORDERS.to_vec();
    scene::has_arrived(&queue, ids.len()).await?;
    // A second copy would be here within the time of several looks.
    tokio::time::sleep(Duration::from_millis(300)).await; // waits: for what should not come
    let peaceful = scene::log(&queue).await?.len();
    let owned: Vec<u16> = relays.iter().map(partitions).collect();
    scene.story.tell(format!("partitions owned: {} by one, {} by the other", owned[0], owned[1]));

    let owner = usize::from(partitions(&relays[0]) < partitions(&relays[1]));
    let first = relays.swap_remove(owner);
    first.abort();
    first.stopped().await;
    scene.story.tell("the one that owns most vanishes without a word");
    ids.extend(scene.commit(&ORDERS).await?);
    orders.extend(ORDERS);
    let everything = async || {
        let log = scene::log(&queue).await?;
        Ok(ids.iter().all(|id| log.iter().any(|message| message.event.id == *id)))
    };
    let all = scene::until(everything).await?;
    for relay in relays {
        scene::stop(relay).await;
    }
    let right = all
        && scene::keeps_every_promise(&ids, &orders, scene::arrivals(&scene::log(&queue).await?));
    scene.story.judge("the other took over; nothing lost, each order's changes in order", right);
    Ok(peaceful)
}

fn partitions(relay: &RelayHandle) -> u16 {
    relay.health().borrow().partitions
}
