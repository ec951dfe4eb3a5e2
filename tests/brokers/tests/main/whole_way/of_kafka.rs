//! What Kafka's client does not do by itself: count deliveries across processes, and outlive a wall clock that steps back.

use std::time::{Duration, Instant};

use postrider_core::EventId;

use super::WholeWay;
use crate::kafka::Kafka;
use crate::outbox::Store;
use crate::server::Server as _;
use crate::stage::PATIENCE;

/// An outbox of which one event ends the process of a consumer, told the word. Says which it is.
async fn poisoned(word: &str) -> Option<(WholeWay<Kafka>, EventId)> {
    let mut way = WholeWay::<Kafka>::open(Store::Sqlite).await?;
    way.outbox.write(30).await;
    let poison = way.outbox.committed().await[3].id;
    way.words = vec![word.to_owned(), poison.to_string()];
    way.relays = vec![way.relay()];
    way.consumers = vec![way.consumer()];
    Some((way, poison))
}

/// F19, R079: an event that ends its process is refused at last, though Kafka counts no deliveries and a new process knows
/// nothing of them, and takes nobody along who was beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_ends_its_process_is_found_out_at_kafka() {
    let Some((mut way, poison)) = poisoned("poison").await else { return };
    way.acted(29).await;
    way.settled().await;
    let effects = way.effects().await;
    assert!(effects.len() == 29 && !effects.contains(&poison), "{effects:?}");
    let fallen = way.fallen;
    assert_eq!(fallen, 2, "{}", way.log());
}

/// The control: who knows nothing of earlier processes is ended for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_forgets_what_was_begun_is_ended_for_ever() {
    let Some((mut way, _)) = poisoned("forgetful").await else { return };
    let begun = Instant::now();
    while way.fallen < 5 {
        let fallen = way.fallen;
        assert!(begun.elapsed() < PATIENCE, "{fallen} fell\n{}", way.log());
        way.revive();
        // waits: another process falls
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!way.server.is_settled().await);
}

/// F12: the wall clock steps back by ten minutes while the server is away, which threads of Kafka's client may wait for. Relay
/// and consumer say so, and go on with another client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_back_stops_nobody_at_kafka() {
    let Some(mut way) = WholeWay::<Kafka>::open(Store::Sqlite).await else { return };
    (way.relays, way.consumers) = (vec![way.relay()], vec![way.consumer()]);
    way.outbox.write(20).await;
    way.acted(20).await;
    way.step_clock("+10m");
    // waits: until they have heard of it
    tokio::time::sleep(Duration::from_secs(2)).await;
    way.outbox.write(20).await;
    way.acted(40).await;
    way.server.crash().await;
    way.outbox.write(20).await;
    // waits: until their clients' threads wait by that clock before they look for the server again
    tokio::time::sleep(Duration::from_secs(5)).await;
    way.step_clock("+0");
    // waits: until they have heard of that as well
    tokio::time::sleep(Duration::from_secs(3)).await;
    way.outbox.write(20).await;
    way.acted(80).await;
    way.settled().await;
    let verdict = way.judge().await;
    assert!(verdict.holds(), "{verdict}");
    let (fallen, log) = (way.fallen, way.log());
    assert_eq!(fallen, 0, "{log}");
    let told = log.matches("stepped back by").count();
    assert!(way.clock.is_none() || told == 2, "both say so: {log}");
}
