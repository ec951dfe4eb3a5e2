//! Topics that change under their consumer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{ErrorKind, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSubscription, Notice, Notices, SubscriptionSettings};
use postrider_testkit::carry::until_acked;
use rdkafka::admin::AdminOptions;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::{Instant, timeout};

use crate::publishing::{event, publish};
use crate::server::{Server, unique};
use crate::subscribing::{ids, open, receive};

const PATIENCE: Duration = Duration::from_secs(20);

/// INV-8: a topic that is deleted under its consumer, and made anew: it goes on with all that comes there, also where the one before had
/// another leader's epoch, which a restart of its server raises and of which the library would ask for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_goes_on_in_a_topic_that_is_made_anew() {
    let Some(mut server) = Server::own().await else { return };
    let (topic, group) = (server.topic("anew", 1, &[]).await, unique("anew"));
    block_in_place(|| {
        server.kill();
        server.run().unwrap();
    });
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent: Vec<_> = (0..4).map(|n| event("1", n, 10)).collect();
    for event in &sent[..2] {
        until_acked(&broker, &topic, event).await;
    }
    let subscription = open(&server, &topic, &group).await;
    for event in &sent[..2] {
        let deliveries = receive(&subscription, 1).await;
        assert_eq!(ids(&deliveries), [event.id]);
        subscription.ack(&deliveries[0]).await.unwrap();
    }
    server.admin().delete_topics(&[&topic], &AdminOptions::new()).await.unwrap();
    let begun = Instant::now();
    let said = loop {
        match timeout(PATIENCE, subscription.receive(1)).await {
            Ok(Err(error)) if error.kind() == ErrorKind::Unroutable => break error.to_string(),
            other => assert!(begun.elapsed() < PATIENCE * 3, "{other:?}"),
        }
    };
    assert!(said.contains("create the topic"), "{said}");
    server.create(&topic, 1, &[]).await;
    for event in &sent[2..] {
        until_acked(&broker, &topic, event).await;
    }
    let (mut came, begun) = (Vec::new(), Instant::now());
    while came.len() < 2 {
        assert!(begun.elapsed() < PATIENCE * 3, "{came:?}");
        let Ok(Ok(deliveries)) = timeout(PATIENCE, subscription.receive(1)).await else { continue };
        for delivery in deliveries {
            came.push(delivery.event.as_ref().unwrap().id);
            subscription.ack(&delivery).await.unwrap();
        }
    }
    assert_eq!(came, [sent[2].id, sent[3].id]);
}

/// INV-1: a topic that is deleted and made anew at once, and filled past where the old one ended, under a consumer that has
/// nothing to commit: all that comes there is handed out, and that is said once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_takes_the_place_of_another_is_read_from_its_beginning() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("replaced", 1, &[]).await, unique("replaced"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent: Vec<_> = (0..12).map(|n| event("1", n, 10)).collect();
    publish(&broker, &topic, &sent[..3]).await;
    let settings = SubscriptionSettings::new(&topic, &group);
    let (subscription, heard) = told(&server, settings).await;
    for event in &sent[..3] {
        let deliveries = receive(&subscription, 1).await;
        assert_eq!(ids(&deliveries), [event.id]);
        subscription.ack(&deliveries[0]).await.unwrap();
    }
    until_committed(&server, &topic, &group, 3).await;
    server.admin().delete_topics(&[&topic], &AdminOptions::new()).await.unwrap();
    server.create(&topic, 1, &[]).await;
    let fresh = KafkaBroker::new(server.settings()).unwrap();
    for event in &sent[3..] {
        until_acked(&fresh, &topic, event).await;
    }
    let (mut came, begun) = (Vec::new(), Instant::now());
    while came.len() < 9 {
        assert!(begun.elapsed() < PATIENCE * 3, "{came:?}");
        let Ok(Ok(deliveries)) = timeout(PATIENCE, subscription.receive(1)).await else { continue };
        for delivery in deliveries {
            came.push(delivery.event.as_ref().unwrap().id);
            subscription.ack(&delivery).await.unwrap();
        }
    }
    assert_eq!(came, sent[3..].iter().map(|event| event.id).collect::<Vec<_>>());
    assert_eq!(*heard.lock().unwrap(), [Notice::TopicReplaced { topic }]);
}

