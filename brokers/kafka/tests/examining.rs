//! What the broker says of the cluster's settings, each on topics that are really so.

use std::time::Duration;

use postrider_core::operate::{Finding, Level};
use postrider_core::{Broker, Code, Route};
use postrider_kafka::{
    KafkaBroker, KafkaSettings, Mechanism, RecordKey, Sasl, SubscriptionSettings, look,
};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{DefaultProducerContext, Producer as _, ThreadedProducer};
use tokio::time::Instant;

use crate::server::Server;

/// What is larger than any event.
const LARGE: (&str, &str) = ("max.message.bytes", "2097152");

async fn found(settings: KafkaSettings, topics: &[&str]) -> Vec<Finding> {
    let broker = KafkaBroker::new(settings).unwrap();
    let routes: Vec<Route> =
        topics.iter().map(|topic| Route::all(topic.parse().unwrap())).collect();
    broker.examine(&routes).await.unwrap()
}

/// The codes of what is not good.
fn codes(found: &[Finding]) -> Vec<Code> {
    let bad = found.iter().filter(|finding| finding.level != Level::Good);
    bad.map(|finding| {
        let advice = finding.advice.as_deref().unwrap_or_else(|| panic!("no advice: {finding:?}"));
        // Kafka's tools do nothing unless a server is named.
        let is_command =
            ["kafka-topics", "kafka-configs", "kafka-acls"].map(|tool| advice.contains(tool));
        let named = advice.contains(".sh --bootstrap-server 127.0.0.1:");
        assert!(!is_command.contains(&true) || named, "{finding:?}");
        finding.code.unwrap_or_else(|| panic!("no code: {finding:?}"))
    })
    .collect()
}

