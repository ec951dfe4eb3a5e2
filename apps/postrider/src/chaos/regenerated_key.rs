//! `regenerated-key`: each try to send mints a new id, and the inbox, which is there, knows none of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::Subscription as _;
use postrider_inbox::Performed;
use postrider_local::LocalBroker;

use crate::chaos::bank::Bank;
use crate::chaos::by_hand;
use crate::chaos::faulty::Faulty;
use crate::chaos::scene::{self, HANDLER, Scene};
use crate::failure::Failure;

pub(crate) async fn play(scene: &mut Scene) -> Result<(), Failure> {
    scene.story.wrong("a sender that makes the message, and its id, anew at each try");
    let queue = scene.queue("by-hand")?;
    send_by_hand(scene, &queue).await?;
    let charges = receive(scene, &queue).await?;
    scene
        .story
        .judge(format!("the inbox saw two ids: {charges} charges for one order"), charges == 2);

    scene.story.right("the id is minted once, when the event is committed");
    let queue = scene.queue("queue")?;
    match scene.is_guarded() {
        true => send(scene, &queue).await?,
        false => send_by_hand(scene, &queue).await?,
    }
    let ids: BTreeSet<_> =
        scene::log(&queue).await?.iter().map(|message| message.event.id).collect();
    let charges = receive(scene, &queue).await?;
    scene.story.judge("both copies have one id", ids.len() == 1);
    scene.story.judge("the customer was charged once", charges == 1);
    Ok(())
}

/// Sends until an answer comes.
async fn send_by_hand(scene: &mut Scene, queue: &LocalBroker) -> Result<(), Failure> {
    let (broker, faults) = Faulty::of(Arc::new(queue.clone()));
    faults.lose_next_answer();
    for attempt in 1..=2 {
        let message = by_hand::message("1");
        let id = message.event.id;
        let answered = broker.publish(&[message]).await.is_ok();
        let answer = if answered { "stored" } else { "stored, and the answer is lost" };
        scene.story.tell(format!("try {attempt} sends {id}: {answer}"));
    }
    Ok(())
}

async fn send(scene: &mut Scene, queue: &LocalBroker) -> Result<(), Failure> {
    let ids = scene.commit(&["1"]).await?;
    scene.story.tell(format!("the order is committed with its event {}", ids[0]));
    let (broker, faults) = Faulty::of(Arc::new(queue.clone()));
    faults.lose_next_answer();
    let relay = scene.start_relay(broker).await?;
    let twice = scene::has_arrived(queue, 2).await?;
    scene::stop(relay).await;
    if !twice {
        return Err(Failure::plain("the answer was lost, and the relay did not send again"));
    }
    scene.story.tell("the answer to the first try is lost; the relay sends the same event again");
    Ok(())
}

/// Lets a handler behind the inbox have everything; how often the order was charged.
async fn receive(scene: &mut Scene, queue: &LocalBroker) -> Result<usize, Failure> {
    let bank = Arc::new(Bank::default());
    let payer = scene.payer(&bank)?;
    let subscription = by_hand::subscribe(queue, HANDLER, Duration::from_secs(5)).await?;
    for _ in scene::log(queue).await? {
        let Some((delivery, event)) = by_hand::next(&subscription, scene::PATIENCE).await? else {
            return Err(Failure::plain("a message that is in the log did not come"));
        };
        let outcome = match payer.perform(&event).await? {
            Performed::Now(_) => "acted on",
            Performed::Before(_) => "known: acknowledged, nothing done",
            other => return Err(Failure::plain(format!("the inbox answered {other:?}"))),
        };
        subscription.ack(&delivery).await?;
        scene.story.tell(format!("the inbox says of {}: {outcome}", event.id));
    }
    Ok(bank.charges("1"))
}
