//! The broker: one request per event, one outcome per request, within one deadline.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Outcome, Outgoing, Result,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::WebhookSettings;
use crate::answer::{judge, judge_failure, too_late};
use crate::connect::{ClientSettings, HttpClient, Resolve, System};
use crate::request::encode;
use crate::target::{Table, wrong};

/// How long the rest of an answer is waited for, once its status has decided: enough for what is
/// already under way, too little to hold anybody.
const BODY_WAIT: Duration = Duration::from_millis(250);
/// Bytes of an answer that are read so that its connection can serve again. Past them it is closed.
const DRAIN_BYTES_MAX: usize = 16 * 1024;
const DEADLINE_MAX: Duration = Duration::from_secs(10 * 60);
const CONNECTIONS_MAX: u32 = 4_096;
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A broker that sends every event in a signed request of its own. Clones share it.
///
/// **Durability.** A 2xx answer is the endpoint's word; what that is worth is the endpoint's matter.
/// **Cancellation.** A publish that is dropped closes its connection. Its request may have arrived.
#[derive(Clone)]
pub struct WebhookBroker {
    shared: Arc<Shared>,
}

struct Shared {
    /// What new requests use; those under way keep what they began with.
    current: RwLock<Arc<Current>>,
    resolver: Arc<dyn Resolve>,
    /// As many as there may be requests under way.
    places: Semaphore,
    connections: u32,
    connections_per_endpoint: u32,
    closed: AtomicBool,
}

struct Current {
    table: Table,
    client: HttpClient,
    client_settings: ClientSettings,
    deadline: Duration,
    answer_bytes_max: usize,
    request_bytes_max: usize,
}

impl WebhookBroker {
    /// Checks the settings and makes a broker. Nothing is called before the first event.
    ///
    /// # Errors
    /// `Config`, naming the setting or the endpoint.
    pub fn new(settings: &WebhookSettings) -> Result<WebhookBroker> {
        WebhookBroker::with_resolver(settings, Arc::new(System::default()))
    }

    /// A broker with a resolver of one's own. What it finds is checked like any address.
    ///
    /// # Errors
    /// As [`new`](WebhookBroker::new).
    pub fn with_resolver(
        settings: &WebhookSettings,
        resolver: Arc<dyn Resolve>,
    ) -> Result<WebhookBroker> {
        let current = Current::new(settings, &resolver, None)?;
        Ok(WebhookBroker {
            shared: Arc::new(Shared {
                current: RwLock::new(Arc::new(current)),
                resolver,
                places: Semaphore::new(settings.connections as usize),
                connections: settings.connections,
                connections_per_endpoint: settings.connections_per_endpoint,
                closed: AtomicBool::new(false),
            }),
        })
    }

    /// Replaces the settings: endpoints, keys, times, and limits. Requests under way end with those
    /// they began with. Connections are kept unless what may be called, or whom to trust, has changed.
    ///
    /// # Errors
    /// `Config`, as [`new`](WebhookBroker::new), or if `connections` or `connections_per_endpoint`
    /// differ, which the relay reads once, at its start. The old settings then stay in force.
    pub fn reload(&self, settings: &WebhookSettings) -> Result<()> {
        let wanted = (settings.connections, settings.connections_per_endpoint);
        if wanted != (self.shared.connections, self.shared.connections_per_endpoint) {
            return Err(wrong(
                "`connections` and `connections_per_endpoint` change only with a restart; the old \
                 settings stay in force",
            ));
        }
        let before = self.shared.current();
        let current = Current::new(settings, &self.shared.resolver, Some(&before))?;
        let mut slot = self.shared.current.write().unwrap_or_else(PoisonError::into_inner);
        *slot = Arc::new(current);
        Ok(())
    }

    async fn publish_batch(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(batch.len());
        for outgoing in batch {
            let place = self.shared.places.acquire().await;
            if place.is_err() || self.shared.closed.load(Ordering::Acquire) {
                return Err(Error::new(ErrorKind::Closed, "publish")
                    .message("the webhook broker was closed; nothing was sent"));
            }
            outcomes.push(self.shared.current().publish(outgoing).await);
        }
        Ok(outcomes)
    }
}

