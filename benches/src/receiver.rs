//! The receiver of webhooks: an HTTP server in a process of its own, the same for all contenders.
//!
//! It reads each body whole, answers 204, and does nothing else, so that what is measured is whoever
//! calls it. It serves for as long as its standard input is open.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;

use crate::measure::cpu_seconds;
use crate::{Result, child, relay};

/// What a receiver counted.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Received {
    pub(crate) requests: u64,
    /// Those with a signature of Standard Webhooks. It is not verified here.
    pub(crate) signed: u64,
    pub(crate) body_bytes: u64,
    pub(crate) connections: u64,
    pub(crate) cpu_seconds: f64,
}

/// A running receiver, as its parent holds it. It ends with its parent at the latest.
pub(crate) struct Receiver {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// The addresses that it listens on.
    pub(crate) addresses: Vec<String>,
}

impl Receiver {
    /// Starts one that listens on so many ports.
    pub(crate) fn start(ports: usize) -> Result<Receiver> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([child::FLAG, "receive", &ports.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take().ok_or("the receiver has no standard output")?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let addresses = serde_json::from_str(&line)?;
        Ok(Receiver { process, stdin, stdout, addresses })
    }

    /// Stops it, and returns what it counted.
    pub(crate) fn finish(mut self) -> Result<Received> {
        drop(self.stdin.take());
        let mut text = String::new();
        self.stdout.read_to_string(&mut text)?;
        self.process.wait()?;
        Ok(serde_json::from_str(&text)?)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Only where a round failed before it was finished; an error means that it has ended.
        drop(self.stdin.take());
        let _ = self.process.wait();
    }
}

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    signed: AtomicU64,
    body_bytes: AtomicU64,
    connections: AtomicU64,
}

/// The child's side: says where it listens, serves until its standard input ends, says what came.
pub(crate) fn serve(ports: usize) -> Result<()> {
    let runtime = relay::runtime()?;
    let counters = Arc::new(Counters::default());
    let addresses = runtime.block_on(async {
        let mut addresses = Vec::new();
        for _ in 0..ports {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            addresses.push(listener.local_addr()?.to_string());
            tokio::spawn(accept(listener, Arc::clone(&counters)));
        }
        Ok::<_, std::io::Error>(addresses)
    })?;
    println!("{}", json!(addresses));
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let received = Received {
        requests: of(&counters.requests),
        signed: of(&counters.signed),
        body_bytes: of(&counters.body_bytes),
        connections: of(&counters.connections),
        cpu_seconds: cpu_seconds(),
    };
    println!("{}", json!(received));
    Ok(())
}

async fn accept(listener: TcpListener, counters: Arc<Counters>) {
    while let Ok((stream, _)) = listener.accept().await {
        counters.connections.fetch_add(1, Ordering::Relaxed);
        // Without it, answers wait for acknowledgements of the network.
        let _ = stream.set_nodelay(true);
        let counters = Arc::clone(&counters);
        let service = service_fn(move |request| answer(request, Arc::clone(&counters)));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

async fn answer(
    request: Request<Incoming>,
    counters: Arc<Counters>,
) -> std::result::Result<Response<Empty<Bytes>>, Infallible> {
    let signed = request.headers().contains_key("webhook-signature");
    let mut response = Response::new(Empty::new());
    match request.into_body().collect().await {
        Ok(body) => {
            let length = body.to_bytes().len() as u64;
            counters.requests.fetch_add(1, Ordering::Relaxed);
            counters.signed.fetch_add(u64::from(signed), Ordering::Relaxed);
            counters.body_bytes.fetch_add(length, Ordering::Relaxed);
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        Err(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
    }
    Ok(response)
}
