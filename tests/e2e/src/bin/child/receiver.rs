//! The part of a partner that receives webhooks: verifies each request, records it, and answers.
//!
//! | argument | what it does |
//! |---|---|
//! | `--slow-ms N`, `--slow NAME` | answers after so long, all endpoints or one |
//! | `--mute N` | closes the connections of the first so many requests after it recorded them |
//! | `--careless N` | answers at once, and records so many at a time |

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use postrider_core::{Error, ErrorKind, Result};
use postrider_e2e::SECRET;
use postrider_webhook::receive::Received;
use postrider_webhook::signature::TOLERANCE;
use postrider_webhook::{SigningKey, VerifyingKey};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::args::{Args, config};
use crate::asked::Asked;
use crate::halt::Halt;
use crate::record::Record;
use crate::words::say;

/// Longer bodies are refused: no event of the tests has as much.
const BODY_BYTES_MAX: usize = 256 * 1024;

/// What is wrong with a request, or with the receiver.
type Fault = Box<dyn std::error::Error + Send + Sync>;

struct Partner {
    record: Record,
    keys: Vec<VerifyingKey>,
    halt: Arc<Halt>,
    /// How long an answer takes, and of which endpoint; of all where none is named.
    slow: Duration,
    slow_endpoint: Option<String>,
    mute: AtomicU64,
    careless: usize,
    /// What a careless partner has acknowledged and not recorded yet.
    unrecorded: Mutex<Vec<String>>,
    under_way: AtomicU64,
    most_under_way: AtomicU64,
}

pub(crate) async fn run(args: &Args, halt: Arc<Halt>, asked: Asked) -> Result<ExitCode> {
    let address = args.text("address").ok_or_else(|| config("--address is missing".to_owned()))?;
    let listener = listen(address).map_err(|e| {
        Error::new(ErrorKind::Unavailable, "listen").message(format!("{address}: {e}"))
    })?;
    let key: SigningKey = SECRET.parse()?;
    let partner = Arc::new(Partner {
        record: Record::open(&args.files()?.received)?,
        keys: vec![key.verifying_key()],
        halt,
        slow: args.millis("slow-ms", 0)?,
        slow_endpoint: args.text("slow").map(str::to_owned),
        mute: AtomicU64::new(args.number("mute", 0)?),
        careless: args.number("careless", 0)?,
        unrecorded: Mutex::default(),
        under_way: AtomicU64::new(0),
        most_under_way: AtomicU64::new(0),
    });
    say("ready");
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    tokio::spawn(Arc::clone(&partner).converse(stream));
                }
            }
            () = asked.stopped() => break,
        }
    }
    say(&format!("most-under-way {}", partner.most_under_way.load(Ordering::SeqCst)));
    Ok(ExitCode::SUCCESS)
}

/// Listens at an address that the test holds for us, so that nobody else gets it while we are dead.
fn listen(address: &str) -> std::io::Result<TcpListener> {
    let address: SocketAddr = address.parse().map_err(std::io::Error::other)?;
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(1_024)
}

impl Partner {
    async fn converse(self: Arc<Partner>, stream: TcpStream) {
        let service = service_fn(move |request| Arc::clone(&self).answer(request));
        // A client that goes away, or that we hang up on, is no failure of ours.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(
        self: Arc<Partner>,
        request: Request<Incoming>,
    ) -> Result<Response<Empty<Bytes>>, Fault> {
        let under_way = 1 + self.under_way.fetch_add(1, Ordering::SeqCst);
        self.most_under_way.fetch_max(under_way, Ordering::SeqCst);
        let status = self.take(request).await;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        let mut response = Response::new(Empty::new());
        *response.status_mut() = status?;
        Ok(response)
    }

    /// Takes a request.
    ///
    /// # Errors
    /// Without an answer: the connection is closed.
    async fn take(&self, request: Request<Incoming>) -> Result<StatusCode, Fault> {
        let endpoint = request.uri().path().trim_start_matches('/').to_owned();
        let (head, body) = request.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await?.to_bytes();
        let received = match Received::verify(&head.headers, body, &self.keys, TOLERANCE) {
            Ok(received) => received,
            Err(error) => {
                say(&format!("unverified {error}"));
                return Ok(StatusCode::UNAUTHORIZED);
            }
        };
        let line = line(&endpoint, &received)?;
        if self.careless > 0 {
            self.promise(line).await;
            return Ok(StatusCode::NO_CONTENT);
        }
        self.halt.at("before_record").await;
        self.record.keep(line).await;
        self.halt.at("after_record").await;
        if self.slow_endpoint.as_ref().is_none_or(|slow| *slow == endpoint) {
            tokio::time::sleep(self.slow).await; // waits: this is what a slow partner does
        }
        let take_one = |left: u64| left.checked_sub(1);
        let muted = self.mute.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one);
        match muted {
            Ok(_) => Err("the answer is lost".into()),
            Err(_) => Ok(StatusCode::NO_CONTENT),
        }
    }

    /// Breaks the rule: what is acknowledged stands in memory alone until there is enough of it.
    async fn promise(&self, line: String) {
        let full = {
            let mut lines = self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(line);
            if lines.len() < self.careless { Vec::new() } else { std::mem::take(&mut *lines) }
        };
        if !full.is_empty() {
            self.record.keep(full.concat()).await;
        }
    }
}

fn line(endpoint: &str, received: &Received) -> Result<String, Fault> {
    let (event, marks) = received.event()?;
    let line = serde_json::json!({
        "endpoint": endpoint,
        "id": event.id.to_string(),
        "key": event.key(),
        "attempt": received.attempt(),
        "late": marks.late,
    });
    Ok(format!("{line}\n"))
}
