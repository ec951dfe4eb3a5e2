//! The endpoint of a test: a real HTTP server that answers as it is told, and remembers every call.
//!
//! Its effects are kept as a careful handler keeps them: one for each idempotency key, whatever
//! became of the answer. A careless one acts at every call.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use postrider_core::cloudevents::{self, binary};
use postrider_core::{Event, EventId};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a test waits for a call: far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(40);

/// What the endpoint does with one call.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// Acts, and answers 200 with this body.
    Act(Bytes),
    /// Answers with a status, headers, and a body; acts on nothing.
    Say(u16, Vec<(&'static str, String)>, String),
    /// Closes the connection without an answer.
    Cut,
    /// Answers nothing, for ever.
    Hang,
    /// Does that when the test opens the door.
    Held(Box<Plan>),
    /// Does that after a time: a handler that works.
    After(Duration, Box<Plan>),
    /// Acts, then does that with the answer.
    ActThen(Box<Plan>),
}

impl Plan {
    pub(crate) fn done() -> Plan {
        Plan::Act(Bytes::from_static(b"done"))
    }

    pub(crate) fn status(status: u16) -> Plan {
        Plan::Say(status, Vec::new(), format!("because of {status}"))
    }
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub(crate) event: Event,
    pub(crate) headers: HeaderMap,
    pub(crate) at: Instant,
}

impl Called {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.header("postrider-attempt").parse().unwrap()
    }
}

type Script = dyn Fn(&Called, usize) -> Plan + Send + Sync;

#[derive(Default)]
struct Seen {
    calls: Vec<Called>,
    /// How often each event was called for.
    of: BTreeMap<EventId, usize>,
    keys: BTreeSet<String>,
    effects: Vec<EventId>,
    at_work: usize,
    at_work_max: usize,
}

struct Shared {
    seen: Mutex<Seen>,
    count: watch::Sender<usize>,
    ended: watch::Sender<usize>,
    door: watch::Sender<bool>,
    script: Box<Script>,
    careless: bool,
}

