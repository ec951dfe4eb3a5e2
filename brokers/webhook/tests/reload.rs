//! Settings that are replaced while requests are under way.

use std::sync::Arc;

use postrider_core::{Broker, ErrorKind, Outcome, Outgoing};
use postrider_testkit::fault::TestSignal;
use postrider_webhook::{Endpoint, WebhookBroker, WebhookSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::*;

fn to(name: &str, number: u128) -> Outgoing {
    Outgoing { topic: Arc::from(name), ..outgoing(number) }
}

/// What is under way ends with the settings it began with; what comes after has the new ones.
#[tokio::test]
async fn what_is_under_way_is_not_lost() {
    let (arrived, go) = (TestSignal::default(), postrider_testkit::fault::Gate::new());
    let address = raw({
        let (arrived, go) = (arrived.clone(), go.clone());
        move |mut stream| {
            let (arrived, go) = (arrived.clone(), go.clone());
            async move {
                stream.read_exact(&mut [0; 100]).await.unwrap();
                arrived.happened();
                go.pass().await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                // Whatever of the request was not read is drained, so that closing resets nothing.
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        }
    })
    .await;
    let old = settings().endpoint("old", Endpoint::new(format!("http://{address}/")));
    let broker = WebhookBroker::new(&old).unwrap();
    let wait = arrived.wait();
    let under_way = tokio::spawn({
        let broker = broker.clone();
        async move { publish(&broker, to("old", 1)).await }
    });
    wait.once().await;
    let server = answering(|| status(200)).await;
    let new = settings().endpoint("new", Endpoint::new(server.url("/")));
    // Another deadline: even the client is a new one.
    let new = WebhookSettings { deadline: std::time::Duration::from_secs(8), ..new };
    broker.reload(&new).unwrap();
    assert_eq!(publish(&broker, to("new", 2)).await, Outcome::Acked);
    unroutable(publish(&broker, to("old", 3)).await);
    go.open();
    assert_eq!(under_way.await.unwrap(), Outcome::Acked);
}

/// Other keys and endpoints do not cost the connections that are open.
#[tokio::test]
async fn connections_outlive_a_reload() {
    let server = answering(|| status(200)).await;
    let endpoint = Endpoint::new(server.url("/"));
    let broker = WebhookBroker::new(&settings().endpoint("a", endpoint.clone())).unwrap();
    assert_eq!(publish(&broker, to("a", 1)).await, Outcome::Acked);
    broker.reload(&settings().endpoint("b", endpoint.key(key()))).unwrap();
    assert_eq!(publish(&broker, to("b", 2)).await, Outcome::Acked);
    assert_eq!(server.connections(), 1);
    assert!(server.got()[1].headers.contains_key("webhook-signature"));
}

/// Wrong settings change nothing.
#[tokio::test]
async fn wrong_settings_are_refused_as_a_whole() {
    let server = answering(|| status(200)).await;
    let good = settings().endpoint("a", Endpoint::new(server.url("/")));
    let broker = WebhookBroker::new(&good).unwrap();
    let wrong = [
        good.clone().endpoint("b", Endpoint::new("https://user@b.example/")),
        WebhookSettings { connections: 3, connections_per_endpoint: 1, ..good.clone() },
        WebhookSettings { deadline: std::time::Duration::ZERO, ..good.clone() },
        WebhookSettings { answer_bytes_max: 1 << 20, ..good.clone() },
        WebhookSettings { extra_roots: vec!["no certificate".to_owned()], ..good.clone() },
    ];
    for settings in wrong {
        let error = broker.reload(&settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert_eq!(publish(&broker, to("a", 1)).await, Outcome::Acked, "the old ones hold");
    }
    let none = WebhookSettings { connections: 0, ..settings() };
    assert!(WebhookBroker::new(&none).is_err());
}

#[tokio::test]
async fn a_thousand_endpoints_are_found() {
    let server = answering(|| status(200)).await;
    let settings = (0..1_000).fold(settings(), |settings, n| {
        let endpoint = Endpoint::new(server.url(&format!("/{n}"))).key(key());
        settings.endpoint(&format!("partner-{n}"), endpoint)
    });
    let broker = WebhookBroker::new(&settings).unwrap();
    broker.reload(&settings).unwrap();
    for n in [0, 1, 499, 998, 999] {
        assert_eq!(publish(&broker, to(&format!("partner-{n}"), n)).await, Outcome::Acked);
        assert_eq!(server.got().pop().unwrap().path, format!("/{n}"));
    }
    unroutable(publish(&broker, to("partner-1000", 1)).await);
}

/// `close` returns when what was under way has ended, and lets nothing begin.
#[tokio::test]
async fn close_waits_for_what_is_under_way() {
    let (arrived, go) = (TestSignal::default(), postrider_testkit::fault::Gate::new());
    let server = raw({
        let (arrived, go) = (arrived.clone(), go.clone());
        move |mut stream| {
            let (arrived, go) = (arrived.clone(), go.clone());
            async move {
                stream.read_exact(&mut [0; 100]).await.unwrap();
                arrived.happened();
                go.pass().await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        }
    })
    .await;
    let broker = broker(&format!("http://{server}/"));
    let wait = arrived.wait();
    let under_way = tokio::spawn({
        let broker = broker.clone();
        async move { publish(&broker, outgoing(1)).await }
    });
    wait.once().await;
    let mut closing = Box::pin(broker.close());
    assert!(
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(closing.as_mut().poll(context).is_pending())
        })
        .await
    );
    go.open();
    closing.await.unwrap();
    assert_eq!(under_way.await.unwrap(), Outcome::Acked);
    let refused = broker.publish(&[outgoing(2)]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
}
