//! What the broker says of the server's settings, each on streams that are really so.

use std::time::{Duration, Instant};

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use postrider_core::operate::{Finding, Level};
use postrider_core::{Broker, Code, RetryPolicy, Route};
use postrider_nats::{Credentials, NatsBroker, NatsSubscription, SubscriptionSettings};
use postrider_testkit::own_server::free_ports;

use crate::publishing::{event, outgoing};
use crate::server::Server;

/// A stream that nothing is to be said of, but for the number of its replicas.
fn sound(name: &str) -> Config {
    Config {
        name: name.to_owned(),
        subjects: vec![name.to_owned()],
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        duplicate_window: RetryPolicy::default().span(),
        ..Config::default()
    }
}

/// What is found where a route sends to these topics.
async fn found(server: &Server, topics: &[&str]) -> Vec<Finding> {
    let broker = NatsBroker::new(server.settings()).unwrap();
    let routes: Vec<Route> =
        topics.iter().map(|topic| Route::all(topic.parse().unwrap())).collect();
    broker.examine(&routes).await.unwrap()
}

/// The codes of what is not good.
fn codes(found: &[Finding]) -> Vec<Code> {
    let bad = found.iter().filter(|finding| finding.level != Level::Good);
    bad.map(|finding| {
        assert!(finding.advice.is_some(), "{finding:?}");
        finding.code.unwrap_or_else(|| panic!("no code: {finding:?}"))
    })
    .collect()
}

