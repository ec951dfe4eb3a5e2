//! Publishing to three servers: leaders that move, and replicas that are away.

use std::time::Duration;

use postrider_core::{Broker, ErrorKind, Outcome, Outgoing};
use postrider_kafka::KafkaBroker;
use postrider_testkit::carry::{assert_in_order, carry};
use postrider_testkit::kafka::KafkaServer;
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::{Instant, sleep};

use crate::publishing::{event, outgoing};
use crate::server::{Server, Stored};

const PATIENCE: Duration = Duration::from_secs(60);
const TWO: (&str, &str) = ("min.insync.replicas", "2");

/// Who leads each partition, by its number, and how many replicas are in sync.
async fn partitions(server: &Server, topic: &str) -> Vec<(i32, usize)> {
    let (config, topic) = (server.client(), topic.to_owned());
    let ask = move || {
        let consumer: BaseConsumer = config.create().unwrap();
        let metadata = consumer.fetch_metadata(Some(&topic), PATIENCE).unwrap();
        let mut found: Vec<_> = metadata.topics()[0].partitions().iter().collect();
        found.sort_by_key(|partition| partition.id());
        found.iter().map(|partition| (partition.leader(), partition.isr().len())).collect()
    };
    spawn_blocking(ask).await.unwrap()
}

/// Waits until the servers know who is in sync, and who leads.
async fn until(server: &Server, topic: &str, is: impl Fn(&[(i32, usize)]) -> bool) {
    let begun = Instant::now();
    loop {
        let found = partitions(server, topic).await;
        if is(&found) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{found:?}");
        // waits: servers tell nobody whom they count
        sleep(Duration::from_millis(50)).await;
    }
}

fn are_in_sync(count: usize) -> impl Fn(&[(i32, usize)]) -> bool {
    move |found| found.iter().all(|(_, in_sync)| *in_sync == count)
}

fn again(server: &mut KafkaServer) {
    block_in_place(|| server.run().unwrap());
}

/// F5, F6, INV-1, INV-3: the leader of some partitions is killed, or stands still until others lead, again and again under
/// batches for all of them: nothing that was acknowledged is lost, and each key is in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_may_move_under_a_load() {
    let Some((first, mut others)) = Server::with_two_more().await else { return };
    first.create_copied("orders", (6, 3), &[TWO]).await;
    let mut settings = first.settings();
    settings.deadline = Duration::from_secs(2);
    let broker = KafkaBroker::new(settings).unwrap();
    let carrying = tokio::spawn(async move { carry(&broker, "orders", 30, 1_500).await });
    let (mut faults, mut moved) = (0, 0);
    for round in 0..4 {
        until(&first, "orders", are_in_sync(3)).await;
        let before = first.count("orders").await;
        while !carrying.is_finished() && first.count("orders").await < before + 200 {
            // waits: a server tells nobody what it has got
            sleep(Duration::from_millis(10)).await;
        }
        let leaders = partitions(&first, "orders").await;
        let led = |id: i32| leaders.iter().filter(|(leader, _)| *leader == id).count();
        // The first one is the controller as well, and stays.
        let at = usize::from(led(3) > led(2));
        let (id, away) = (i32::try_from(at).unwrap() + 2, &mut others[at]);
        faults += usize::from(!carrying.is_finished() && led(id) > 0);
        match round % 2 {
            0 => away.kill(),
            _ => assert!(away.signal("-STOP")),
        }
        let gone = |found: &[(i32, usize)]| found.iter().all(|(leader, _)| *leader != id);
        until(&first, "orders", gone).await;
        moved += led(id);
        match round % 2 {
            0 => again(away),
            _ => assert!(away.signal("-CONT")),
        }
    }
    let sent = carrying.await.unwrap();
    println!("{faults} faults fell into the run, and {moved} partitions went to another leader");
    assert!(faults >= 3, "only {faults} faults fell into the run");
    assert_in_order(&first.ids("orders").await, &sent);
}

