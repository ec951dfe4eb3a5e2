//! A relay in one function: carries events to a broker as the engine does, and looks at what arrived.
//!
//! Invariant: one event of a key is under way at a time, and the same again until it is acknowledged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{
    Broker, Error, ErrorKind, Event, EventId, Format, Marks, NewEvent, Outcome, Outgoing,
};
use tokio::time::Instant;

/// How long the next event of any key may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// An event of a key, with so many bytes of payload.
pub fn event(key: &str, n: u32, bytes: usize) -> Arc<Event> {
    let new = NewEvent::new("order", key, format!("order.changed.{n}"))
        .source("/shop")
        .bytes(vec![b'x'; bytes], "text/plain");
    Arc::new(new.event().clone())
}

/// The same on its way to a topic.
pub fn outgoing(topic: &str, event: &Arc<Event>) -> Outgoing {
    Outgoing {
        event: Arc::clone(event),
        topic: topic.into(),
        format: Format::Binary,
        layout: None,
        marks: Marks::default(),
        attempt: 1,
    }
}

/// Carries so many events of each of so many keys.
///
/// # Panics
/// If it does not go on, or one is refused for good.
pub async fn carry(
    broker: &dyn Broker,
    topic: &str,
    keys: usize,
    each: u32,
) -> Vec<Vec<Arc<Event>>> {
    let sent: Vec<Vec<Arc<Event>>> =
        (0..keys).map(|key| (0..each).map(|n| event(&key.to_string(), n, 100)).collect()).collect();
    let mut next = vec![0usize; keys];
    let mut moved = Instant::now();
    while next.iter().any(|at| *at < each as usize) {
        assert!(moved.elapsed() < PATIENCE, "it does not go on: {next:?}");
        let open: Vec<usize> = (0..keys).filter(|key| next[*key] < each as usize).collect();
        let batch: Vec<Outgoing> =
            open.iter().map(|key| outgoing(topic, &sent[*key][next[*key]])).collect();
        let Ok(outcomes) = broker.publish(&batch).await else { continue };
        for (key, outcome) in open.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Acked => {
                    next[key] += 1;
                    moved = Instant::now();
                }
                Outcome::Retry { .. }
                | Outcome::Hindered(_)
                | Outcome::Unroutable(_)
                | Outcome::Skipped => {}
                other => panic!("{other:?}"),
            }
        }
    }
    sent
}

/// Publishes one event, and again until it is acknowledged.
///
/// # Panics
/// If it is not, or something else is said than that nobody knows.
pub async fn until_acked(broker: &dyn Broker, topic: &str, sent: &Arc<Event>) {
    let begun = Instant::now();
    loop {
        let said = broker.publish(&[outgoing(topic, sent)]).await;
        if matches!(said.as_deref(), Ok([Outcome::Acked])) {
            return;
        }
        assert!(is_unknown(&said), "{said:?}");
        assert!(begun.elapsed() < PATIENCE, "{said:?}");
    }
}

/// Whether it is said that nobody knows what became of one event.
pub fn is_unknown(said: &Result<Vec<Outcome>, Error>) -> bool {
    match said {
        Ok(outcomes) => matches!(outcomes[..], [Outcome::Retry { .. } | Outcome::Hindered(_)]),
        Err(error) => [ErrorKind::Unavailable, ErrorKind::Timeout].contains(&error.kind()),
    }
}

/// Every event is there, and the first copies of each key are in its order.
///
/// # Panics
/// If not.
pub fn assert_in_order(stored: &[EventId], sent: &[Vec<Arc<Event>>]) {
    // Whose key's each event is, until its first copy is seen.
    let mut unseen: HashMap<EventId, usize> = HashMap::new();
    for (key, events) in sent.iter().enumerate() {
        unseen.extend(events.iter().map(|event| (event.id, key)));
    }
    let mut first: Vec<Vec<EventId>> = vec![Vec::new(); sent.len()];
    for id in stored {
        if let Some(key) = unseen.remove(id) {
            first[key].push(*id);
        }
    }
    for (first, key) in first.iter().zip(sent) {
        let wanted: Vec<EventId> = key.iter().map(|event| event.id).collect();
        let missing: Vec<_> = wanted.iter().filter(|id| unseen.contains_key(*id)).collect();
        assert!(missing.is_empty(), "assertion: {missing:?} of {} are missing", wanted.len());
        let moved = first.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        assert_eq!(moved, None, "assertion: in another order from there on");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Vec<Arc<Event>> {
        (0..3).map(|n| event("1", n, 1)).collect()
    }

    #[test]
    fn copies_are_no_fault() {
        let key = key();
        let ids = [0, 0, 1, 0, 2, 1].map(|at: usize| key[at].id);
        assert_in_order(&ids, &[key]);
    }

    /// A negative control: the checker of the order sees one that is wrong.
    #[test]
    #[should_panic(expected = "assertion")]
    fn a_wrong_order_is_seen() {
        let key = key();
        let ids = [1, 0, 2].map(|at: usize| key[at].id);
        assert_in_order(&ids, &[key]);
    }

    /// A negative control: and one that is missing.
    #[test]
    #[should_panic(expected = "assertion")]
    fn a_missing_event_is_seen() {
        let key = key();
        let ids = [0, 1].map(|at: usize| key[at].id);
        assert_in_order(&ids, &[key]);
    }
}