/// A running endpoint.
pub(crate) struct Endpoint {
    shared: Arc<Shared>,
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Endpoint {
    /// Starts it. The script gets each call and how many of the same event came before.
    pub(crate) async fn start(
        script: impl Fn(&Called, usize) -> Plan + Send + Sync + 'static,
    ) -> Endpoint {
        Endpoint::start_at("127.0.0.1:0", false, Box::new(script)).await
    }

    /// One that acts on everything.
    pub(crate) async fn willing() -> Endpoint {
        Endpoint::start(|_, _| Plan::done()).await
    }

    /// One that acts at every call, whatever its idempotency key.
    pub(crate) async fn careless(
        script: impl Fn(&Called, usize) -> Plan + Send + Sync + 'static,
    ) -> Endpoint {
        Endpoint::start_at("127.0.0.1:0", true, Box::new(script)).await
    }

    /// One at an address that was free a moment ago.
    pub(crate) async fn start_at(address: &str, careless: bool, script: Box<Script>) -> Endpoint {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            seen: Mutex::default(),
            count: watch::Sender::new(0),
            ended: watch::Sender::new(0),
            door: watch::Sender::new(false),
            script,
            careless,
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Endpoint { shared, address, server }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// The calls so far, in order.
    pub(crate) fn calls(&self) -> Vec<Called> {
        self.seen().calls.clone()
    }

    /// The calls for one event.
    pub(crate) fn calls_of(&self, id: EventId) -> Vec<Called> {
        self.calls().into_iter().filter(|call| call.event.id == id).collect()
    }

    /// What it acted on, in order.
    pub(crate) fn effects(&self) -> Vec<EventId> {
        self.seen().effects.clone()
    }

    /// How many calls were at work at once.
    pub(crate) fn at_work_max(&self) -> usize {
        self.seen().at_work_max
    }

    /// Waits until so many calls came.
    pub(crate) async fn called(&self, times: usize) {
        wait(&self.shared.count, times, "calls").await;
    }

    /// Waits until so many calls were answered, or their connections were closed by the caller.
    pub(crate) async fn ended(&self, times: usize) {
        wait(&self.shared.ended, times, "ended calls").await;
    }

    /// Lets everything that is held go on, and nothing be held any more.
    pub(crate) fn open(&self) {
        self.shared.door.send_replace(true);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.seen.lock().unwrap()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn wait(number: &watch::Sender<usize>, times: usize, what: &str) {
    let mut number = number.subscribe();
    let reached = number.wait_for(|number| *number >= times);
    if tokio::time::timeout(PATIENCE, reached).await.is_err() {
        panic!("{} of {times} {what}", *number.borrow());
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, Arc::clone(&shared)));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Counts a call as ended when it is answered or its connection is closed.
struct AtWork(Arc<Shared>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.seen.lock().unwrap().at_work -= 1;
        self.0.ended.send_modify(|ended| *ended += 1);
    }
}

/// The error of a handler that closes the connection.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed on purpose")
    }
}

impl std::error::Error for Closed {}

impl From<Infallible> for Closed {
    fn from(never: Infallible) -> Closed {
        match never {}
    }
}

/// The event of a call, in the mode that its content type says.
fn read(headers: &HeaderMap, body: Bytes) -> Event {
    let content_type = headers["content-type"].to_str().unwrap();
    if cloudevents::is_structured(content_type) {
        return cloudevents::parse(&body).unwrap().0;
    }
    let attributes: Vec<(&str, String)> = headers
        .iter()
        .filter_map(|(name, value)| {
            let name = name.as_str().strip_prefix(binary::PREFIX)?;
            Some((name, binary::decode_value(value.as_bytes()).unwrap()))
        })
        .collect();
    let attributes = attributes.iter().map(|(name, value)| (*name, &**value));
    binary::parse(attributes, Some(content_type), body).unwrap().0
}

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, Closed> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Closed)?.to_bytes();
    assert_eq!((parts.method.as_str(), parts.uri.path()), ("POST", "/events"));
    let event = read(&parts.headers, body);
    let called = Called { event, headers: parts.headers, at: Instant::now() };
    let id = called.event.id;
    let key = called.header("idempotency-key").to_owned();
    let plan = {
        let mut seen = shared.seen.lock().unwrap();
        let before = seen.of.get(&id).copied().unwrap_or(0);
        seen.of.insert(id, before + 1);
        seen.calls.push(called.clone());
        seen.at_work += 1;
        seen.at_work_max = seen.at_work_max.max(seen.at_work);
        (shared.script)(&called, before)
    };
    let _at_work = AtWork(Arc::clone(&shared));
    shared.count.send_modify(|count| *count += 1);
    carry_out(plan, &shared, id, &key).await
}

async fn carry_out(
    plan: Plan,
    shared: &Arc<Shared>,
    id: EventId,
    key: &str,
) -> Result<Response<Full<Bytes>>, Closed> {
    let act = || {
        let mut seen = shared.seen.lock().unwrap();
        if seen.keys.insert(key.to_owned()) || shared.careless {
            seen.effects.push(id);
        }
    };
    match plan {
        Plan::Act(body) => {
            act();
            Ok(Response::new(Full::new(body)))
        }
        Plan::Say(status, headers, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            Ok(response.body(Full::new(Bytes::from(body))).unwrap())
        }
        Plan::Cut => Err(Closed),
        Plan::Hang => std::future::pending().await,
        Plan::Held(plan) => {
            let mut door = shared.door.subscribe();
            let _ = door.wait_for(|open| *open).await;
            Box::pin(carry_out(*plan, shared, id, key)).await
        }
        Plan::After(time, plan) => {
            // waits: a handler that takes its time
            tokio::time::sleep(time).await;
            Box::pin(carry_out(*plan, shared, id, key)).await
        }
        Plan::ActThen(plan) => {
            act();
            Box::pin(carry_out(*plan, shared, id, key)).await
        }
    }
}