/// A stream, what is changed of it, what is found then, and words of the advice.
type Case = (&'static str, fn(&mut Config), &'static [Code], &'static str);

/// R125: what could lose or double events is found, one setting at a time, each with a code and what to do.
#[tokio::test]
async fn each_setting_that_loses_events_is_found() {
    let Some(server) = Server::start() else { return };
    const ONE: Code = Code::CopiesFew;
    let cases: [Case; 9] = [
        ("single", |_| {}, &[ONE], "--replicas 3"),
        ("memory", |it| it.storage = StorageType::Memory, &[ONE, ONE], "--storage file"),
        (
            "old",
            |it| {
                it.discard = DiscardPolicy::Old;
                it.max_bytes = 1_000_000;
            },
            &[ONE, Code::KeptTooShort],
            "--discard new",
        ),
        (
            "aged",
            |it| {
                it.max_age = Duration::from_secs(300);
                it.duplicate_window = Duration::from_secs(300);
            },
            &[ONE, Code::KeptTooShort, Code::DuplicatesKept],
            "--max-age 7d",
        ),
        (
            "window",
            |it| it.duplicate_window = Duration::from_secs(120),
            &[ONE, Code::DuplicatesKept],
            "--dupe-window 511s",
        ),
        (
            "interest",
            |it| it.retention = RetentionPolicy::Interest,
            &[ONE, Code::KeptTooShort],
            "make the consumers first",
        ),
        ("mute", |it| it.no_ack = true, &[ONE, Code::Unacknowledged], "no_ack"),
        ("short", |it| it.max_message_size = 9_000, &[ONE, Code::LimitLow], "--max-msg-size=-1"),
        ("full", |it| it.max_messages = 1, &[ONE, Code::NearlyFull], "purge"),
    ];
    let broker = NatsBroker::new(server.settings()).unwrap();
    for (name, change, expected, advice) in cases {
        let mut config = sound(name);
        change(&mut config);
        server.stream_of(config).await;
        if name == "full" {
            broker.publish(&[outgoing(name, &event("1", 1, 10))]).await.unwrap();
        }
        let found = found(&server, &[name]).await;
        assert_eq!(codes(&found), expected, "{name}: {found:?}");
        let advised =
            |finding: &Finding| finding.advice.as_ref().is_some_and(|it| it.contains(advice));
        assert!(found.iter().any(advised), "{name}: {found:?}");
    }
}

/// R125: a stream that answers before it writes is found, where the server knows such.
#[tokio::test]
async fn a_stream_that_answers_before_it_writes_is_found() {
    let Some(server) = Server::start() else { return };
    let mut config = serde_json::to_value(sound("hasty")).unwrap();
    config["persist_mode"] = "async".into();
    let jetstream = server.jetstream().await;
    let made: serde_json::Value =
        jetstream.request("STREAM.CREATE.hasty".to_owned(), &config).await.unwrap();
    let is_known = made["config"]["persist_mode"] == "async";
    let found = found(&server, &["hasty"]).await;
    let hasty =
        |it: &Finding| it.level == Level::Critical && it.message.contains("before it has written");
    assert_eq!(found.iter().any(hasty), is_known, "{made} {found:?}");
}

/// R125: a server that takes less than the definitions let pass is found, though its streams say nothing of it.
#[tokio::test]
async fn a_server_that_takes_little_is_found() {
    let Some(server) = Server::with("max_payload: 65536") else { return };
    server.stream_of(sound("orders")).await;
    let found = found(&server, &["orders"]).await;
    assert_eq!(codes(&found), [Code::LimitLow, Code::CopiesFew], "{found:?}");
    assert!(found[0].message.contains("65536"), "{found:?}");
    assert!(found[0].advice.as_ref().unwrap().contains("max_payload"), "{found:?}");
}

/// R125: a subject that no stream takes is found before an event waits for it; a template is looked for by
/// what its topics have in common.
#[tokio::test]
async fn a_subject_without_a_stream_is_found() {
    let Some(server) = Server::start() else { return };
    server.stream_of(Config { subjects: vec!["shop.>".to_owned()], ..sound("SHOP") }).await;
    let missing = |found: &[Finding]| codes(found).contains(&Code::Unroutable);
    assert!(!missing(&found(&server, &["shop.orders", "shop.{event_type}", "{event_type}"]).await));
    for topic in ["orders", "store.{event_type}", "shop2.{tenant}.x"] {
        let found = found(&server, &["shop.orders", topic]).await;
        assert!(missing(&found), "{topic}: {found:?}");
        assert_eq!(found[0].level, Level::Critical);
    }
    // A route that drops sends nothing.
    let broker = NatsBroker::new(server.settings()).unwrap();
    let dropping = Route::all("orders".parse().unwrap()).dropping();
    assert_eq!(broker.examine(&[dropping]).await.unwrap(), []);
}

/// R125: a partition that no stream keeps is found, and a group that takes fewer partitions than the route makes.
#[tokio::test]
async fn partitions_that_nobody_takes_are_found() {
    let Some(server) = Server::start() else { return };
    let halves = Config {
        subjects: (0..4).map(|it| format!("shop.{it}.>")).collect(),
        max_age: Duration::ZERO,
        ..sound("SHOP")
    };
    let stream = server.stream_of(halves.clone()).await;
    let topics = ["shop.{partition:8}.{event_type}"];
    let found_first = found(&server, &topics).await;
    assert_eq!(codes(&found_first), [Code::Unroutable, Code::CopiesFew], "{found_first:?}");
    assert!(found_first[0].message.contains("partitions 4 to 7 of shop."), "{found_first:?}");
    let jetstream = server.jetstream().await;
    jetstream
        .update_stream(Config { subjects: vec!["shop.>".to_owned()], ..halves })
        .await
        .unwrap();
    assert_eq!(codes(&found(&server, &topics).await), [Code::CopiesFew]);
    // Other subjects of the stream, and a group that takes all, are not meant.
    for (group, subject) in [
        ("other", "shop.x.{partition:2}"),
        ("whole", "shop.{partition:8}.>"),
        ("some", "shop.{partition:5}.>"),
    ] {
        let mut settings = SubscriptionSettings::new("SHOP", group);
        settings.subject = Some(subject.to_owned());
        NatsSubscription::open(server.settings(), settings).await.unwrap();
    }
    stream.delete_consumer("some-partition-1").await.unwrap();
    let found = found(&server, &topics).await;
    assert_eq!(codes(&found), [Code::PartitionsUntaken, Code::CopiesFew], "{found:?}");
    assert_eq!(found[0].subject, "group some");
    assert!(found[0].message.contains("4 of the 8") && found[0].message.contains("1, 5 to 7"));
    assert!(found[0].advice.as_ref().unwrap().contains("{partition:8}"));
}

/// R125: publishing with core NATS is said to be what it is.
#[tokio::test]
async fn publishing_into_the_void_is_found() {
    let Some(server) = Server::start() else { return };
    let mut settings = server.settings();
    settings.allow_lossy = true;
    let broker = NatsBroker::new(settings).unwrap();
    let routes = [Route::all("orders".parse().unwrap())];
    let found = broker.examine(&routes).await.unwrap();
    assert_eq!(codes(&found), [Code::Unacknowledged]);
}

/// R125: an account that is nearly used up is found, and one without JetStream is an error that says so.
#[tokio::test]
async fn an_account_that_is_nearly_full_is_found() {
    let config = "accounts { \
                  A { jetstream { max_file: 100000 }, users: [{ user: a, password: a }] }, \
                  B { users: [{ user: b, password: b }] } }";
    let Some(server) = Server::with(config) else { return };
    let settings = |name: &str| {
        let mut settings = server.settings();
        settings.credentials =
            postrider_nats::Credentials::User { name: name.to_owned(), password: name.into() };
        settings.deadline = Duration::from_secs(2);
        settings
    };
    let broker = NatsBroker::new(settings("a")).unwrap();
    let routes = [Route::all("orders".parse().unwrap())];
    let found = broker.examine(&routes).await.unwrap();
    assert_eq!(codes(&found), [Code::Unroutable], "the stream is missing, and nothing else");
    let address = server.address();
    let options = async_nats::ConnectOptions::with_user_and_password("a".into(), "a".into());
    let jetstream = async_nats::jetstream::new(options.connect(address).await.unwrap());
    jetstream.create_stream(Config { max_bytes: 90_000, ..sound("orders") }).await.unwrap();
    for n in 0..9 {
        let sent = outgoing("orders", &event("1", n, 9_200));
        let outcomes = broker.publish(&[sent]).await.unwrap();
        assert_eq!(outcomes, [postrider_core::Outcome::Acked]);
    }
    let found = broker.examine(&routes).await.unwrap();
    let expected = [Code::CopiesFew, Code::NearlyFull, Code::NearlyFull];
    assert_eq!(codes(&found), expected, "stream and account: {found:?}");
    let refused = NatsBroker::new(settings("b")).unwrap().examine(&routes).await.unwrap_err();
    assert!(refused.to_string().contains("it has to have JetStream"), "{refused}");
}

/// The negative control: of a stream of three replicas that keeps what it took, nothing is found, but that its servers are old
/// where they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_found_on_a_sound_stream() {
    let Some(servers) = Server::cluster() else { return };
    let config = Config { num_replicas: 3, ..sound("orders") };
    let begun = Instant::now();
    // A cluster takes its time until it has a leader.
    let jetstream = servers[0].jetstream().await;
    while let Err(error) = jetstream.create_stream(config.clone()).await {
        assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
    }
    let found = found(&servers[0], &["orders"]).await;
    let old = servers[0].outdated().await.map(|_| Code::ServerOutdated);
    assert_eq!(codes(&found), old.as_slice(), "{found:?}");
    assert_eq!(found.len(), 1 + old.as_slice().len());
    assert!(found[0].message.contains("3 replicas"), "{found:?}");
}

