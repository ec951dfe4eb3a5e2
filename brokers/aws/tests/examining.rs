//! What the brokers say of settings, each on queues, topics, and buses that are really so.

use aws_sdk_sqs::types::QueueAttributeName as Set;
use postrider_aws::{
    AwsSettings, EventBridgeBroker, SnsBroker, SqsBroker, SubscriptionSettings, examine_queue,
};
use postrider_core::operate::{Finding, Level};
use postrider_core::{Broker, Code, Route};

use crate::cloud::{Cloud, arn_of};
use crate::stub::{Stub, failure};

fn routes(topics: &[&str]) -> Vec<Route> {
    topics.iter().map(|topic| Route::all(topic.parse().unwrap())).collect()
}

/// The codes of what is not good, each with something to do.
fn codes(found: &[Finding]) -> Vec<Code> {
    let bad = found.iter().filter(|finding| finding.level != Level::Good);
    bad.map(|finding| {
        assert!(finding.advice.is_some(), "{finding:?}");
        finding.code.unwrap_or_else(|| panic!("no code: {finding:?}"))
    })
    .collect()
}

async fn of_queue(settings: AwsSettings, queue: &str) -> Vec<Finding> {
    let broker = SqsBroker::new(settings).unwrap();
    broker.examine(&routes(&[queue])).await.unwrap()
}

/// A queue's attributes, besides those of a sound one, what is found then, and words of it.
type Case<'a> = (&'a str, Vec<(Set, String)>, &'a [Code], &'a str);

/// R125: what could lose or hold up events is found, one setting at a time, each with a code and what to do.
#[tokio::test]
async fn each_setting_of_a_queue_that_loses_events_is_found() {
    let Some(cloud) = Cloud::find().await else { return };
    cloud.queue_of("dead", &[(Set::MessageRetentionPeriod, "1209600".to_owned())]).await;
    cloud.queue_of("short", &[(Set::MessageRetentionPeriod, "3600".to_owned())]).await;
    let redrive = || (Set::RedrivePolicy, cloud.redrive_policy("dead", 100));
    let cases: [Case<'_>; 6] = [
        ("sound", vec![redrive()], &[], "keeps messages for 4 d"),
        ("lonely", vec![], &[Code::KeptTooShort], "no redrive policy"),
        (
            "hasty",
            vec![redrive(), (Set::MessageRetentionPeriod, "3600".to_owned())],
            &[Code::KeptTooShort],
            "drops messages after 1 h",
        ),
        (
            "small",
            vec![redrive(), (Set::MaximumMessageSize, "2048".to_owned())],
            &[Code::LimitLow],
            "at most 2048 bytes",
        ),
        (
            "letters",
            vec![(Set::RedrivePolicy, cloud.redrive_policy("short", 100))],
            &[Code::KeptTooShort],
            "dead letters are kept for 1 h",
        ),
        (
            "nowhere",
            vec![(Set::RedrivePolicy, cloud.redrive_policy("nobody", 100))],
            &[Code::Unroutable],
            "is not there",
        ),
    ];
    for (name, attributes, expected, words) in cases {
        cloud.queue_of(name, &attributes).await;
        let found = of_queue(cloud.settings(), &cloud.name(name)).await;
        assert_eq!(codes(&found), expected, "{name}: {found:?}");
        assert!(found.iter().any(|it| it.message.contains(words)), "{name}: {found:?}");
    }
    let missing = of_queue(cloud.settings(), &cloud.name("missing")).await;
    assert_eq!(codes(&missing), [Code::Unroutable]);
    assert_eq!(missing[0].level, Level::Critical);
    assert!(missing[0].advice.as_ref().unwrap().contains("aws sqs create-queue"));
    assert_eq!(codes(&of_queue(cloud.settings(), "{event_type}").await), []);
}

/// R126: who may not look is told which permission it takes.
#[tokio::test]
async fn a_permission_that_is_missing_is_named() {
    let stub = Stub::start(|_| failure(400, "AccessDeniedException", "not you")).await;
    let found = of_queue(stub.settings(), "orders").await;
    assert_eq!(codes(&found), [Code::Unauthorized]);
    assert!(found[0].message.contains("sqs:GetQueueUrl on the queue `orders`"), "{found:?}");
}

/// R082: of a queue that is consumed, what takes messages away sooner than the sidecar would is found.
#[tokio::test]
async fn a_queue_that_is_consumed_is_looked_at() {
    let Some(cloud) = Cloud::find().await else { return };
    cloud.queue_of("dead", &[(Set::MessageRetentionPeriod, "1209600".to_owned())]).await;
    let redrive = |times| [(Set::RedrivePolicy, cloud.redrive_policy("dead", times))];
    cloud.queue_of("eager", &redrive(3)).await;
    cloud.queue_of("patient", &redrive(100)).await;
    cloud.queue("bare").await;
    let look = |name: &str, dead: Option<&str>| {
        let mut settings = SubscriptionSettings::new(&cloud.name(name));
        settings.dead_letters = dead.map(|dead| cloud.name(dead));
        let aws = cloud.settings();
        async move { examine_queue(aws, &settings, 8).await.unwrap() }
    };
    let eager = look("eager", None).await;
    assert_eq!(codes(&eager), [Code::KeptTooShort]);
    assert!(eager[0].message.contains("after 3 receives"), "{eager:?}");
    assert!(eager[0].advice.as_ref().unwrap().contains("\"maxReceiveCount\":\"80\""), "{eager:?}");
    assert_eq!(codes(&look("patient", None).await), []);
    assert_eq!(codes(&look("bare", None).await), [Code::Config]);
    assert_eq!(codes(&look("bare", Some("dead")).await), []);
    assert_eq!(codes(&look("bare", Some("nobody")).await), [Code::Unroutable]);
    assert_eq!(codes(&look("missing", Some("dead")).await), [Code::Unroutable]);
}

