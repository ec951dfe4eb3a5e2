//! `broker-down`: the broker is away when the change is committed.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::Outcome;
use postrider_local::LocalBroker;

use crate::chaos::by_hand;
use crate::chaos::faulty::Faulty;
use crate::chaos::scene::{self, Scene};
use crate::failure::Failure;

/// Two events of each of two orders.
const ORDERS: [&str; 4] = ["1", "2", "1", "2"];

/// How long the broker is away.
const AWAY: Duration = Duration::from_secs(2);

pub(crate) async fn play(scene: &mut Scene) -> Result<(), Failure> {
    scene.story.wrong("commit, then publish, and log the error if that fails");
    let queue = scene.queue("by-hand")?;
    let arrived = commit_and_hope(scene, &queue).await?;
    let text = format!("{} changes committed, {arrived} told to the world", ORDERS.len());
    scene.story.judge(text, arrived < ORDERS.len());

    scene.story.right("the events are committed with the orders; the relay keeps asking");
    let queue = scene.queue("queue")?;
    let arrived = match scene.is_guarded() {
        true => commit_both(scene, &queue).await?,
        false => commit_and_hope(scene, &queue).await?,
    };
    scene.story.judge("every change was told", arrived == ORDERS.len());
    Ok(())
}

/// Publishes after each commit, to a broker that comes back for the last one.
async fn commit_and_hope(scene: &mut Scene, queue: &LocalBroker) -> Result<usize, Failure> {
    let (broker, faults) = Faulty::of(Arc::new(queue.clone()));
    faults.set_away(true);
    for (index, order) in ORDERS.iter().enumerate() {
        faults.set_away(index + 1 < ORDERS.len());
        let answer = broker.publish(&[by_hand::message(order)]).await;
        if !answer.is_ok_and(|outcomes| outcomes == [Outcome::Acked]) {
            scene.story.tell(format!(
                "a change of order {order} is committed; publishing failed, and is logged"
            ));
        }
    }
    Ok(scene::log(queue).await?.len())
}

async fn commit_both(scene: &mut Scene, queue: &LocalBroker) -> Result<usize, Failure> {
    let (broker, faults) = Faulty::of(Arc::new(queue.clone()));
    faults.set_away(true);
    let relay = scene.start_relay(broker).await?;
    let ids = scene.commit(&ORDERS).await?;
    scene.story.tell(format!("{} changes are committed while the broker is away", ids.len()));
    tokio::time::sleep(AWAY).await; // waits: it is the outage
    let health = relay.health().borrow().clone();
    let empty = scene::log(queue).await?.is_empty();
    let asked = faults.missed();
    scene.story.tell(format!("the relay asked {asked} times; health says {}", blockers(&health)));
    let kept = empty && asked > 1 && !health.blockers.is_empty();
    scene.story.judge("nothing is lost, and health names what holds it", kept);
    faults.set_away(false);
    scene.story.tell("the broker is back");
    scene::has_arrived(queue, ORDERS.len()).await?;
    let health = relay.health().borrow().clone();
    scene::stop(relay).await;
    let (counted, dead) = (health.failures, health.dead);
    scene.story.judge("no attempt was counted for the outage", counted == 0 && dead == 0);
    let log = scene::log(queue).await?;
    let right =
        scene::keeps_every_promise(&ids, &ORDERS, scene::arrivals(&log)) && log.len() == ids.len();
    scene.story.judge("they arrived once each, and each order's in its order", right);
    Ok(log.len())
}

fn blockers(health: &postrider_relay::Health) -> String {
    let texts: Vec<String> = health.blockers.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