/// R125: how often a server forces its files is asked where it is monitored: what one server alone has is lost with the power. Who
/// does not answer there is named, and the rest is found all the same.
#[tokio::test]
async fn files_that_are_not_forced_are_found_where_servers_are_monitored() {
    let started = |jetstream: &str| {
        let port = free_ports(1).unwrap()[0];
        let monitored = format!("http: \"127.0.0.1:{port}\"");
        Server::within(&monitored, jetstream).map(|server| (server, port))
    };
    let examined = async |server: &Server, monitoring: String| {
        server.jetstream().await.get_or_create_stream(sound("orders")).await.unwrap();
        let mut settings = server.settings();
        settings.monitoring = Some(monitoring);
        let broker = NatsBroker::new(settings).unwrap();
        broker.examine(&[Route::all("orders".parse().unwrap())]).await.unwrap()
    };
    let Some((server, port)) = started("") else { return };
    let found = examined(&server, format!("http://127.0.0.1:{port}")).await;
    let old = server.outdated().await.is_some();
    let disk = found.iter().find(|finding| finding.subject == "disk");
    if old {
        assert_eq!(disk, None, "it does not say");
    } else {
        let disk = disk.expect("it says how often");
        assert_eq!((disk.level, disk.code), (Level::Warning, Some(Code::CopiesFew)));
        assert!(disk.message.contains("120s"), "{disk:?}");
        assert!(found[0].message.contains("up to 120s"), "the stream's says so too: {found:?}");
        let (server, port) = started("sync_interval: always").expect("another server");
        let found = examined(&server, format!("http://127.0.0.1:{port}")).await;
        let disk = found.iter().find(|finding| finding.subject == "disk").expect("it says so");
        assert_eq!(disk.level, Level::Good, "{disk:?}");
    }
    // The port of its clients answers no such question, and at the other nobody listens.
    let free = free_ports(1).unwrap()[0];
    let wrong = format!("http://127.0.0.1:{},127.0.0.1:{free}", server.port());
    let found = examined(&server, wrong).await;
    let expected = [Code::CopiesFew, Code::Unexamined, Code::Unexamined];
    assert_eq!(codes(&found), expected, "{found:?}");
    assert!(found[2].subject.contains(&free.to_string()), "{found:?}");
    assert!(found[2].message.contains("/varz"), "{found:?}");
}

/// R125, F36: a user who may not ask is told which subject has to be granted: the server answers nothing at all.
#[tokio::test]
async fn what_a_user_may_not_ask_is_said() {
    for (denied, named) in [
        ("publish: { deny: \"$JS.API.INFO\" }", "`$JS.API.INFO`"),
        ("publish: { deny: \"$JS.API.STREAM.INFO.*\" }", "`$JS.API.STREAM.INFO.SHOP`"),
    ] {
        let config = format!(
            "authorization {{ users = [ {{ user: all, password: all }}, \
             {{ user: few, password: few, permissions: {{ {denied} }} }} ] }}"
        );
        let Some(server) = Server::with(&config) else { return };
        let options =
            async_nats::ConnectOptions::with_user_and_password("all".into(), "all".into());
        let client = options.connect(server.address()).await.unwrap();
        let shop = Config { name: "SHOP".to_owned(), ..sound("shop") };
        async_nats::jetstream::new(client).create_stream(shop).await.unwrap();
        let mut settings = server.settings();
        settings.credentials = Credentials::User { name: "few".into(), password: "few".into() };
        settings.deadline = Duration::from_secs(10);
        let broker = NatsBroker::new(settings).unwrap();
        let asked = broker.examine(&[Route::all("shop".parse().unwrap())]).await;
        let said = asked.expect_err("a question is not answered").to_string();
        assert!(said.contains(named) && said.contains("publish"), "{said}");
    }
}
