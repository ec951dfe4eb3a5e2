//! Groups with a consumer for each partition: the suite, and processes that are killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use postrider_core::{Broker as _, Delivery, ErrorKind, Outcome, Outgoing, Subscription, Template};
use postrider_nats::{NatsBroker, NatsSettings, NatsSubscription, SubscriptionSettings};
use tokio::time::{Instant, timeout};

use crate::publishing::{event, outgoing};
use crate::server::{Server, received};
use crate::suite::Harness;

/// As many as keep the ten keys of one case apart: a partition has one unsettled delivery.
type Partitioned = Harness<16>;

postrider_testkit::broker_suite!(Partitioned);

/// How long an instance that is killed holds up what it had in work.
const VISIBILITY: Duration = Duration::from_secs(1);
/// Events of each key.
const EACH: u32 = 40;
/// Keys.
const KEYS: u32 = 6;
/// How long all of it may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where an instance finds its server, its subjects, and its log, if this process is to be one.
const INSTANCE: &str = "POSTRIDER_NATS_INSTANCE";

/// The topic of the route.
fn topic() -> Template {
    "shop.{partition:4}.{event_type}".parse().unwrap()
}

async fn subscribe(nats: NatsSettings, subject: &str) -> NatsSubscription {
    subscribe_for(nats, subject, VISIBILITY).await
}

/// The same, and what comes is its own for so long.
async fn subscribe_for(nats: NatsSettings, subject: &str, time: Duration) -> NatsSubscription {
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.subject = Some(subject.to_owned());
    settings.visibility = time;
    NatsSubscription::open(nats, settings).await.unwrap()
}

/// Stores the events of all keys, in turns.
pub(crate) async fn publish(server: &Server) {
    let broker = NatsBroker::new(server.settings()).unwrap();
    for n in 1..=EACH {
        let events = (0..KEYS).map(|key| event(&key.to_string(), n, 10));
        let mut open: Vec<Outgoing> =
            events.map(|event| outgoing(&topic().render(&event), &event)).collect();
        let begun = Instant::now();
        // A server on a busy machine may not answer in time; what it has it drops by its id.
        while !open.is_empty() {
            let said = broker.publish(&open).await;
            assert!(begun.elapsed() < PATIENCE, "{said:?}");
            if let Ok(outcomes) = said {
                let mut outcomes = outcomes.into_iter();
                open.retain(|_| outcomes.next() != Some(Outcome::Acked));
            }
        }
    }
}

/// What an instance does with a delivery: a line before, some work, and a line behind.
async fn act(subscription: &NatsSubscription, delivery: Delivery, mut log: File) {
    let event = delivery.event.as_ref().unwrap();
    let n = event.event_type.rsplit_once('.').unwrap().1;
    let line = |word: &str| format!("{word} {} {n} {}\n", event.aggregate_id, std::process::id());
    log.write_all(line("begin").as_bytes()).unwrap();
    // waits: the work
    tokio::time::sleep(Duration::from_millis(15)).await;
    log.write_all(line("end").as_bytes()).unwrap();
    // What cannot be settled comes again.
    let _ = subscription.ack(&delivery).await;
}

/// An instance of the group, in a process of its own that somebody kills: no test in itself.
#[tokio::test]
async fn an_instance() {
    let Ok(told) = std::env::var(INSTANCE) else { return };
    let [address, subject, path] = <[_; 3]>::try_from(told.split(' ').collect::<Vec<_>>()).unwrap();
    let log = OpenOptions::new().append(true).open(path).unwrap();
    let subscription = Arc::new(subscribe(NatsSettings::new(address), subject).await);
    loop {
        let mut keys: BTreeMap<String, Vec<Delivery>> = BTreeMap::new();
        for delivery in subscription.receive(8).await.unwrap() {
            let key = delivery.event.as_ref().unwrap().key();
            keys.entry(key).or_default().push(delivery);
        }
        // As the engine does: the keys beside each other, each in its order.
        let acting = keys.into_values().map(|deliveries| {
            let (subscription, log) = (Arc::clone(&subscription), log.try_clone().unwrap());
            tokio::spawn(async move {
                for delivery in deliveries {
                    act(&subscription, delivery, log.try_clone().unwrap()).await;
                }
            })
        });
        for acting in acting.collect::<Vec<_>>() {
            acting.await.unwrap();
        }
    }
}

/// What instances wrote, and the instances.
struct Group {
    server: Server,
    subject: &'static str,
    log: std::path::PathBuf,
}

/// A process that is killed at the end, as a crash would.
struct Instance(Child);

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A line of the log: a word, a key, its event's number, and whose line it is.
type Line = (String, String, u32, u32);