/// R125: a topic without subscribers, and a bus without rules, keep nothing of what they take.
#[tokio::test]
async fn what_nobody_listens_to_is_found() {
    let Some(cloud) = Cloud::find().await else { return };
    let queue = cloud.queue("orders").await;
    cloud.topic("void", &[], false).await;
    cloud.topic("heard", std::slice::from_ref(&queue), false).await;
    let broker = SnsBroker::new(cloud.settings()).unwrap();
    for (name, expected) in
        [("void", &[Code::KeptTooShort][..]), ("heard", &[]), ("missing", &[Code::Unroutable])]
    {
        let found = broker.examine(&routes(&[&cloud.name(name)])).await.unwrap();
        assert_eq!(codes(&found), expected, "{name}: {found:?}");
    }
    cloud.bus("empty", &[]).await;
    cloud.bus("ruled", std::slice::from_ref(&queue)).await;
    let broker = EventBridgeBroker::new(cloud.settings()).unwrap();
    for (name, expected, words) in [
        ("empty", &[Code::KeptTooShort][..], "no rule is on"),
        ("ruled", &[Code::KeptTooShort], "no queue for dead letters"),
        ("missing", &[Code::Unroutable], "not there"),
    ] {
        let found = broker.examine(&routes(&[&cloud.name(name)])).await.unwrap();
        assert_eq!(codes(&found), expected, "{name}: {found:?}");
        assert!(found[0].message.contains(words), "{name}: {found:?}");
    }
    cloud.keep_dead_letters("ruled", &queue, &arn_of(&queue)).await;
    let found = broker.examine(&routes(&[&cloud.name("ruled")])).await.unwrap();
    assert_eq!(codes(&found), [], "the control: {found:?}");
}

/// A service whose first page has nothing that counts, and the second one has; the pages that were asked for.
async fn paged(page: impl Fn(usize) -> (u16, String) + Send + Sync + 'static) -> Stub {
    let pages = std::sync::atomic::AtomicUsize::new(0);
    Stub::start(move |asked| {
        let ask = &*asked.action;
        if ask.ends_with("ListRules") || ask == "ListSubscriptionsByTopic" {
            return Some(page(pages.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
        }
        match ask {
            "GetTopicAttributes" => Some((200, xml(ask, "<Attributes/>"))),
            _ => Some((200, r#"{"Name":"orders","Targets":[]}"#.to_owned())),
        }
    })
    .await
}

/// An answer of a service that speaks XML.
fn xml(action: &str, inner: &str) -> String {
    let own = "xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"";
    format!("<{action}Response {own}><{action}Result>{inner}</{action}Result></{action}Response>")
}

fn pages_of(stub: &Stub, action: &str) -> usize {
    stub.asked().iter().filter(|asked| asked.action.ends_with(action)).count()
}

/// A rule that is on is found on a later page too, and a list without an end is not read for ever.
#[tokio::test]
async fn rules_are_read_page_by_page() {
    let rules = |state: &str, next: &str| {
        (200, format!(r#"{{"Rules":[{{"Name":"r","State":"{state}"}}]{next}}}"#))
    };
    let next = r#","NextToken":"more""#;
    let stub = paged(move |page| match page {
        0 => rules("DISABLED", next),
        _ => rules("ENABLED", ""),
    })
    .await;
    let broker = EventBridgeBroker::new(stub.settings()).unwrap();
    let found = broker.examine(&routes(&["orders"])).await.unwrap();
    assert_eq!(codes(&found), [], "{found:?}");
    assert!(found[0].message.contains("1 rules are on"), "{found:?}");
    assert_eq!(pages_of(&stub, "ListRules"), 2);

    let endless = paged(move |_| rules("DISABLED", next)).await;
    let broker = EventBridgeBroker::new(endless.settings()).unwrap();
    let found = broker.examine(&routes(&["orders"])).await.unwrap();
    assert_eq!(codes(&found), [Code::KeptTooShort], "{found:?}");
    assert_eq!(pages_of(&endless, "ListRules"), 10);
}

/// So are subscriptions: those of the first page may all be unconfirmed.
#[tokio::test]
async fn subscriptions_are_read_page_by_page() {
    let page = |arn: &str, next: &str| {
        let members = format!(
            "<Subscriptions><member><SubscriptionArn>{arn}</SubscriptionArn></member></Subscriptions>{next}"
        );
        (200, xml("ListSubscriptionsByTopic", &members))
    };
    let next = "<NextToken>more</NextToken>";
    let stub = paged(move |number| match number {
        0 => page("PendingConfirmation", next),
        _ => page("arn:aws:sns:eu-central-1:1:orders:one", ""),
    })
    .await;
    let broker = SnsBroker::new(stub.settings()).unwrap();
    let found = broker.examine(&routes(&["orders"])).await.unwrap();
    assert_eq!(codes(&found), [], "{found:?}");
    assert!(found[0].message.contains("1 subscribers"), "{found:?}");
    assert_eq!(pages_of(&stub, "ListSubscriptionsByTopic"), 2);
}
