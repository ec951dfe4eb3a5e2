//! `poison`: one message is refused for good, and others stand behind it.

use postrider_core::Outcome;
use postrider_core::operate::{Filter, Note, PageRequest, RowKey, Status, Submission, Verb};
use postrider_core::waiting::Counts;

use crate::chaos::by_hand::{self, ByHand};
use crate::chaos::faulty::{Faults, Faulty};
use crate::chaos::scene::{self, DESTINATION, Scene};
use crate::failure::Failure;

/// Two events of each of four orders.
const ORDERS: [&str; 8] = ["1", "2", "3", "4", "1", "2", "3", "4"];

/// The order that is refused.
const POISON: &str = "2";

/// Events that are no business of the refused order.
const OTHERS: usize = 6;

/// How often the loop of the wrong way comes round.
const ROUNDS: u32 = 5;

pub(crate) async fn play(scene: &mut Scene) -> Result<(), Failure> {
    scene
        .story
        .wrong("a loop that sends the oldest, and stops at the first error to keep the order");
    let sent = stop_at_the_first(scene, "by-hand").await?;
    let text = format!("{sent} of {} arrived, and nothing else ever will", ORDERS.len());
    scene.story.judge(text, sent < OTHERS);

    scene.story.right("the event becomes a dead letter, and only its own order waits");
    let sent = match scene.is_guarded() {
        true => set_aside(scene).await?,
        false => stop_at_the_first(scene, "without-a-guard").await?,
    };
    scene.story.judge("everything arrived in the end", sent == ORDERS.len());
    Ok(())
}

async fn stop_at_the_first(scene: &mut Scene, name: &str) -> Result<usize, Failure> {
    let queue = scene.lay_in_order(name).await?;
    let outbox = ByHand::open(&scene.path(&format!("{name}-shop.db")))?;
    for order in ORDERS {
        outbox.write(order)?;
    }
    let (broker, faults) = Faulty::of(queue.broker()?);
    faults.refuse(Some(POISON));
    for _ in 0..ROUNDS {
        for (number, order) in outbox.unsent()? {
            let answer = broker.publish(&[by_hand::message(&order)]).await?;
            if answer != [Outcome::Acked] {
                break;
            }
            outbox.mark(number)?;
        }
    }
    scene.story.tell(format!("order {POISON} is refused; {ROUNDS} rounds later it still is"));
    queue.count().await
}

async fn set_aside(scene: &mut Scene) -> Result<usize, Failure> {
    let queue = scene.lay_in_order("queue").await?;
    let (broker, faults) = Faulty::of(queue.broker()?);
    faults.refuse(Some(POISON));
    let relay = scene.start_relay(broker).await?;
    let ids = scene.commit(&ORDERS).await?;
    let others = queue.has(OTHERS).await?;
    scene.story.judge(format!("all {OTHERS} events of the other orders arrived"), others);
    scene::until(async || Ok(waiting(scene).await?.total() == 2)).await?;
    let counts = waiting(scene).await?;
    let aside = (counts.dead, counts.parked, counts.total()) == (1, 1, 2);
    scene.story.judge("one dead letter, and one event parked behind it", aside);
    redrive(scene, &faults).await?;
    let all = queue.has(ORDERS.len()).await?;
    scene::stop(relay).await;
    let log = queue.arrived().await?;
    let right = all && scene::keeps_every_promise(&ids, &ORDERS, log.iter().copied());
    scene.story.judge("the order's events came in their order", right);
    Ok(log.len())
}

/// Mends what was wrong, and sends the dead letter again as an operator does.
async fn redrive(scene: &mut Scene, faults: &Faults) -> Result<(), Failure> {
    let mut filter = Filter::default();
    filter.status = vec![Status::Dead];
    let page = PageRequest { after: None, limit: 10 };
    let dead = scene.store.operator.waiting(&filter, &page).await?;
    let rows: Vec<RowKey> = dead
        .rows
        .iter()
        .map(|row| RowKey { destination: row.destination.clone(), seq: row.seq })
        .collect();
    let note = Note::new("chaos", "the currency is known now")?;
    faults.refuse(None);
    let request =
        scene.store.operator.submit(&Submission { verb: Verb::Redrive(rows), note }).await?;
    scene.story.tell("the cause is mended; an operator sends the dead letter again");
    let done = scene::until(async || Ok(scene.store.operator.request(request).await?.finished));
    match done.await? {
        true => Ok(()),
        false => Err(Failure::plain("the relay did not carry the request out")),
    }
}

/// What waits at the destination.
async fn waiting(scene: &Scene) -> Result<Counts, Failure> {
    let overview = scene.store.operator.overview().await?;
    let here = overview.destinations.into_iter().find(|one| one.id.as_str() == DESTINATION);
    Ok(here.map(|one| one.waiting).unwrap_or_default())
}
