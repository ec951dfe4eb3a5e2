//! What a well-behaved server answers, over a real connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use postrider_core::{Broker, ErrorKind, Fault, Outcome, Outgoing};
use postrider_webhook::{Endpoint, WebhookBroker, WebhookSettings};

use crate::support::*;

async fn answer(
    code: u16,
    header: Option<(&'static str, &'static str)>,
    body: &'static str,
) -> Outcome {
    let server = answering(move || {
        let mut response = status(code);
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        *response.body_mut() = Full::new(Bytes::from(body));
        response
    })
    .await;
    let outcome = publish(&broker(&server.url("/hook")), outgoing(1)).await;
    assert_eq!(server.got().len(), 1, "one request, whatever the answer");
    outcome
}

/// R057: each answer is somebody's failure, with its reason.
#[tokio::test]
async fn each_answer_has_its_outcome() {
    for code in [200, 201, 202, 204, 299] {
        assert_eq!(answer(code, None, "").await, Outcome::Acked);
    }
    let order = r#"{"error":"no such order"}"#;
    let fault = rejected(answer(422, None, order).await);
    assert_eq!(fault, Fault::new(ErrorKind::Rejected, format!("HTTP 422: {order}")));
    for code in [400, 415, 431] {
        assert_eq!(rejected(answer(code, None, "").await).kind, ErrorKind::Rejected);
    }
    assert_eq!(rejected(answer(413, None, "").await).kind, ErrorKind::TooLarge);
    for code in [401, 403] {
        assert_eq!(unroutable(answer(code, None, "").await).kind, ErrorKind::Unauthorized);
    }
    for code in [404, 405, 304] {
        assert_eq!(unroutable(answer(code, None, "").await).kind, ErrorKind::Unroutable);
    }
    let gone = answer(410, None, "unsubscribed").await;
    let fault = Fault::new(ErrorKind::Unroutable, "HTTP 410: unsubscribed");
    assert_eq!(gone, Outcome::Gone(fault));
}

/// F25: a server that throttles says when, and is obeyed.
#[tokio::test]
async fn a_server_that_throttles_is_obeyed() {
    for code in [429, 502, 503, 504, 500, 409, 425] {
        let outcome = answer(code, Some(("retry-after", "7")), "later").await;
        let fault = Fault::new(ErrorKind::Unavailable, format!("HTTP {code}: later"));
        assert_eq!(outcome, Outcome::Retry { fault, after: Some(Duration::from_secs(7)) });
    }
    let date = Some(("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT"));
    let Outcome::Retry { after, .. } = answer(503, date, "").await else { panic!() };
    assert_eq!(after, Some(Duration::ZERO), "that was long ago");
}

/// The reason is bounded, whatever the server writes.
#[tokio::test]
async fn a_long_reason_is_cut() {
    let long: &'static str = "x".repeat(5_000).leak();
    let fault = rejected(answer(400, None, long).await);
    assert_eq!(fault.detail, format!("HTTP 400: {}", "x".repeat(1_024)));
}

/// F32: a redirect is a failure, and what it points to is never called.
#[tokio::test]
async fn redirects_are_not_followed() {
    let secret = answering(|| status(200)).await;
    let location: &'static str = secret.url("/latest/meta-data").leak();
    for code in [301, 302, 303, 307, 308] {
        let fault = unroutable(answer(code, Some(("location", location)), "").await);
        assert_eq!(fault.kind, ErrorKind::Unroutable);
        assert!(fault.detail.contains("not followed") && fault.detail.contains(location));
    }
    assert_eq!(secret.connections(), 0);
    let around = answer(302, Some(("location", "/hook")), "").await;
    assert_eq!(unroutable(around).kind, ErrorKind::Unroutable, "a loop is left at once");
}

/// One connection serves one event after the other, also after refusals with a body.
#[tokio::test]
async fn connections_are_kept() {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let server = answering(move || {
        let codes = [200, 422, 503, 404];
        let turn = turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let mut response = status(codes[turn % codes.len()]);
        *response.body_mut() = Full::new(Bytes::from(vec![b'x'; 3_000]));
        response
    })
    .await;
    let broker = broker(&server.url("/"));
    for number in 1..=20 {
        publish(&broker, outgoing(number)).await;
    }
    assert_eq!((server.got().len(), server.connections()), (20, 1));
}

/// Endpoints that share a host share its connections: none is opened anew for every request.
#[tokio::test]
async fn connections_of_a_host_are_kept_for_all_its_endpoints() {
    let server = answering(|| status(204)).await;
    let mut settings =
        WebhookSettings { connections: 8, connections_per_endpoint: 1, ..settings() };
    for name in 0..8 {
        settings = settings.endpoint(&name.to_string(), Endpoint::new(server.url("/")));
    }
    let broker = WebhookBroker::new(&settings).unwrap();
    for _ in 0..10 {
        let mut round = tokio::task::JoinSet::new();
        for name in 0..8_u128 {
            let to = Outgoing { topic: Arc::from(name.to_string()), ..outgoing(name) };
            let broker = broker.clone();
            round.spawn(async move { publish(&broker, to).await });
        }
        assert!(round.join_all().await.iter().all(|outcome| *outcome == Outcome::Acked));
    }
    // Two that begin at once may each open one for the other; it is kept, and there is no third.
    assert!(server.connections() <= 16, "{}", server.connections());
}

/// R120: of several events each has its own outcome, in order.
#[tokio::test]
async fn each_event_of_a_batch_has_its_outcome() {
    let server = Server::start(std::sync::Arc::new(|got| {
        let code = if got.header("webhook-id").unwrap().ends_with('2') { 422 } else { 200 };
        Some(status(code))
    }))
    .await;
    let broker = broker(&server.url("/"));
    let outcomes = broker.publish(&[outgoing(1), outgoing(2), outgoing(3)]).await.unwrap();
    assert!(matches!(outcomes[..], [Outcome::Acked, Outcome::Rejected(_), Outcome::Acked]));
}
