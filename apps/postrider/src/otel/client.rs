//! The client that takes spans to the collector: plain HTTP, with what the program has for HTTP anyway.
//!
//! Invariant: a request ends after [`TIMEOUT`], and keeps no more of an answer than [`ANSWER_MAX`].

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

/// How long one batch may take, tries included. Default 5 s: a collector on the same machine answers in
/// milliseconds, and while one batch is tried, the next ones queue.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of an answer. Default 64 KiB: it is a few numbers, and a sentence if something is wrong.
const ANSWER_MAX: usize = 64 * 1024;

/// Sends requests on a runtime, whatever thread asks.
#[derive(Debug)]
pub(super) struct Client {
    hyper: Hyper<HttpConnector, Full<Bytes>>,
    runtime: Handle,
}

impl Client {
    /// A client on the current runtime.
    pub(super) fn new() -> Client {
        Client {
            hyper: Hyper::builder(TokioExecutor::new()).build_http(),
            runtime: Handle::current(),
        }
    }
}

impl HttpClient for Client {
    fn send_bytes<'a, 'answer>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'answer>>
    where
        'a: 'answer,
        Self: 'answer,
    {
        let hyper = self.hyper.clone();
        let sent = async move { tokio::time::timeout(TIMEOUT, send(&hyper, request)).await? };
        // The exporter's thread knows no timer and no socket.
        let sent = self.runtime.spawn(sent);
        Box::pin(async move { sent.await? })
    }
}

async fn send(
    hyper: &Hyper<HttpConnector, Full<Bytes>>,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let response = hyper.request(request.map(Full::new)).await?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}