impl Shared {
    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Current {
    fn new(
        settings: &WebhookSettings,
        resolver: &Arc<dyn Resolve>,
        before: Option<&Current>,
    ) -> Result<Current> {
        check(settings)?;
        let client_settings = ClientSettings::of(settings);
        let client = match before {
            Some(before) if before.client_settings == client_settings => before.client.clone(),
            _ => client_settings.client(resolver)?,
        };
        Ok(Current {
            table: Table::new(settings)?,
            client,
            client_settings,
            deadline: settings.deadline,
            answer_bytes_max: settings.answer_bytes_max,
            request_bytes_max: settings.request_bytes_max,
        })
    }

    async fn publish(&self, outgoing: &Outgoing) -> Outcome {
        let deadline = Instant::now() + self.deadline;
        let target = match self.table.find(&outgoing.topic) {
            Ok(target) => target,
            Err(fault) => return Outcome::Unroutable(fault),
        };
        match encode(&target, outgoing, self.request_bytes_max, SystemTime::now()) {
            Ok(request) => self.send(request, deadline).await,
            Err(fault) => Outcome::Rejected(fault),
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>, deadline: Instant) -> Outcome {
        let response = match timeout_at(deadline, self.client.request(request)).await {
            Err(_) => return too_late(self.deadline),
            Ok(Err(error)) => return judge_failure(&error),
            Ok(Ok(response)) => response,
        };
        // The status has decided. The body is a reason at most, and never changes the outcome.
        let (head, mut body) = response.into_parts();
        let keep = if head.status.is_success() { 0 } else { self.answer_bytes_max };
        let mut reason = Vec::new();
        let reading = read(&mut body, &mut reason, keep);
        let _ = timeout_at(deadline.min(Instant::now() + BODY_WAIT), reading).await;
        judge(head.status, &head.headers, &reason, SystemTime::now())
    }
}

/// Reads a body to its end or to the limit, and keeps the beginning.
async fn read(body: &mut Incoming, kept: &mut Vec<u8>, keep: usize) {
    let mut length = 0;
    while length < keep.max(DRAIN_BYTES_MAX) {
        let Some(Ok(frame)) = body.frame().await else {
            return;
        };
        if let Some(data) = frame.data_ref() {
            length += data.len();
            let more = keep.saturating_sub(kept.len()).min(data.len());
            kept.extend_from_slice(&data[..more]);
        }
    }
}

fn check(settings: &WebhookSettings) -> Result<()> {
    if settings.deadline.is_zero() || settings.deadline > DEADLINE_MAX {
        return Err(wrong("`deadline` is more than nothing and at most 10 min"));
    }
    if !(1..=CONNECTIONS_MAX).contains(&settings.connections) {
        return Err(wrong(format!("`connections` is 1 to {CONNECTIONS_MAX}")));
    }
    if !(1..=settings.connections).contains(&settings.connections_per_endpoint) {
        return Err(wrong("`connections_per_endpoint` is 1 to `connections`"));
    }
    if settings.answer_bytes_max > ANSWER_BYTES_MAX {
        return Err(wrong(format!("`answer_bytes_max` is at most {ANSWER_BYTES_MAX}")));
    }
    Ok(())
}

impl Broker for WebhookBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut can = BrokerCapabilities::least();
        // One request at a time for a key, and the next only after its answer.
        can.keeps_key_order = true;
        can.batch_rows_max = 1;
        can.batch_bytes_max = 4 * 1024 * 1024;
        can.batches_in_flight_max = self.shared.connections;
        can.endpoint_batches_max = self.shared.connections_per_endpoint;
        can
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(self.publish_batch(batch))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.shared.closed.store(true, Ordering::Release);
            // All places are free when nothing is under way any more; who waits for one finds the
            // broker closed.
            let _all = self.shared.places.acquire_many(self.shared.connections).await;
            Ok(())
        })
    }
}

impl fmt::Debug for WebhookBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookBroker")
            .field("connections", &self.shared.connections)
            .finish_non_exhaustive()
    }
}