/// What is set of a topic with one replica, what is found besides that, and words of the advice.
type Case = (&'static [(&'static str, &'static str)], &'static [Code], &'static str);

/// R125: what could lose or hold up events is found, one setting at a time, each with a code and what to do.
#[tokio::test]
async fn each_setting_that_loses_events_is_found() {
    let Some(server) = Server::shared().await else { return };
    let cases: [Case; 8] = [
        (&[LARGE], &[], "the cluster has 1 servers: add some"),
        (&[], &[Code::LimitLow], "max.message.bytes=2097152"),
        (&[LARGE, ("min.insync.replicas", "2")], &[Code::Unacknowledged], "more replicas"),
        (
            &[LARGE, ("unclean.leader.election.enable", "true")],
            &[Code::ElectedUnclean],
            "unclean.leader.election.enable=false",
        ),
        (&[LARGE, ("retention.ms", "60000")], &[Code::KeptTooShort], "retention.ms=604800000"),
        (&[LARGE, ("retention.bytes", "1000000")], &[Code::KeptTooShort], "retention.bytes=-1"),
        (&[LARGE, ("cleanup.policy", "compact")], &[Code::KeptTooShort], "cleanup.policy=delete"),
        (
            &[LARGE, ("cleanup.policy", "compact,delete")],
            &[Code::KeptTooShort],
            "unless that is meant",
        ),
    ];
    for (config, expected, advice) in cases {
        let topic = server.topic("set", 2, config).await;
        let found = found(server.settings(), &[&topic]).await;
        let expected = [&[Code::CopiesFew], expected].concat();
        assert_eq!(codes(&found), expected, "{config:?}: {found:?}");
        let advised =
            |finding: &Finding| finding.advice.as_ref().is_some_and(|it| it.contains(advice));
        assert!(found.iter().any(advised), "{config:?}: {found:?}");
    }
    // A compacted topic takes no record without a key.
    let topic = server.topic("keyless", 1, &[LARGE, ("cleanup.policy", "compact")]).await;
    let mut settings = server.settings();
    settings.record_key = RecordKey::none();
    let found = found(settings, &[&topic]).await;
    assert_eq!(codes(&found), [Code::CopiesFew, Code::KeptTooShort, Code::KeysMissing]);
}

/// R125: a route's own record key counts, in either direction; and two routes to one topic have the same, or its events
/// come apart.
#[tokio::test]
async fn the_record_key_of_a_route_counts() {
    let Some(server) = Server::shared().await else { return };
    let compacted = server.topic("compacted", 1, &[LARGE, ("cleanup.policy", "compact")]).await;
    let spread = server.topic("spread", 2, &[LARGE]).await;
    let route = |topic: &str, key: Option<&RecordKey>| {
        let mut route = Route::all(topic.parse().unwrap());
        route.key = key.cloned();
        route
    };
    let (id, none) = (RecordKey::aggregate_id(), RecordKey::none());
    let whole: RecordKey = "{key}".parse().unwrap();
    let few = [Code::CopiesFew, Code::KeptTooShort];
    let keyless = [&few[..], &[Code::KeysMissing]].concat();
    let apart = vec![Code::KeysApart, Code::CopiesFew];
    let cases = [
        (&none, vec![route(&compacted, None)], keyless.clone()),
        (&none, vec![route(&compacted, Some(&id))], few.to_vec()),
        (&id, vec![route(&compacted, Some(&none))], keyless),
        (&id, vec![route(&spread, None), route(&spread, Some(&id))], vec![Code::CopiesFew]),
        (&id, vec![route(&spread, None), route(&spread, Some(&whole))], apart.clone()),
        (&id, vec![route(&spread, None), route("{event_type}", Some(&whole))], apart),
        // One partition keeps the order of all.
        (&id, vec![route(&compacted, None), route(&compacted, Some(&whole))], few.to_vec()),
    ];
    for (of_destination, routes, expected) in cases {
        let mut settings = server.settings();
        settings.record_key = of_destination.clone();
        let found = KafkaBroker::new(settings).unwrap().examine(&routes).await.unwrap();
        let own = |finding: &&Finding| {
            let topic = if routes[0].topic.to_string() == compacted { &compacted } else { &spread };
            finding.subject.ends_with(topic)
        };
        let found: Vec<Finding> = found.iter().filter(own).cloned().collect();
        assert_eq!(codes(&found), expected, "{routes:?}: {found:?}");
    }
}

/// R125: a topic that is not there is found before an event waits for it, and is not made by asking; a
/// template is looked for by what its topics have in common.
#[tokio::test]
async fn a_topic_that_is_not_there_is_found() {
    let properties = "auto.create.topics.enable=true\n";
    let Some(server) = Server::with(properties, &[]).await else { return };
    server.create("shop.orders", 1, &[LARGE]).await;
    let missing = |found: &[Finding]| codes(found).contains(&Code::Unroutable);
    let there = found(server.settings(), &["shop.orders", "shop.{event_type}", "{event_type}"]);
    assert!(!missing(&there.await));
    for topic in ["orders", "store.{event_type}", "shop2.{tenant}.x"] {
        let found = found(server.settings(), &["shop.orders", topic]).await;
        assert!(missing(&found), "{topic}: {found:?}");
    }
    assert!(missing(&found(server.settings(), &["orders"]).await), "it was not made");
    // A route that drops sends nothing.
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let dropping = Route::all("orders".parse().unwrap()).dropping();
    assert_eq!(broker.examine(&[dropping]).await.unwrap(), []);
}

/// R125: what this user may not look at is said, and which permission is missing.
#[tokio::test]
async fn a_permission_that_is_missing_is_found() {
    let plain = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                 username=\"broker\" password=\"hush\" user_broker=\"hush\" user_joe=\"sesame\";";
    let properties = format!(
        "listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         sasl.mechanism.inter.broker.protocol=PLAIN\n\
         listener.name.client.sasl.enabled.mechanisms=PLAIN\n\
         listener.name.client.plain.sasl.jaas.config={plain}\n\
         authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n\
         super.users=User:broker;User:ANONYMOUS\n"
    );
    let Some(server) = Server::with(&properties, &[]).await else { return };
    let mut settings = server.settings();
    settings.sasl = Some(Sasl {
        mechanism: Mechanism::Plain,
        user: "joe".to_owned(),
        password: "sesame".into(),
    });
    let found = found(settings.clone(), &["orders"]).await;
    assert_eq!(codes(&found), [Code::Unauthorized], "{found:?}");
    assert!(found[0].advice.as_ref().unwrap().contains("--operation Write"), "{found:?}");
    // Who would read is told before they join.
    let group = SubscriptionSettings::new("orders", "billing");
    let refused = look(settings.clone(), group).await.unwrap_err();
    assert_eq!(refused.operator_code(), Some(Code::Unauthorized), "{refused:?}");
    assert!(refused.to_string().contains("`orders`"), "{refused}");
    // What tells that a user may write nowhere: its producer begins with a number, and gets none.
    let mut config = server.client();
    for (name, value) in [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "joe"),
        ("sasl.password", "sesame"),
        ("enable.idempotence", "true"),
    ] {
        config.set(name, value);
    }
    let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
    let begun = Instant::now();
    let refused = loop {
        if let Some((code, _)) = producer.client().fatal_error() {
            break code;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it is given one");
        // waits: the library tells nobody that it asked
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(refused, RDKafkaErrorCode::ClusterAuthorizationFailed);
    // Who is not let in at all is told so.
    settings.sasl.as_mut().unwrap().password = "guess".into();
    settings.deadline = Duration::from_secs(2);
    let broker = KafkaBroker::new(settings).unwrap();
    let refused = broker.examine(&[Route::all("orders".parse().unwrap())]).await.unwrap_err();
    assert_eq!(refused.operator_code(), Some(Code::Unauthorized), "{refused:?}");
}

/// R125: what several servers make possible, and what one that is away means; and, the negative control, that of a
/// sound topic nothing is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_looked_at_and_a_sound_topic_is_left_alone() {
    let Some((first, others)) = Server::with_two_more().await else { return };
    let min = "min.insync.replicas";
    for (name, replicas, least) in
        [("sound", 3, "2"), ("all", 3, "3"), ("few", 3, "1"), ("one", 1, "1")]
    {
        first.create_copied(name, (2, replicas), &[LARGE, (min, least)]).await;
    }
    let of = |topic: &'static str| {
        let settings = first.settings();
        async move { found(settings, &[topic]).await }
    };
    let sound = of("sound").await;
    assert_eq!(codes(&sound), [], "{sound:?}");
    assert!(sound[0].message.contains("3 replicas, 2 of which acknowledge"), "{sound:?}");
    let all = of("all").await;
    assert_eq!(codes(&all), [Code::SpareNone], "{all:?}");
    assert!(all[0].advice.as_ref().unwrap().contains("min.insync.replicas=2"), "{all:?}");
    assert_eq!(codes(&of("few").await), [Code::CopiesFew]);
    let one = of("one").await;
    assert_eq!(codes(&one), [Code::CopiesFew], "{one:?}");
    assert!(!one[0].advice.as_ref().unwrap().contains("add some"), "{one:?}");
    drop(others);
    let begun = Instant::now();
    loop {
        // Just when servers go, the others may not know whom to ask.
        let broker = KafkaBroker::new(first.usual_settings()).unwrap();
        let Ok(lagging) = broker.examine(&[Route::all("sound".parse().unwrap())]).await else {
            assert!(begun.elapsed() < Duration::from_secs(60));
            continue;
        };
        if lagging[0].message.contains("in sync") {
            assert_eq!(codes(&lagging), [Code::CopiesFew], "{lagging:?}");
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{lagging:?}");
    }
}
