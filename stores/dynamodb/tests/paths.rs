//! The two paths to what is pending, stream and index: one may be away, and both may tell of the same event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use postrider_core::{EventId, NewEvent};
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::Relay;

/// How long the stream is away.
const AWAY: Duration = Duration::from_secs(60);
/// The backstop over the index.
const BACKSTOP: Duration = Duration::from_secs(4);
/// How much later than the backstop a look begins that has to find an event, however long it takes.
const SLACK: Duration = Duration::from_secs(1);

/// The stream answers, says nothing, or fails.
const THERE: u8 = 0;
const SILENT: u8 = 1;
const FAILING: u8 = 2;

fn of(key: usize) -> NewEvent {
    NewEvent::new("order", key.to_string(), "order.changed")
}

async fn write(outbox: &Outbox, key: usize) -> EventId {
    let event = of(key);
    let id = event.event().id;
    outbox.write(&[], &[event]).await.unwrap();
    id
}

/// R043: the stream is away for 60 s, half of them silent and half failing: every event that is committed
/// meanwhile comes within the backstop, and when the stream is back it is read again.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_away_for_a_minute_delays_events_by_the_backstop_at_most() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let state = Arc::new(AtomicU8::new(THERE));
    let now = Arc::clone(&state);
    let rule = move |operation: &str, _: &mut Value| match (operation, now.load(Ordering::SeqCst)) {
        ("GetRecords" | "DescribeStream" | "GetShardIterator", FAILING) => {
            Then::Answer(400, json!({"__type": "AccessDeniedException", "message": "away"}))
        }
        _ => Then::Forward,
    };
    let now = Arc::clone(&state);
    let edit = move |operation: &str, _: &Value, answer: &mut Value| {
        if operation == "GetRecords" && now.load(Ordering::SeqCst) == SILENT {
            answer["Records"] = json!([]);
        }
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(edit)).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let mut options = Options::default();
    options.backstop = BACKSTOP;
    let store = DynamoStore::with(Connection::new(settings).unwrap(), options);
    let mut relay = Relay::live(store).await;
    let (start, mut longest, mut events) = (Instant::now(), Duration::ZERO, 0);
    state.store(SILENT, Ordering::SeqCst);
    while start.elapsed() < AWAY {
        if start.elapsed() > AWAY / 2 {
            state.store(FAILING, Ordering::SeqCst);
        }
        let (sent, committed) = (write(&outbox, events % 3).await, Instant::now());
        events += 1;
        loop {
            let asked = committed.elapsed();
            let rows = relay.drain().await;
            if !rows.is_empty() {
                assert_eq!(rows.iter().map(|row| row.row.id).collect::<Vec<_>>(), [sent]);
                break;
            }
            assert!(asked < BACKSTOP + SLACK, "an event waits for too long: asked after {asked:?}");
            // waits: nobody wakes while the stream is away
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        longest = longest.max(committed.elapsed());
        // waits: events come now and then
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(events >= 6, "{events} events, the longest took {longest:?}");
    assert!(relay.store.tallied().interruptions > 0, "it was seen to be away");
    state.store(THERE, Ordering::SeqCst);
    let back = async {
        while !relay.store.is_live() {
            // waits: the reader of the stream tries again at growing intervals
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(AWAY, back).await.expect("the stream is read again");
    let last = write(&outbox, 0).await;
    let heard = tokio::time::timeout(AWAY, relay.hear(1)).await.expect("and tells");
    assert_eq!(heard, [last]);
}

/// R044: stream and index tell of every event, as often as can be: each is handed out once, and each key in
/// its order.
#[tokio::test(flavor = "multi_thread")]
async fn both_paths_tell_of_every_event_and_each_comes_once() {
    const KEYS: usize = 6;
    const EACH: usize = 8;
    let Some(fresh) = Fresh::new(1).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let mut options = Options::default();
    options.backstop = Duration::from_millis(1);
    let mut relay = Relay::live(DynamoStore::with(fresh.connection.clone(), options)).await;
    let writer = |key: usize| {
        let outbox = outbox.clone();
        async move {
            let mut sent = Vec::new();
            for _ in 0..EACH {
                sent.push(write(&outbox, key).await);
            }
            (key, sent)
        }
    };
    let hear = tokio::time::timeout(AWAY, relay.hear(KEYS * EACH));
    let (sent, came) = tokio::join!(join_all((0..KEYS).map(writer)), hear);
    let came = came.expect("in time");
    let mut of: BTreeMap<usize, Vec<EventId>> = BTreeMap::new();
    for id in &came {
        let key = sent.iter().find(|(_, ids)| ids.contains(id)).expect("it was sent").0;
        of.entry(key).or_default().push(*id);
    }
    assert_eq!(of, sent.into_iter().collect(), "each once, in order");
    for _ in 0..5 {
        assert_eq!(relay.drain().await.len(), 0, "and nothing again");
    }
    assert_eq!(relay.store.tallied().marked_by_others, 0);
}
