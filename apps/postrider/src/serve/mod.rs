//! The listener for machines: metrics, and health by progress. Opt-in, on loopback unless told
//! otherwise.
//!
//! Invariant: nothing here changes anything, and a request costs the store at most one reading a
//! second, however many come.

pub(crate) mod catalog;
mod count;
pub(crate) mod messaging;
mod metrics;
mod scrape;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use postrider_core::BoxFuture;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) use catalog::page;
pub(crate) use metrics::Metrics;
pub(crate) use scrape::{Readiness, View};

use crate::failure::Failure;

/// What can be looked at: a relay, or a sidecar.
pub(crate) trait Shown: Send + Sync {
    /// Whether events move, or there is nothing to move.
    fn readiness(&self) -> Readiness;

    /// All metrics as text.
    fn scrape(&self) -> BoxFuture<'_, String>;
}

/// The address of a flag.
///
/// # Errors
/// What to write instead.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, like 127.0.0.1:9464".to_owned())
}

/// What the listener shows, and to whom.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) view: Arc<dyn Shown>,
    pub(crate) token: Token,
}

/// The token of `Authorization: Bearer`, which a reload may exchange. None lets everybody in who can
/// reach the address.
#[derive(Clone, Default)]
pub(crate) struct Token(Arc<RwLock<Option<Arc<str>>>>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Token {
    pub(crate) fn new(token: Option<&str>) -> Token {
        Token(Arc::new(RwLock::new(token.map(Arc::from))))
    }

    /// Puts another in its place.
    pub(crate) fn exchange(&self, token: Option<&str>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = token.map(Arc::from);
    }

    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.present().is_some()
    }

    /// What another one says now.
    pub(crate) fn follow(&self, other: &Token) {
        self.exchange(other.present().as_deref());
    }

    fn present(&self) -> Option<Arc<str>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A listener that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listening {
    /// Where it listens: of use when port 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens. The setting is where the address comes from.
///
/// # Errors
/// A configuration failure if the address cannot be bound, or is not loopback and has no token.
pub(crate) async fn listen(
    address: SocketAddr,
    served: Served,
    setting: &str,
) -> Result<Listening, Failure> {
    if served.token.present().is_none() && !address.ip().is_loopback() {
        return Err(Failure::config(format!(
            "the listener's address {address} can be reached from outside, and there is no token"
        ))
        .advice("Set observe.token, or listen on 127.0.0.1."));
    }
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::config(format!("the listener's address {address}: {error}"))
            .advice(format!("Choose another port in {setting}, or with --listen."))
    })?;
    let address = listener.local_addr().map_err(|e| Failure::plain(format!("listener: {e}")))?;
    let task = tokio::spawn(async move {
        // Ends with the process; a connection that breaks is its client's business.
        let _ = axum::serve(listener, router(served)).await;
    });
    Ok(Listening { address, task })
}

fn router(served: Served) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .with_state(served)
}

/// The process lives. It says no more than that, so nobody needs a token.
async fn alive() -> &'static str {
    "ok\n"
}

/// Whether events move, or there is nothing to move; else who holds them up.
async fn ready(State(served): State<Served>, headers: HeaderMap) -> Response {
    if let Some(refused) = refuse(&served, &headers) {
        return refused;
    }
    let readiness = served.view.readiness();
    let status = match readiness.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, axum::Json(readiness)).into_response()
}

async fn metrics(State(served): State<Served>, headers: HeaderMap) -> Response {
    /// OpenMetrics 1.0, section "Overall Structure".
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    if let Some(refused) = refuse(&served, &headers) {
        return refused;
    }
    let text = served.view.scrape().await;
    ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

/// The answer to a request without the token.
fn refuse(served: &Served, headers: &HeaderMap) -> Option<Response> {
    let token = served.token.present()?;
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    // As long as the token is, whatever was given: the time tells nothing of how much was right.
    let same = given.len() == token.len()
        && given.bytes().zip(token.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0;
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (!same).then(|| (StatusCode::UNAUTHORIZED, challenge, "a token is needed\n").into_response())
}
