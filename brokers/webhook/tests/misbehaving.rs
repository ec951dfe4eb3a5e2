//! Servers that misbehave: each is named as the documentation says, ends within the deadline, and
//! costs a bounded amount of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::{ErrorKind, Fault, Outcome};
use postrider_testkit::fault::TestSignal;
use postrider_webhook::{Endpoint, WebhookBroker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::support::*;

/// Reads the request, so that closing the connection afterwards resets nothing.
async fn take_request(stream: &mut TcpStream) {
    let mut text = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        let length = stream.read(&mut buffer).await.unwrap();
        assert_ne!(length, 0, "the request is whole");
        text.extend_from_slice(&buffer[..length]);
        let Some(head) = text.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let header = String::from_utf8_lossy(&text[..head]).to_lowercase();
        let length = header.lines().find_map(|line| line.strip_prefix("content-length: "));
        if text.len() == head + 4 + length.unwrap().parse::<usize>().unwrap() {
            return;
        }
    }
}

/// A server that answers with bytes, and closes.
async fn saying(answer: impl Into<Vec<u8>>) -> String {
    let answer = Arc::new(answer.into());
    let address = raw(move |mut stream| {
        let answer = Arc::clone(&answer);
        async move {
            take_request(&mut stream).await;
            // The client may have had enough before the end.
            let _ = stream.write_all(&answer).await;
        }
    })
    .await;
    format!("http://{address}/")
}

/// What a server says again and again, and its pause; `None` if it says nothing more.
type Again = Option<(&'static [u8], Duration)>;

/// A server that takes the request, says something, and then never stops or never goes on.
async fn going_on(begin: &'static str, again: Again) -> (String, Arc<AtomicUsize>, TestSignal) {
    let (written, ended) = (Arc::new(AtomicUsize::new(0)), TestSignal::default());
    let (count, end) = (Arc::clone(&written), ended.clone());
    let address = raw(move |mut stream| {
        let (count, end) = (Arc::clone(&count), end.clone());
        async move {
            take_request(&mut stream).await;
            stream.write_all(begin.as_bytes()).await.unwrap();
            match again {
                Some((again, pause)) => {
                    while stream.write_all(again).await.is_ok() {
                        count.fetch_add(again.len(), Ordering::SeqCst);
                        if !pause.is_zero() {
                            // waits: a server that drips, in real time
                            tokio::time::sleep(pause).await;
                        }
                    }
                }
                None => {
                    let _ = stream.read(&mut [0]).await;
                }
            }
            end.happened();
        }
    })
    .await;
    (format!("http://{address}/"), written, ended)
}

/// A broker whose deadline a test can wait for.
fn hurried(url: &str) -> WebhookBroker {
    let settings =
        postrider_webhook::WebhookSettings { deadline: Duration::from_millis(600), ..settings() };
    WebhookBroker::new(&settings.endpoint("partner", Endpoint::new(url).key(key()))).unwrap()
}

const OK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const FAILED: &str = "HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n";
/// A chunk of a chunked body.
const CHUNK: &[u8] = b"10\r\nxxxxxxxxxxxxxxxx\r\n";
/// What the operating system may buffer on the way, generously.
const ON_THE_WAY: usize = 64 * 1024 * 1024;

/// F8: the status has decided; a body without end holds nobody and fills nothing.
#[tokio::test]
async fn an_endless_body_is_left() {
    for (begin, pause) in
        [(OK, Duration::ZERO), (FAILED, Duration::ZERO), (OK, DRIP), (FAILED, DRIP)]
    {
        let (url, written, ended) = going_on(begin, Some((CHUNK, pause))).await;
        let closed = ended.wait();
        let outcome = publish(&broker(&url), outgoing(1)).await;
        if begin == OK {
            assert_eq!(outcome, Outcome::Acked);
        } else {
            let fault = retried(outcome);
            assert_eq!(fault.kind, ErrorKind::Unavailable);
            assert!(fault.detail.starts_with("HTTP 500"), "{fault}");
            assert!(fault.detail.len() <= 1_024 + 16);
        }
        tokio::time::timeout(PATIENCE, closed.once()).await.expect("the connection is closed");
        assert!(written.load(Ordering::SeqCst) < ON_THE_WAY);
    }
}

const DRIP: Duration = Duration::from_millis(20);

/// F8, F9: a head that drips, or never comes, ends with the deadline; the event may have arrived, so
/// it counts as not delivered.
#[tokio::test]
async fn an_answer_that_does_not_come_is_a_timeout() {
    let dripping: [(&'static str, Again); 4] = [
        ("", None),
        ("HTTP/1.1 200 OK\r\n", None),
        ("HTTP/1.1 200 OK\r\nx: ", Some((b"y", DRIP))),
        ("", Some((b"HTTP/1.1 103 Early Hints\r\n\r\n", DRIP))),
    ];
    for (begin, again) in dripping {
        let (url, _, ended) = going_on(begin, again).await;
        let closed = ended.wait();
        let fault = retried(publish(&hurried(&url), outgoing(1)).await);
        assert_eq!(fault.kind, ErrorKind::Timeout, "{begin:?}: {fault}");
        assert!(fault.detail.contains("600ms") && fault.detail.contains("may have arrived"));
        tokio::time::timeout(PATIENCE, closed.once()).await.expect("the connection is closed");
    }
}

/// F22: a flood of headers or of provisional answers is bounded by the size of a head, and by time.
#[tokio::test]
async fn a_flood_before_the_status_is_left() {
    let line: &'static [u8] = format!("x: {}\r\n", "y".repeat(100)).leak().as_bytes();
    let (url, written, ended) = going_on("HTTP/1.1 200 OK\r\n", Some((line, Duration::ZERO))).await;
    let closed = ended.wait();
    let fault = retried(publish(&broker(&url), outgoing(1)).await);
    assert_eq!(fault.kind, ErrorKind::Unavailable, "{fault}");
    tokio::time::timeout(PATIENCE, closed.once()).await.expect("the connection is closed");
    assert!(written.load(Ordering::SeqCst) < ON_THE_WAY);

    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(101));
    let fault = retried(publish(&broker(&saying(many).await), outgoing(1)).await);
    assert_eq!(fault.kind, ErrorKind::Unavailable, "{fault}");

    let megabyte = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1_000_000));
    let fault = retried(publish(&broker(&saying(megabyte).await), outgoing(1)).await);
    assert_eq!(fault.kind, ErrorKind::Unavailable, "{fault}");
}

