//! Domains of JetStream: the streams of a hub, for who is connected to a leaf node that has a domain of its own.

use std::time::{Duration, Instant};

use postrider_core::operate::Finding;
use postrider_core::{Broker, Code, ErrorKind, Outcome, Route, Subscription};
use postrider_nats::{NatsBroker, NatsSettings, NatsSubscription, SubscriptionSettings};
use postrider_testkit::carry::until_acked;

use crate::publishing::{event, outgoing};
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);

/// A hub with the streams `SHOP` and `DEAD`, and a leaf node without any.
pub(crate) async fn hub_and_leaf() -> Option<(Server, Server)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hub = Server::within(
        &format!("server_name: hub\nleafnodes {{ listen: \"127.0.0.1:{port}\" }}"),
        "domain: hub",
    )?;
    let leaf = Server::within(
        &format!(
            "server_name: leaf\nleafnodes {{ remotes: [{{ url: \"nats://127.0.0.1:{port}\" }}] }}"
        ),
        "domain: leaf",
    )?;
    hub.stream("SHOP", "shop.>").await;
    hub.stream("DEAD", "dead.>").await;
    Some((hub, leaf))
}

pub(crate) fn of(server: &Server, domain: Option<&str>) -> NatsSettings {
    let mut settings = server.settings();
    settings.domain = domain.map(str::to_owned);
    settings.deadline = Duration::from_secs(2);
    settings
}

fn group(subject: Option<&str>) -> SubscriptionSettings {
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.subject = subject.map(str::to_owned);
    settings.dead_letters = Some("dead.billing".to_owned());
    settings
}

/// INV-1, INV-8: who names the domain of the hub finds its streams from a leaf node: a copy that it has is looked at and not
/// stored twice, `doctor` sees how the stream is set, and a group receives, settles, and buries. Who does not, is told that
/// there is no such stream.
#[tokio::test]
async fn the_streams_of_another_domain_are_found() {
    let Some((hub, leaf)) = hub_and_leaf().await else { return };
    let broker = NatsBroker::new(of(&leaf, Some("hub"))).unwrap();
    // Also until the leaf node has found its hub.
    let sent = event("1", 1, 10);
    until_acked(&broker, "shop.1.order", &sent).await;
    let again = [outgoing("shop.1.order", &sent)];
    assert_eq!(broker.publish(&again).await.unwrap(), [Outcome::Acked]);
    let mut stream = hub.jetstream().await.get_stream("SHOP").await.unwrap();
    assert_eq!(stream.info().await.unwrap().state.messages, 1, "looked at, and not sent anew");

    let routes = [Route::all("shop.1.order".parse().unwrap())];
    let codes = |found: &[Finding]| found.iter().filter_map(|it| it.code).collect::<Vec<Code>>();
    let found = broker.examine(&routes).await.unwrap();
    assert_eq!(codes(&found), [Code::CopiesFew, Code::DuplicatesKept], "{found:?}");
    let own = NatsBroker::new(of(&leaf, None)).unwrap();
    let found = own.examine(&routes).await.unwrap();
    assert_eq!(codes(&found), [Code::Unroutable], "{found:?}");
    let advice = found[0].advice.as_deref().unwrap_or_default();
    assert!(advice.contains("which is `leaf`: set `domain`"), "{advice}");

    for subject in [None, Some("shop.{partition:2}.>")] {
        let missing = NatsSubscription::open(of(&leaf, None), group(subject)).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Unroutable, "{missing}");
        let said = missing.to_string();
        assert!(said.contains("domain=leaf") && said.contains("set `domain`"), "{said}");
    }
    let opened = NatsSubscription::open(of(&leaf, Some("hub")), group(None)).await.unwrap();
    let begun = Instant::now();
    let mut received = opened.receive(1).await.unwrap();
    while received.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "nothing came");
        received = opened.receive(1).await.unwrap();
    }
    opened.ack(&received[0]).await.unwrap();
    let info = stream.consumer_info("billing").await.unwrap();
    assert_eq!((info.ack_floor.stream_sequence, info.num_ack_pending), (1, 0), "{info:?}");

    // The hub goes away, and the leaf node stays: whose streams do not answer is said.
    drop((stream, hub));
    let begun = Instant::now();
    let said = loop {
        assert!(begun.elapsed() < PATIENCE, "nothing was said");
        if let Err(error) = opened.receive(1).await {
            break error.to_string();
        }
    };
    assert!(said.contains("domain=hub"), "{said}");
}

/// A domain that nobody answers for is no stream that is not there: it is said which one was asked.
#[tokio::test]
async fn a_domain_that_is_not_there_is_named() {
    let Some(server) = Server::start() else { return };
    server.stream("SHOP", "shop.>").await;
    let refused = NatsSubscription::open(of(&server, Some("nowhere")), group(None)).await;
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("nowhere"), "{said}");
    let broker = NatsBroker::new(of(&server, Some("nowhere"))).unwrap();
    let routes = [Route::all("shop.1.order".parse().unwrap())];
    let said = broker.examine(&routes).await.unwrap_err().to_string();
    assert!(said.contains("nowhere"), "{said}");
}
