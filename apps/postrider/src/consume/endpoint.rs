//! The operator's own endpoint: one POST, and what came back.
//!
//! Invariant: a redirect is an answer, never an address; nothing longer than its limit is read or
//! waited for; no proxy stands between, whatever the environment says.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::header::{HeaderValue, RETRY_AFTER, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::gate::AFTER_MAX;
use super::judge::Reply;
use crate::failure::Failure;

/// How much of an answer is kept as the result: a receipt, not a document. It becomes a row in the
/// inbox, for whoever asks again.
const RESULT_BYTES_MAX: usize = 64 * 1024;

/// How much of a refusal is kept as its reason: a message for people.
const REASON_CHARS_MAX: usize = 1_000;

/// How long a connection may take. The endpoint is beside us, or at least in the same network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection is kept without a call. Below the 5 s after which Node.js closes it, so
/// that a call seldom meets a connection that is being closed.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// Who calls.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("postrider/", env!("CARGO_PKG_VERSION")));

/// Where events are handed to.
#[derive(Debug)]
pub(crate) struct Endpoint {
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    timeout: Duration,
}

/// What one call came to.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// What is judged.
    pub(crate) reply: Reply,
    /// The body, cut at its limit.
    pub(crate) body: Bytes,
    /// The same in words, for people.
    pub(crate) said: String,
}

impl Endpoint {
    /// The endpoint of an address.
    ///
    /// # Errors
    /// A configuration failure if it is no address of an HTTP endpoint, or holds a password.
    pub(crate) fn new(
        address: &str,
        timeout: Duration,
        concurrency: usize,
    ) -> Result<Endpoint, Failure> {
        let uri = parse(address)?;
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT.min(timeout)));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(concurrency)
            .build(connector);
        Ok(Endpoint { client, uri, timeout })
    }

    /// The address without its query, which may hold a secret.
    pub(crate) fn shown(&self) -> String {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        format!("http://{authority}{}", self.uri.path())
    }

    /// Makes one call. Dropping it closes the connection, so that the handler can know.
    pub(crate) async fn call(&self, headers: &HeaderMap, body: Bytes) -> Answer {
        let mut request = Request::post(&self.uri).body(Full::new(body));
        if let Ok(request) = &mut request {
            request.headers_mut().clone_from(headers);
            request.headers_mut().entry(USER_AGENT).or_insert(AGENT);
        }
        let Ok(request) = request else {
            return Answer::none(Reply::NotConnected, "the address cannot be called".to_owned());
        };
        match tokio::time::timeout(self.timeout, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                let said = format!("no answer within {:?}", self.timeout);
                Answer::none(Reply::TimedOut, said)
            }
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Answer {
        let response = match self.client.request(request).await {
            Ok(response) => response,
            Err(error) => {
                let reply = match error.is_connect() {
                    true => Reply::NotConnected,
                    false => Reply::BrokenOff,
                };
                return Answer::none(reply, root(&error));
            }
        };
        let status = response.status();
        let after = retry_after(response.headers(), SystemTime::now());
        let body = match read(response).await {
            Ok(body) => body,
            // Who closes before the end may have died before the end of the work.
            Err(error) => {
                let said = format!("{status}, but the answer broke off: {}", root(&error));
                return Answer::none(Reply::BrokenOff, said);
            }
        };
        let mut said = status.to_string();
        if !status.is_success() {
            quote(&mut said, &body);
        }
        Answer { reply: Reply::Status { status: status.as_u16(), after }, body, said }
    }
}

impl Answer {
    fn none(reply: Reply, said: String) -> Answer {
        Answer { reply, body: Bytes::new(), said }
    }
}

/// Reads an address.
fn parse(address: &str) -> Result<Uri, Failure> {
    let advice = "Write --to http://127.0.0.1:8000/events.";
    // The address is not repeated: what cannot be read may hold a secret.
    let wrong = |message: &str| Failure::config(message.to_owned()).advice(advice);
    let uri: Uri = address
        .parse()
        .map_err(|error| wrong(&format!("the address of --to cannot be read: {error}")))?;
    if uri.scheme() == Some(&Scheme::HTTPS) {
        return Err(Failure::config("--to cannot be https:// yet").advice(
            "The endpoint stands beside the sidecar: call it by http:// on a loopback address.",
        ));
    }
    match uri.authority() {
        Some(authority) if uri.scheme() == Some(&Scheme::HTTP) => {
            if authority.as_str().contains('@') {
                return Err(Failure::config("the address of --to holds a password")
                    .advice("Give it as --header authorization=env:NAME."));
            }
            Ok(uri)
        }
        _ => Err(wrong("--to is no address of an HTTP endpoint")),
    }
}

/// Reads the body up to its limit; what comes after that is not waited for.
async fn read(response: Response<Incoming>) -> Result<Bytes, hyper::Error> {
    let mut incoming = response.into_body();
    let mut body = BytesMut::new();
    while body.len() < RESULT_BYTES_MAX
        && let Some(frame) = incoming.frame().await
    {
        if let Ok(data) = frame?.into_data() {
            let room = RESULT_BYTES_MAX - body.len();
            body.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(body.freeze())
}

/// The server's wish, as seconds or as a date, bounded.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wish = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wish.min(AFTER_MAX))
}

/// Adds the beginning of a body, in one line.
fn quote(said: &mut String, body: &[u8]) {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * REASON_CHARS_MAX)]);
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    said.push_str(": ");
    let mut chars = text.chars();
    said.extend(
        chars.by_ref().take(REASON_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }),
    );
    if chars.next().is_some() {
        let _ = write!(said, " … ({} bytes)", body.len());
    }
}

/// What is at the bottom of an error.
fn root(error: &(dyn StdError + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    match deepest.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        Some(io::ErrorKind::ConnectionReset) => "the connection was reset".to_owned(),
        _ => deepest.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str) -> String {
        Endpoint::new(address, Duration::from_secs(1), 1).unwrap_err().plain_text()
    }

    #[tokio::test]
    async fn addresses_are_read_and_shown_without_their_query() {
        let address = "http://127.0.0.1:8000/events?token=hunter2";
        let endpoint = Endpoint::new(address, Duration::from_secs(1), 1).unwrap();
        assert_eq!(endpoint.shown(), "http://127.0.0.1:8000/events");
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_what_is() {
        for (address, expected) in [
            ("https://shop/events", "cannot be https:// yet"),
            ("http://me:hunter2@shop/events", "--header authorization=env:NAME"),
            ("127.0.0.1:8000", "--to http://127.0.0.1:8000/events"),
            ("/events", "no address of an HTTP endpoint"),
            ("ftp://shop/", "no address of an HTTP endpoint"),
            ("http://sh op", "cannot be read"),
        ] {
            let shown = refused(address);
            assert!(shown.contains(expected) && !shown.contains("hunter2"), "{address}: {shown}");
        }
    }

    #[test]
    fn the_wish_is_read_in_both_forms_and_bounded() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (text, secs) in [
            ("7", Some(7)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("99999999", Some(600)),
            ("soon", None),
            ("-1", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(retry_after(&headers, now), secs.map(Duration::from_secs), "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn a_reason_is_one_bounded_line() {
        let mut said = "422 Unprocessable Entity".to_owned();
        quote(&mut said, "no such\norder".as_bytes());
        assert_eq!(said, "422 Unprocessable Entity: no such order");
        let mut long = String::new();
        quote(&mut long, "é".repeat(9_000).as_bytes());
        assert!(long.chars().count() < REASON_CHARS_MAX + 40 && long.ends_with("(18000 bytes)"));
    }
}