/// R005, F9: what is no answer, or half of one, acknowledges nothing.
#[tokio::test]
async fn garbage_and_halves_are_no_answer() {
    for answer in [
        "SSH-2.0-OpenSSH_9.9\r\n",
        "\u{0}\u{1}\u{2}\u{3}",
        "",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbroken header\r\n\r\n",
        "HTTP/9.9 200 OK\r\n\r\n",
    ] {
        let fault = retried(publish(&broker(&saying(answer).await), outgoing(1)).await);
        assert_eq!(fault.kind, ErrorKind::Unavailable, "{answer:?}: {fault}");
        assert!(!fault.detail.chars().any(char::is_control), "{fault}");
    }
}

/// A body that breaks off, or is longer than it says, does not undo the status.
#[tokio::test]
async fn a_wrong_length_does_not_change_the_status() {
    for body in ["content-length: 100\r\n\r\nhalf", "content-length: 2\r\n\r\nmore than two"] {
        let answer = |code: u16| format!("HTTP/1.1 {code} X\r\n{body}");
        assert_eq!(publish(&broker(&saying(answer(200)).await), outgoing(1)).await, Outcome::Acked);
        let fault = rejected(publish(&broker(&saying(answer(422)).await), outgoing(1)).await);
        assert!(["HTTP 422: half", "HTTP 422: mo"].contains(&&*fault.detail), "{fault}");
    }
    let torn = "HTTP/1.1 503 X\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    let outcome = publish(&broker(&saying(torn).await), outgoing(1)).await;
    let fault = Fault::new(ErrorKind::Unavailable, "HTTP 503");
    assert_eq!(outcome, Outcome::Retry { fault, after: None });
}

#[tokio::test]
async fn provisional_answers_are_passed_over() {
    let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n\
                  HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(publish(&broker(&saying(answer).await), outgoing(1)).await, Outcome::Acked);
}

/// R005: a reset, before or within the answer, is an unknown outcome: not delivered.
#[tokio::test]
async fn a_reset_is_no_acknowledgement() {
    // A connection that is closed with unread bytes is reset by the system.
    for begin in ["", "HTTP/1.1 200 OK\r\n"] {
        let address = raw(move |mut stream| async move {
            stream.read_exact(&mut [0; 10]).await.unwrap();
            stream.write_all(begin.as_bytes()).await.unwrap();
        })
        .await;
        let fault = retried(publish(&broker(&format!("http://{address}/")), outgoing(1)).await);
        assert_eq!(fault.kind, ErrorKind::Unavailable, "{fault}");
    }
}

/// F6: nobody there, nobody who accepts, and nobody who lets in.
#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let fault = retried(publish(&hurried(&url), outgoing(1)).await);
    assert_eq!(fault.kind, ErrorKind::Timeout, "never accepted: {fault}");
    drop(listener);
    let fault = retried(publish(&broker(&url), outgoing(1)).await);
    assert_eq!(fault.kind, ErrorKind::Unavailable, "refused: {fault}");
    // Reset, where the system gives the port to somebody else at once.
    assert!(["refused", "reset"].iter().any(|word| fault.detail.contains(word)), "{fault}");

    // A backlog of one that is full: connecting itself hangs.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let connecting = TcpStream::connect(address);
        match tokio::time::timeout(Duration::from_millis(200), connecting).await {
            Ok(stream) => waiting.push(stream.unwrap()),
            Err(_) => break,
        }
    }
    let fault = retried(publish(&hurried(&format!("http://{address}/")), outgoing(1)).await);
    assert_eq!(fault.kind, ErrorKind::Timeout, "not let in: {fault}");
}

/// INV-5: while a dead endpoint is waited for, another is served.
#[tokio::test]
async fn a_dead_endpoint_does_not_hold_another() {
    let (dead, _, _) = going_on("", None).await;
    let alive = answering(|| status(200)).await;
    let settings = settings()
        .endpoint("partner", Endpoint::new(dead))
        .endpoint("alive", Endpoint::new(alive.url("/")));
    let broker = WebhookBroker::new(&settings).unwrap();
    let mut stuck = Vec::new();
    for number in 0..8 {
        let broker = broker.clone();
        stuck.push(tokio::spawn(async move { publish(&broker, outgoing(number)).await }));
    }
    let mut healthy = outgoing(100);
    healthy.topic = Arc::from("alive");
    assert_eq!(publish(&broker, healthy).await, Outcome::Acked);
    for stuck in stuck {
        assert!(!stuck.is_finished());
        stuck.abort();
    }
}