impl Group {
    fn instance(&self) -> Instance {
        let told = format!("{} {} {}", self.server.address(), self.subject, self.log.display());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "partitioned::an_instance"]).env(INSTANCE, told);
        command.stdout(std::process::Stdio::null());
        Instance(command.spawn().unwrap())
    }

    fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let read = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse().unwrap();
            (words[0].to_owned(), words[1].to_owned(), number(2), number(3))
        };
        // The last line may be in the making.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(read).collect()
    }

    async fn until(&self, what: &str, done: impl Fn(&[Line]) -> bool) {
        let begun = Instant::now();
        while !done(&self.lines()) {
            assert!(begun.elapsed() < PATIENCE, "{what}: {} lines", self.lines().len());
            // waits: other processes write a file
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Lets two instances work, kills one in the middle of its work, and another in its place. Returns all lines.
async fn kill_one_of_two(subject: &'static str) -> Option<Vec<Line>> {
    let server = Server::start()?;
    server.stream("SHOP", "shop.>").await;
    publish(&server).await;
    let log = server.folder().join("work.log");
    File::create(&log).unwrap();
    let group = Group { server, subject, log };
    let (first, _second) = (group.instance(), group.instance());
    let id = first.0.id();
    let at_work = |lines: &[Line]| {
        let of = |word: &str| lines.iter().filter(|it| it.0 == word && it.3 == id).count();
        of("end") >= 20 && of("begin") > of("end")
    };
    group.until("an event is in work", at_work).await;
    drop(first);
    let _third = group.instance();
    let all = (EACH * KEYS) as usize;
    let ended = |lines: &[Line]| {
        let ended = lines.iter().filter(|it| it.0 == "end");
        ended.map(|it| (it.1.clone(), it.2)).collect::<BTreeSet<_>>().len() == all
    };
    group.until("all events are done", ended).await;
    let lines = group.lines();
    let workers: BTreeSet<u32> = lines.iter().map(|it| it.3).collect();
    assert!(workers.len() >= 2, "the work is shared");
    Some(lines)
}

/// How often an event was begun before the one before it of its key was done.
fn overtakings(lines: &[Line]) -> usize {
    let mut done: BTreeMap<&str, u32> = BTreeMap::new();
    let mut count = 0;
    for (word, key, n, _) in lines {
        let done = done.entry(key).or_default();
        match &**word {
            "begin" => count += usize::from(*n > *done + 1),
            _ => *done = (*done).max(*n),
        }
    }
    count
}

/// R070, INV-3: one of two instances is killed in the middle of its work. What it had comes again to another, and
/// nothing of its key before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitioned_group_keeps_each_key_in_order_through_a_kill() {
    let Some(lines) = kill_one_of_two("shop.{partition:4}.>").await else { return };
    assert_eq!(overtakings(&lines), 0, "{lines:?}");
    let begun = lines.iter().filter(|it| it.0 == "begin").count();
    assert!(begun > (EACH * KEYS) as usize, "what was in work comes again");
}

/// The negative control: the same without partitions, and the checker sees that the order is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_without_partitions_loses_the_order_in_a_kill() {
    let Some(lines) = kill_one_of_two("shop.>").await else { return };
    assert!(overtakings(&lines) > 0, "the checker sees nothing");
}

/// Of one partition nothing more comes before what came is settled, and the others go on.
#[tokio::test]
async fn a_slow_event_holds_up_its_partition_alone() {
    let Some(server) = Server::start() else { return };
    server.stream("SHOP", "shop.>").await;
    publish(&server).await;
    // Nothing comes again by itself, however long the machine stands still.
    let visibility = Duration::from_secs(30);
    let subscription = subscribe_for(server.settings(), "shop.{partition:4}.>", visibility).await;
    assert!(subscription.capabilities().key_order);
    let mut deliveries = Vec::new();
    while deliveries.len() < 4 {
        deliveries.extend(received(&subscription, 8).await);
    }
    let partition = |it: &Delivery| it.origin.as_ref().unwrap().partition.unwrap();
    assert_eq!(deliveries.iter().map(partition).collect::<BTreeSet<_>>().len(), 4);
    let (slow, others) = deliveries.split_first().unwrap();
    for delivery in others {
        subscription.ack(delivery).await.unwrap();
    }
    subscription.extend(slow, visibility).await.unwrap();
    for _ in 0..12 {
        for next in received(&subscription, 8).await {
            assert_ne!(partition(&next), partition(slow));
            subscription.ack(&next).await.unwrap();
        }
        subscription.extend(slow, visibility).await.unwrap();
    }
}

