//! The baseline of `webhook`: the HTTP client that the webhook destination is built on, and nothing of
//! ours around it.
//!
//! It sends the bodies and as many headers as ours, to the same receiver, over as many connections.
//! It leaves out the store, the order of keys, writing the event as JSON, signing, deadlines, retries,
//! and the record of what was delivered: bodies and headers are ready before the time begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use postrider_core::Marks;
use postrider_core::cloudevents::{MEDIA_TYPE, to_json};
use tokio::runtime::Runtime;

use crate::measure::rate;
use crate::{Result, webhook};

/// Requests made beforehand.
pub(crate) struct Prepared {
    bodies: Vec<Bytes>,
    headers: HeaderMap,
}

impl Prepared {
    /// The bodies of so many events, as ours writes them.
    pub(crate) fn new(events: u64) -> Result<Prepared> {
        let body = |number| {
            let event = webhook::event(number)?;
            Ok(Bytes::from(to_json(event.event(), Marks::default())?))
        };
        let bodies = (0..events).map(body).collect::<Result<_>>()?;
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::USER_AGENT, concat!("Postrider/", env!("CARGO_PKG_VERSION"))),
            (header::CONTENT_TYPE, MEDIA_TYPE),
            (HeaderName::from_static("webhook-id"), "0194d5e0-0000-7000-8000-000000000000"),
            (HeaderName::from_static("webhook-timestamp"), "1735689600"),
            (HeaderName::from_static("webhook-signature"), UNSIGNED),
            (HeaderName::from_static("postrider-attempt"), "1"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        Ok(Prepared { bodies, headers })
    }
}

/// As long as a signature, and none.
const UNSIGNED: &str = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Posts everything with so many requests at once, and returns how many a second.
pub(crate) fn post(
    runtime: &Runtime,
    prepared: &Arc<Prepared>,
    urls: &[String],
    connections: usize,
) -> Result<f64> {
    let uris: Vec<Uri> =
        urls.iter().map(|url| url.parse()).collect::<std::result::Result<_, _>>()?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(connections)
        .build(connector);
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..connections)
            .map(|worker| {
                let (client, prepared) = (client.clone(), Arc::clone(prepared));
                let (next, uri) = (Arc::clone(&next), uris[worker % uris.len()].clone());
                tokio::spawn(async move {
                    while let Some(body) = prepared.bodies.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let mut request = Request::new(Full::new(body.clone()));
                        *request.method_mut() = Method::POST;
                        *request.uri_mut() = uri.clone();
                        *request.headers_mut() = prepared.headers.clone();
                        let response = client.request(request).await?;
                        if !response.status().is_success() {
                            return Err(
                                format!("the receiver answered {}", response.status()).into()
                            );
                        }
                        response.into_body().collect().await?;
                    }
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    Ok(rate(prepared.bodies.len() as u64, start))
}
