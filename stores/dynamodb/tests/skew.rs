//! Clocks that differ: the service's, and what its answers say of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use postrider_core::{ErrorKind, NewEvent, OutboxSource as _};
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox, Settings};
use serde_json::Value;

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Clock, Then};
use crate::relay::Relay;

/// Five hours, in seconds.
const HOURS: i64 = 5 * 3_600;

/// A connection to a service with a clock, and how many of its requests were taken.
async fn through(fresh: &Fresh, clock: &Arc<Mutex<Clock>>) -> (Connection, Arc<AtomicU64>) {
    let taken = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&taken);
    let rule = move |_: &str, _: &mut Value| {
        counted.fetch_add(1, Ordering::SeqCst);
        Then::Forward
    };
    let upstream = fresh::url().unwrap();
    let own = proxy::start_with_clock(&upstream, Box::new(rule), Arc::clone(clock)).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    (Connection::new(settings).unwrap(), taken)
}

fn polling(connection: Connection) -> DynamoStore {
    let mut options = Options::default();
    options.stream = false;
    DynamoStore::with(connection, options)
}

fn of(key: &str) -> NewEvent {
    NewEvent::new("order", key, "order.changed")
}

/// The service's clock is hours ahead of ours or behind: the client hears of it by the first refusal, signs by the service's
/// time from then on, and everything is written, read, and settled, with no error to anybody.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_clock_is_hours_off_is_understood() {
    let Some(fresh) = Fresh::new(1).await else { return };
    for (left, ahead) in [(0, HOURS), (1, -HOURS)] {
        let clock = Arc::new(Mutex::new(Clock { ahead, said: 0 }));
        let (connection, taken) = through(&fresh, &clock).await;
        let outbox = Outbox::open(&connection).await.unwrap();
        outbox.write(&[], &[of("1"), of("1")]).await.unwrap();
        let mut relay = Relay::start_for(polling(connection), crate::relay::LONG).await;
        let rows = relay.drain().await;
        assert_eq!(rows.len(), 2 + left, "{ahead}");
        assert_eq!(relay.drain().await.len(), 0, "and they are settled");
        assert!(taken.load(Ordering::SeqCst) > 5, "signed by its time");
        relay.go().await;
        // It turns the other way, and the client with it.
        clock.lock().unwrap().ahead = -ahead;
        outbox.write(&[], &[of("1")]).await.unwrap();
    }
    assert_eq!(pending(&fresh).await, 1, "what was written last, and nothing else");
}

/// Answers say another time than the service has, as one who stands between may: the client follows them, is refused, and
/// says what to look at; nothing is written meanwhile, and when one has said the truth everything goes on.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_say_a_wrong_time_are_told_and_lose_nothing() {
    let Some(fresh) = Fresh::new(1).await else { return };
    for (done, said) in [(0, HOURS), (1, -HOURS)] {
        let clock = Arc::new(Mutex::new(Clock { ahead: 0, said: 0 }));
        let (connection, _) = through(&fresh, &clock).await;
        let outbox = Outbox::open(&connection).await.unwrap();
        let relay = Relay::start_for(polling(connection), crate::relay::LONG).await;
        clock.lock().unwrap().said = said;
        // The answer to this one is what misleads.
        relay.store.destinations().await.unwrap();
        let error = outbox.write(&[], &[of("1")]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        let text = error.to_string();
        assert!(text.contains("clock") && text.contains("nothing was written"), "{text}");
        assert_eq!(pending(&fresh).await, done, "and nothing was");
        clock.lock().unwrap().said = 0;
        // The first answer mends it, which is a refusal.
        outbox.write(&[], &[of("1")]).await.unwrap_err();
        outbox.write(&[], &[of("1")]).await.unwrap();
        assert_eq!(pending(&fresh).await, done + 1);
        relay.go().await;
    }
}

/// How many events are in the index.
async fn pending(fresh: &Fresh) -> usize {
    let client = fresh.connection.tables().await;
    let scan = client.scan().table_name(&fresh.settings.names.outbox).consistent_read(true);
    let items = Box::pin(scan.send()).await.unwrap().items.unwrap();
    items.iter().filter(|item| item.contains_key("pr_shard")).count()
}