/// Waits until the group has settled everything before that offset.
async fn until_committed(server: &Server, topic: &str, group: &str, offset: i64) {
    let (mut config, topic) = (server.client(), topic.to_owned());
    config.set("group.id", group);
    let ask = move || {
        let consumer: BaseConsumer = config.create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition(&topic, 0);
        let begun = std::time::Instant::now();
        loop {
            let found = consumer.committed_offsets(list.clone(), PATIENCE).unwrap();
            if found.find_partition(&topic, 0).unwrap().offset() == Offset::Offset(offset) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{found:?}");
            // waits: servers tell nobody what is committed
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    spawn_blocking(ask).await.unwrap();
}

/// A member of a group that writes down what is told it.
async fn told(
    server: &Server,
    settings: SubscriptionSettings,
) -> (KafkaSubscription, Arc<Mutex<Vec<Notice>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut kafka = server.settings();
    kafka.notices = Notices::to({
        let heard = Arc::clone(&heard);
        move |notice| heard.lock().unwrap().push(notice.clone())
    });
    (KafkaSubscription::open(kafka, settings).await.unwrap(), heard)
}

async fn until_told(heard: &Mutex<Vec<Notice>>, is_it: impl Fn(&Notice) -> bool) -> Notice {
    let begun = Instant::now();
    loop {
        let found = heard.lock().unwrap().iter().find(|notice| is_it(notice)).cloned();
        if let Some(found) = found {
            return found;
        }
        assert!(begun.elapsed() < 3 * PATIENCE, "{:?}", heard.lock().unwrap());
        tokio::task::yield_now().await;
    }
}

/// INV-1: records that the servers let go before the group had them are lost, and that is said, with how many; a group that had all
/// of them is told nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_were_let_go_are_told_of() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("kept", 1, &[]).await, unique("kept"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent: Vec<_> = (0..8).map(|n| event("1", n, 10)).collect();
    publish(&broker, &topic, &sent).await;
    let settings = SubscriptionSettings::new(&topic, &group);
    let (first, heard) = told(&server, settings.clone()).await;
    for _ in 0..3 {
        let delivery = receive(&first, 1).await.remove(0);
        first.ack(&delivery).await.unwrap();
    }
    first.close().await.unwrap();
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(&topic, 0, Offset::Offset(6)).unwrap();
    server.admin().delete_records(&before, &AdminOptions::new()).await.unwrap();
    let (second, later) = told(&server, settings.clone()).await;
    for left in &sent[6..] {
        let came = receive(&second, 1).await;
        assert_eq!(ids(&came), [left.id]);
        second.ack(&came[0]).await.unwrap();
    }
    let lost = until_told(&later, |notice| matches!(notice, Notice::RecordsLetGo { .. })).await;
    let expected =
        Notice::RecordsLetGo { topic: topic.clone(), partition: 0, settled: 3, first: 6 };
    assert_eq!(lost, expected);
    // What stood there may have been marks of transactions: nobody knows any more.
    let said = lost.to_string();
    assert!(said.contains("At most 3 records stood there: each end of another"), "{said}");
    second.close().await.unwrap();
    let (third, last) = told(&server, settings).await;
    publish(&broker, &topic, &[event("1", 9, 10)]).await;
    receive(&third, 1).await;
    for heard in [heard, last] {
        assert!(heard.lock().unwrap().is_empty(), "the control: {:?}", heard.lock().unwrap());
    }
}

/// INV-1: the same where a member is at work meanwhile, and is told what it lost while it lags behind: once, and nothing in the
/// partition that lost nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_let_go_under_a_consumer_are_told_of() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("lagging", 2, &[]).await, unique("lagging"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    // Two keys that stand in different partitions.
    let sent: Vec<_> = (0..16).map(|n| event(["1", "2"][n as usize % 2], n, 10)).collect();
    publish(&broker, &topic, &sent).await;
    let mut settings = SubscriptionSettings::new(&topic, &group);
    settings.unsettled_max = 2;
    let (subscription, heard) = told(&server, settings).await;
    let (mut held, mut came) = (Vec::new(), Vec::new());
    while held.len() < 2 {
        held.extend(receive(&subscription, 1).await);
    }
    let stored = server.stored(&topic).await;
    let lagging = held[0].origin.as_ref().and_then(|origin| origin.partition).unwrap();
    let theirs: Vec<_> = stored.iter().filter(|it| it.partition == lagging).collect();
    assert_eq!(theirs.len(), 8, "the two keys share a partition");
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(&topic, lagging, Offset::Offset(6)).unwrap();
    server.admin().delete_records(&before, &AdminOptions::new()).await.unwrap();
    loop {
        for delivery in held.drain(..) {
            came.push(delivery.event.as_ref().unwrap().id);
            subscription.ack(&delivery).await.unwrap();
        }
        if came.len() == 12 {
            break;
        }
        held = receive(&subscription, 1).await;
    }
    let lost = until_told(&heard, |notice| matches!(notice, Notice::RecordsLetGo { .. })).await;
    let expected = Notice::RecordsLetGo { topic, partition: lagging, settled: 2, first: 6 };
    assert_eq!(lost, expected);
    assert!(came.contains(&theirs[7].id()), "it goes on behind them");
    assert_eq!(heard.lock().unwrap().len(), 1, "{:?}", heard.lock().unwrap());
}