/// An instance that can act on less than there are partitions takes no more than it can act on, and each partition in
/// its turn.
#[tokio::test]
async fn an_instance_takes_no_more_than_it_can_act_on() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("SHOP", "shop.>").await;
    publish(&server).await;
    let subscription = subscribe(server.settings(), "shop.{partition:4}.>").await;
    let mut ids = BTreeSet::new();
    while ids.len() < (EACH * KEYS) as usize {
        let one = received(&subscription, 1).await;
        let mut unsettled = 0;
        for partition in 0..4 {
            let name = format!("billing-partition-{partition}");
            unsettled += stream.consumer_info(name).await.unwrap().num_ack_pending;
        }
        assert_eq!(unsettled, 1);
        ids.insert(one[0].event.as_ref().unwrap().id);
        subscription.ack(&one[0]).await.unwrap();
    }
}

/// A consumer of a partition that lets more be in work keeps no order, and is not joined. One that somebody deletes
/// is made anew.
#[tokio::test]
async fn a_partitions_consumer_is_what_it_must_be() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("SHOP", "shop.>").await;
    let many = pull::Config {
        durable_name: Some("billing-partition-2".to_owned()),
        filter_subject: "shop.2.>".to_owned(),
        ..pull::Config::default()
    };
    stream.create_consumer(many).await.unwrap();
    let open = || {
        let mut settings = SubscriptionSettings::new("SHOP", "billing");
        settings.subject = Some("shop.{partition:4}.>".to_owned());
        NatsSubscription::open(server.settings(), settings)
    };
    let refused = open().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    for words in ["billing-partition-2", "max ack pending to 1"] {
        assert!(refused.to_string().contains(words), "{refused}");
    }
    stream.delete_consumer("billing-partition-2").await.unwrap();
    let subscription = open().await.unwrap();
    publish(&server).await;
    stream.delete_consumer("billing-partition-2").await.unwrap();
    let mut ids = BTreeSet::new();
    let begun = Instant::now();
    while ids.len() < (EACH * KEYS) as usize {
        assert!(begun.elapsed() < PATIENCE, "{}", ids.len());
        // Where the consumer is gone, that is told once.
        let Ok(deliveries) = timeout(PATIENCE, subscription.receive(8)).await.unwrap() else {
            continue;
        };
        for delivery in deliveries {
            ids.insert(delivery.event.as_ref().unwrap().id);
            subscription.ack(&delivery).await.unwrap();
        }
    }
}

/// INV-1: a group that began with what came from then on, and whose consumer somebody deletes, says so once, and goes on
/// where it began: what it had not settled is not passed over.
#[tokio::test]
async fn a_consumer_that_is_deleted_is_made_anew_where_its_group_began() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("SHOP", "shop.>").await;
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.from_now = true;
    let subscription = NatsSubscription::open(server.settings(), settings).await.unwrap();
    publish(&server).await;
    stream.delete_consumer("billing").await.unwrap();
    let (mut ids, mut told, begun) = (BTreeSet::new(), Vec::new(), Instant::now());
    while ids.len() < (EACH * KEYS) as usize {
        assert!(begun.elapsed() < PATIENCE, "{}: {told:?}", ids.len());
        match timeout(PATIENCE, subscription.receive(8)).await.unwrap() {
            Ok(deliveries) => {
                for delivery in deliveries {
                    ids.insert(delivery.event.as_ref().unwrap().id);
                    subscription.ack(&delivery).await.unwrap();
                }
            }
            Err(error) => told.push(error.to_string()),
        }
    }
    let anew = told.iter().filter(|told| told.contains("was made anew"));
    assert_eq!(anew.count(), 1, "{told:?}");
}

/// INV-1: a group that began with what came from then on, and has fewer partitions than its route, is given the others:
/// they begin when the group did, and not when they are made.
#[tokio::test]
async fn partitions_that_come_later_begin_with_the_group() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("SHOP", "shop.>").await;
    let open = async |subject: &str| {
        let mut settings = SubscriptionSettings::new("SHOP", "billing");
        settings.subject = Some(subject.to_owned());
        settings.from_now = true;
        NatsSubscription::open(server.settings(), settings).await.unwrap()
    };
    drop(open("shop.{partition:2}.>").await);
    publish(&server).await;
    let subscription = open("shop.{partition:4}.>").await;
    // One that somebody deletes begins there as well.
    stream.delete_consumer("billing-partition-0").await.unwrap();
    let mut ids = BTreeSet::new();
    while ids.len() < (EACH * KEYS) as usize {
        let Ok(deliveries) = timeout(PATIENCE, subscription.receive(8)).await.unwrap() else {
            continue;
        };
        for delivery in deliveries {
            ids.insert(delivery.event.as_ref().unwrap().id);
            subscription.ack(&delivery).await.unwrap();
        }
    }
}
