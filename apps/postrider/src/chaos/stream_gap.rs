//! `stream-gap`: a change stream keeps what it has for a while, and its reader is away for longer.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::Broker;
use postrider_local::{LocalBroker, PurgeOptions};
use postrider_relay::Retention;

use crate::chaos::by_hand;
use crate::chaos::faulty::Faulty;
use crate::chaos::scene::{self, DESTINATION, Scene, TOPIC};
use crate::failure::Failure;
use crate::target;

const ORDERS: [&str; 8] = ["1", "2", "3", "1", "2", "3", "1", "2"];

/// The reader reads so many, is away for the rest of the first part, and comes back.
const READ: usize = 2;

/// What is there when the stream is trimmed.
const BEFORE: usize = 5;

pub(crate) async fn play(scene: &mut Scene) -> Result<(), Failure> {
    scene.story.wrong("a reader of a change stream that keeps its position, and nothing else");
    let read = read_a_stream(scene).await?;
    let text = format!("{} changes were made, {read} were read, and nobody noticed", ORDERS.len());
    scene.story.judge(text, read < ORDERS.len());

    scene.story.right(scene_of(scene));
    let read = match scene.is_guarded() {
        #[cfg(feature = "dynamodb")]
        true if scene.tables.is_some() => read_an_index(scene).await?,
        true => read_an_outbox(scene).await?,
        false => read_a_stream(scene).await?,
    };
    scene.story.judge("every change arrived", read == ORDERS.len());
    Ok(())
}

#[cfg(feature = "dynamodb")]
fn scene_of(scene: &Scene) -> &'static str {
    match scene.tables {
        Some(_) => "an outbox table whose stream is switched off while events are written",
        None => RETENTION,
    }
}

#[cfg(not(feature = "dynamodb"))]
fn scene_of(_: &Scene) -> &'static str {
    RETENTION
}

/// The misfortune where there is no stream to lose.
const RETENTION: &str = "an outbox with the shortest retention, and a destination that is away";

/// Reads, goes away, comes back after the trim, and goes on behind its position.
async fn read_a_stream(scene: &mut Scene) -> Result<usize, Failure> {
    let stream = scene.queue("stream")?;
    let before = scene::log(&stream).await?.len();
    let mut position = scene::log(&stream).await?.last().map_or(0, |last| last.offset);
    for order in &ORDERS[..BEFORE] {
        by_hand::send(&stream, by_hand::message(order)).await?;
    }
    let first = stream.messages_after(TOPIC, position, READ).await?;
    position = first.last().map_or(position, |last| last.offset);
    scene.story.tell(format!("it reads {} of {BEFORE}, and is away", first.len()));
    // Old means at least a millisecond.
    tokio::time::sleep(Duration::from_millis(5)).await; // waits: for the messages to be old
    let everything =
        PurgeOptions { older_than: Duration::ZERO, unread: true, ..PurgeOptions::default() };
    let gone = stream.purge(everything).await?;
    scene
        .story
        .tell(format!("the stream's retention passes: {} are trimmed", gone as usize - before));
    for order in &ORDERS[BEFORE..] {
        by_hand::send(&stream, by_hand::message(order)).await?;
    }
    let rest = stream.messages_after(TOPIC, position, ORDERS.len()).await?;
    scene.story.tell(format!("it comes back and reads {} more behind its position", rest.len()));
    Ok(first.len() + rest.len())
}

/// Two destinations, one of them away; what is old may go at once.
async fn read_an_outbox(scene: &mut Scene) -> Result<usize, Failure> {
    let (late, live) = (scene.queue("queue")?, scene.queue("live")?);
    let (broker, faults) = Faulty::of(Arc::new(late.clone()));
    faults.set_away(true);
    let retention =
        Retention { every: Duration::from_millis(100), ..Retention::of(Duration::from_millis(1)) };
    let settings = postrider_relay::Settings { retention: Some(retention), ..scene::settings() };
    let live_broker: Arc<dyn Broker> = Arc::new(live.clone());
    let relay = scene
        .relay()
        .destination(target::definition(DESTINATION)?, broker)
        .destination(target::definition("live")?, live_broker)
        .settings(settings)
        .start()
        .await?;
    let mut ids = scene.commit(&ORDERS[..BEFORE]).await?;
    scene::has_arrived(&live, BEFORE).await?;
    scene.story.tell("one destination has everything; the other is away, for 2 s of retentions");
    tokio::time::sleep(Duration::from_secs(2)).await; // waits: it is the absence
    let retired = relay.health().borrow().retired;
    scene.story.judge("nothing that one still needs was deleted", retired == 0);
    ids.extend(scene.commit(&ORDERS[BEFORE..]).await?);
    faults.set_away(false);
    scene.story.tell("it comes back");
    scene::has_arrived(&late, ORDERS.len()).await?;
    let (file, look) = (scene.store.postgres.is_none(), async || {
        Ok(relay.health().borrow().retired >= ORDERS.len() as u64)
    });
    // The tables of PostgreSQL go as a whole when they are full, and none of these is.
    if file {
        let gone = scene::until(look).await?;
        scene.story.judge("what everybody has is deleted, so the retention was real", gone);
    }
    scene::stop(relay).await;
    let log = arrived(&late).await?;
    let right = scene::keeps_every_promise(&ids, &ORDERS, scene::arrivals(&log));
    scene.story.judge("nothing is missing, and each order's changes are in their order", right);
    Ok(log.len())
}

/// A relay at a table's stream, which is gone for most of the events: they are in no stream, and in the index.
#[cfg(feature = "dynamodb")]
async fn read_an_index(scene: &mut Scene) -> Result<usize, Failure> {
    let fail = || Failure::plain("these scenes are played on DynamoDB");
    let queue = scene.queue("queue")?;
    let tables = scene.tables.as_ref().ok_or_else(fail)?;
    let relay = scene.start_relay(Arc::new(queue.clone())).await?;
    let mut ids = scene.commit(&ORDERS[..READ]).await?;
    let live = scene::has_arrived(&queue, READ).await?;
    tables.switch_stream(false).await?;
    scene.story.judge("the first changes came", live);
    scene.story.tell("the table's stream is switched off, and the relay is not told");
    ids.extend(scene.commit(&ORDERS[READ..]).await?);
    let gone = ORDERS.len() - READ;
    scene.story.tell(format!("{gone} more changes are committed: they are in no stream"));
    let found = scene::has_arrived(&queue, ORDERS.len()).await?;
    scene.story.judge("the backstop found them in the index", found);
    let tables = scene.tables.as_ref().ok_or_else(fail)?;
    tables.switch_stream(true).await?;
    scene.story.tell("another stream is switched on, which knows nothing of them");
    scene::stop(relay).await;
    let log = arrived(&queue).await?;
    let right = scene::keeps_every_promise(&ids, &ORDERS, scene::arrivals(&log));
    scene.story.judge("nothing is missing, and each order's changes are in their order", right);
    Ok(log.len())
}

async fn arrived(queue: &LocalBroker) -> Result<Vec<postrider_local::StoredMessage>, Failure> {
    scene::log(queue).await
}