/// What became of an event of each of so many keys.
async fn told(broker: &KafkaBroker, topic: &str, n: u32) -> Vec<Outcome> {
    let batch: Vec<Outgoing> =
        (0..20).map(|key| outgoing(topic, &event(&key.to_string(), n, 10))).collect();
    let begun = Instant::now();
    loop {
        match broker.publish(&batch).await {
            Ok(outcomes) => return outcomes,
            // Of a client whose servers have just gone.
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Publishes them until all are acknowledged: a machine with too much to do takes longer than the deadline.
async fn all_acked(broker: &KafkaBroker, topic: &str, n: u32) {
    let begun = Instant::now();
    loop {
        let told = told(broker, topic, n).await;
        if told.iter().all(|outcome| *outcome == Outcome::Acked) {
            return;
        }
        let late = |it: &Outcome| matches!(it, Outcome::Acked | Outcome::Hindered(_));
        assert!(told.iter().all(late) && begun.elapsed() < PATIENCE, "`{topic}`: {told:?}");
    }
}

/// F5, INV-1, INV-5: where a partition has fewer replicas in sync than the topic wants, its events wait and those of the other
/// are acknowledged; where all have, nothing is, and whoever begins then says so before anything is sent. Nothing counts
/// against an event, what is wrong is said, and when a replica is back it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_replicas_in_sync_are_waited_for() {
    let Some((first, mut others)) = Server::with_two_more().await else { return };
    first.create_copied("whole", (2, 3), &[TWO]).await;
    let replicas: [&[i32]; 2] = [&[1, 2], &[1, 3]];
    let topic = NewTopic::new("partly", 2, TopicReplication::Variable(&replicas));
    let (topic, options) = (topic.set(TWO.0, TWO.1), AdminOptions::new());
    first.admin().create_topics([&topic], &options).await.unwrap().remove(0).unwrap();
    until(&first, "whole", are_in_sync(3)).await;
    until(&first, "partly", |found| found.len() == 2 && are_in_sync(2)(found)).await;
    let mut settings = first.settings();
    settings.deadline = Duration::from_secs(2);
    let broker = KafkaBroker::new(settings.clone()).unwrap();
    for topic in ["whole", "partly"] {
        all_acked(&broker, topic, 1).await;
    }
    others[1].kill();
    until(&first, "partly", |found| found[1].1 == 1).await;
    a_part_waits(&first, &broker).await;
    // Two are enough.
    all_acked(&broker, "whole", 2).await;
    others[0].kill();
    until(&first, "whole", are_in_sync(1)).await;
    let refused = |outcome: &Outcome| {
        match outcome {
        Outcome::Unroutable(fault) => {
            fault.kind == ErrorKind::Unavailable
                && fault.detail.starts_with(
                    "of the topic `whole` only 1 replicas are in sync, and it wants 2 (`min.insync.replicas`)",
                )
        }
        _ => false,
    }
    };
    // What it knew before is not so any more, as the servers say the first time.
    let waits = |it: &Outcome| matches!(it, Outcome::Hindered(_)) || refused(it);
    let begun = Instant::now();
    loop {
        let told = told(&broker, "whole", 3).await;
        if told.iter().all(refused) {
            break;
        }
        assert!(told.iter().all(waits) && begun.elapsed() < PATIENCE, "{told:?}");
    }
    let stored = first.count("whole").await;
    let new = KafkaBroker::new(settings).unwrap();
    assert!(told(&new, "whole", 3).await.iter().all(refused));
    assert_eq!(first.count("whole").await, stored, "nothing was sent");
    for (other, topic) in others.iter_mut().zip(["whole", "partly"]) {
        again(other);
        let begun = Instant::now();
        while told(&broker, topic, 3).await != vec![Outcome::Acked; 20] {
            assert!(begun.elapsed() < PATIENCE, "`{topic}` does not go on");
        }
    }
}

/// The partition 1 of `partly` has too few replicas in sync, and is named as soon as something was not acknowledged.
async fn a_part_waits(server: &Server, broker: &KafkaBroker) {
    let stored = server.stored("partly").await;
    let waits = |key: usize| {
        let of = |it: &&Stored| it.key.as_deref() == Some(key.to_string().as_bytes());
        stored.iter().find(of).unwrap().partition == 1
    };
    assert!((0..20).any(waits) && !(0..20).all(waits));
    let named =
        "these partitions have fewer replicas in sync than it wants (`min.insync.replicas`): 1;";
    let begun = Instant::now();
    loop {
        let told = told(broker, "partly", 2).await;
        let (mut words, mut late) = (Vec::new(), false);
        for (key, outcome) in told.iter().enumerate() {
            match outcome {
                Outcome::Acked => assert!(!waits(key), "{told:?}"),
                Outcome::Hindered(fault) if waits(key) => words.push(&fault.detail),
                Outcome::Hindered(_) => late = true,
                _ => panic!("{told:?}"),
            }
        }
        if !late && words.iter().all(|words| words.contains(named)) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{words:?}");
    }
}
