//! Shared by the tests: a server that records what it gets, one that plays with raw bytes, and
//! outgoing events.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use postrider_core::{Broker, Event, EventId, Format, Marks, Outcome, Outgoing};
use postrider_webhook::{Endpoint, SigningKey, VerifyingKey, WebhookBroker, WebhookSettings};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// How long anything may take that a deadline of the broker ends; only a hang reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub(crate) fn key() -> SigningKey {
    SECRET.parse().unwrap()
}

pub(crate) fn verifying() -> Vec<VerifyingKey> {
    vec![key().verifying_key()]
}

/// A request as the server got it.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) path: String,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// What the server does with a request, once it is recorded; `None` closes the connection.
pub(crate) type Answer = Arc<dyn Fn(&Got) -> Option<Response<Full<Bytes>>> + Send + Sync>;

/// An HTTP server on a port of its own.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    connections: Arc<AtomicUsize>,
    answer: Answer,
}

impl Server {
    pub(crate) async fn start(answer: Answer) -> Server {
        Server::start_with_tls(answer, None).await
    }

    pub(crate) async fn start_with_tls(
        answer: Answer,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            got: Arc::default(),
            connections: Arc::default(),
            answer,
        };
        let accepting = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(accepting.clone().converse(stream, tls.clone()));
            }
        });
        server
    }

    async fn converse(self, stream: TcpStream, tls: Option<tokio_rustls::TlsAcceptor>) {
        let Some(tls) = tls else {
            return self.serve(stream, false).await;
        };
        // A client that does not trust the certificate goes away.
        if let Ok(stream) = tls.accept(stream).await {
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            self.serve(stream, http2).await;
        }
    }

    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        http2: bool,
    ) {
        let service = service_fn(move |request| self.clone().take(request));
        // A client that goes away is no failure of the server.
        if http2 {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        } else {
            let builder = hyper::server::conn::http1::Builder::new();
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        }
    }

    async fn take(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, String> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
        let got = Got {
            path: head.uri.path().to_owned(),
            version: head.version,
            headers: head.headers,
            body,
        };
        self.got.lock().unwrap().push(got.clone());
        (self.answer)(&got).ok_or_else(|| "the answer is lost".to_owned())
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

pub(crate) fn status(status: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// A server that answers everything alike.
pub(crate) async fn answering(
    response: impl Fn() -> Response<Full<Bytes>> + Send + Sync + 'static,
) -> Server {
    Server::start(Arc::new(move |_| Some(response()))).await
}

/// A server that does as it likes with each connection.
pub(crate) async fn raw<F>(converse: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(converse(stream));
        }
    });
    address
}

/// Settings for servers of a test: on this machine, and impatient.
pub(crate) fn settings() -> WebhookSettings {
    WebhookSettings {
        allow_private: true,
        deadline: Duration::from_secs(10),
        ..WebhookSettings::default()
    }
}

/// A broker with the one endpoint `partner`.
pub(crate) fn broker(url: &str) -> WebhookBroker {
    let endpoint = Endpoint::new(url).key(key());
    WebhookBroker::new(&settings().endpoint("partner", endpoint)).unwrap()
}

pub(crate) fn outgoing(number: u128) -> Outgoing {
    outgoing_of(Event::new(EventId::from_u128(number), "order", "42", "order.placed"))
}

pub(crate) fn outgoing_of(event: Event) -> Outgoing {
    Outgoing {
        event: Arc::new(event),
        topic: Arc::from("partner"),
        format: Format::Structured,
        layout: None,
        marks: Marks::default(),
        attempt: 1,
    }
}

/// Publishes one event, and gives up on a hang.
pub(crate) async fn publish(broker: &WebhookBroker, outgoing: Outgoing) -> Outcome {
    let publishing = broker.publish(std::slice::from_ref(&outgoing));
    let outcomes = tokio::time::timeout(PATIENCE, publishing).await.expect("no hang").unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.into_iter().next().unwrap()
}

/// The fault of an outcome that is none of the event's doing and may pass.
#[track_caller]
pub(crate) fn retried(outcome: Outcome) -> postrider_core::Fault {
    match outcome {
        Outcome::Retry { fault, .. } => fault,
        other => panic!("not a retry: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn unroutable(outcome: Outcome) -> postrider_core::Fault {
    match outcome {
        Outcome::Unroutable(fault) => fault,
        other => panic!("not unroutable: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn rejected(outcome: Outcome) -> postrider_core::Fault {
    match outcome {
        Outcome::Rejected(fault) => fault,
        other => panic!("not rejected: {other:?}"),
    }
}