/// INV-8: one that is never settled holds up its whole partition when as many are unsettled as may be: that is said once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_is_full_is_told_of() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("full", 1, &[]).await, unique("full"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent: Vec<_> = (0..8).map(|n| event(&n.to_string(), n, 10)).collect();
    publish(&broker, &topic, &sent).await;
    let mut settings = SubscriptionSettings::new(&topic, &group);
    (settings.unsettled_max, settings.visibility) = (2, Duration::from_secs(1));
    let (subscription, heard) = told(&server, settings).await;
    let held = receive(&subscription, 1).await.remove(0);
    subscription.nack(&held, Duration::from_secs(600), false).await.unwrap();
    let expected = Notice::PartitionFull { topic, partition: 0 };
    until_told(&heard, |notice| *notice == expected).await;
}

/// Partitions that are added are read within seconds, and not when the library happens to ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_are_added_are_read_soon() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("more", 1, &[]).await, unique("more"));
    let subscription = open(&server, &topic, &group).await;
    server.add_partitions(&topic, 4).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let sent: Vec<_> = (0..8).map(|n| event(&n.to_string(), n, 10)).collect();
    for event in &sent {
        until_acked(&broker, &topic, event).await;
    }
    let mut came = ids(&receive(&subscription, sent.len()).await);
    came.sort_unstable();
    assert_eq!(came, sent.iter().map(|event| event.id).collect::<Vec<_>>());
    let used = server.stored(&topic).await.iter().filter(|record| record.partition > 0).count();
    assert!(used > 0, "the control: some stand in new partitions");
}

/// INV-4: a partition that another handler of the same group has settled something of is told of, since neither knows what the
/// other did; the same handler, and one that nobody named, are told nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_handler_of_the_same_group_is_told_of() {
    let Some(server) = Server::shared().await else { return };
    let (topic, group) = (server.topic("signed", 1, &[]).await, unique("signed"));
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let mut settings = SubscriptionSettings::new(&topic, &group);
    for (n, (name, expected)) in [
        (None, None),
        (Some("billing"), None),
        (Some("billing"), None),
        (Some("mailing"), Some("billing")),
        (Some("mailing"), None),
    ]
    .into_iter()
    .enumerate()
    {
        settings.handler = name.map(str::to_owned);
        let (member, heard) = told(&server, settings.clone()).await;
        publish(&broker, &topic, &[event("1", u32::try_from(n).unwrap(), 10)]).await;
        let came = receive(&member, 1).await;
        member.ack(&came[0]).await.unwrap();
        member.close().await.unwrap();
        let heard = heard.lock().unwrap();
        let others = heard.iter().filter_map(|notice| match notice {
            Notice::OtherHandler { before, .. } => Some(&**before),
            _ => None,
        });
        assert_eq!(others.collect::<Vec<_>>(), Vec::from_iter(expected), "{n}");
    }
}
