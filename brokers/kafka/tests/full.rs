//! A server whose disk is full.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker, Event, Outcome};
use postrider_kafka::KafkaBroker;
use postrider_testkit::carry::{assert_in_order, event, outgoing};
use tokio::task::block_in_place;
use tokio::time::Instant;

use crate::server::Server;

/// Above the index files, which are as large as they may become from the beginning.
const ROOM: u64 = 12 * 1024 * 1024;
const BYTES: usize = 200_000;
const PATIENCE: Duration = Duration::from_secs(90);

/// Carries one event of each key as the engine does, the same again until it is acknowledged; what was said if it
/// was not.
async fn carry(broker: &KafkaBroker, topic: &str, open: &mut Vec<Arc<Event>>) -> Vec<String> {
    let batch: Vec<_> = open.iter().map(|event| outgoing(topic, event)).collect();
    let outcomes = match broker.publish(&batch).await {
        Ok(outcomes) => outcomes,
        Err(error) => return vec![error.to_string()],
    };
    let mut outcomes = outcomes.into_iter();
    let mut said = Vec::new();
    open.retain(|_| match outcomes.next().unwrap() {
        Outcome::Acked => false,
        Outcome::Hindered(fault) | Outcome::Unroutable(fault) => {
            said.push(fault.to_string());
            true
        }
        other => panic!("a full disk is no event's fault: {other:?}"),
    });
    said
}

/// F25: a server that cannot write acknowledges nothing and kills no event, and says so; with room again everything
/// is there, each key in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing() {
    let Some(mut server) = Server::own().await else { return };
    let topic = server.topic("orders", 1, &[]).await;
    block_in_place(|| {
        server.kill();
        server.limit_files(Some(ROOM));
        server.run().unwrap();
    });
    let broker = KafkaBroker::new(server.usual_settings()).unwrap();
    let mut sent = vec![Vec::new(); 3];
    let (begun, mut refused) = (Instant::now(), Vec::new());
    let mut open = Vec::new();
    for n in 0.. {
        assert!(begun.elapsed() < PATIENCE, "it takes everything");
        open = (0..3).map(|key| event(&key.to_string(), n, BYTES)).collect();
        sent.iter_mut().zip(&open).for_each(|(key, event)| key.push(Arc::clone(event)));
        // The first may meet a server that has just begun.
        refused = carry(&broker, &topic, &mut open).await;
        while n == 0 && !open.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "{refused:?}");
            refused = carry(&broker, &topic, &mut open).await;
        }
        if !open.is_empty() {
            break;
        }
    }
    for _ in 0..3 {
        refused = carry(&broker, &topic, &mut open).await;
        assert!(!open.is_empty(), "there is no room");
    }
    // Without a folder that it can write to, the server has ended.
    assert!(refused[0].contains("nothing was sent"), "{refused:?}");
    let log = server.log();
    assert!(log.contains("File too large"), "it ended for another reason: {log}");
    block_in_place(|| {
        server.kill();
        server.limit_files(None);
        server.run().unwrap();
    });
    let begun = Instant::now();
    while !open.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "it does not go on: {refused:?}");
        refused = carry(&broker, &topic, &mut open).await;
    }
    assert_in_order(&server.ids(&topic).await, &sent);
}
