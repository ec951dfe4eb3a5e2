//! Postrider's webhook destination: every event is a signed `POST` of its own.
//!
//! A topic names an endpoint of the settings' table, or, where that is allowed, is a URL. Requests
//! are signed as Standard Webhooks 1.0.0 says, and carry CloudEvents 1.0 in structured or binary mode.
//!
//! # What an answer means
//!
//! | Answer | Outcome | Kind |
//! |---|---|---|
//! | 2xx | `Acked`, whatever becomes of the body | |
//! | 3xx, never followed | `Unroutable` | `Unroutable` |
//! | 401, 403, 407 | `Unroutable` | `Unauthorized` |
//! | 404, 405 | `Unroutable` | `Unroutable` |
//! | 410 | `Gone` | `Unroutable` |
//! | 408 | `Retry`, after `Retry-After` | `Timeout` |
//! | 409, 425, 429, every 5xx | `Retry`, after `Retry-After` | `Unavailable` |
//! | 413 | `Rejected` | `TooLarge` |
//! | 400, 415, 422, every other 4xx | `Rejected` | `Rejected` |
//! | none within the deadline | `Retry` | `Timeout` |
//! | connection refused, reset, or closed; DNS or TLS failure; no HTTP; a head over 64 KiB or 100 headers; any other status | `Retry` | `Unavailable` |
//! | an address that may not be called, a URL that breaks a rule | `Unroutable`, names the setting | `Config` |
//! | a name that is not in the table | `Unroutable` | `Unroutable` |
//! | an event that cannot be written | `Rejected` | `Invalid` |
//! | an event over `request_bytes_max`, not sent | `Rejected` | `TooLarge` |
//!
//! One event per request, so every failure names its event.
//!
//! # Questions
//!
//! | Question | Answer |
//! |---|---|
//! | When is an event acknowledged? | When the status line and the headers of a 2xx answer are there. |
//! | Are duplicates absorbed? | By the receiver: `webhook-id` is the event's id, the same in every attempt. |
//! | Is a key's order kept? | Yes: one request at a time, the next after the answer. A request that timed out may still be worked on when it is sent again. |
//! | How long may a request take? | [`WebhookSettings::deadline`], connecting and answer included. It must be at most the relay's publish deadline (5 s unless changed). |
//! | What does a dropped call leave behind? | At most its own request. Its connection is closed. |
//! | What is read of an answer? | Its head, up to 64 KiB, and 16 KiB of body (or [`WebhookSettings::answer_bytes_max`], if that is more) for a quarter of a second. |
//! | Where are requests never sent? | To private and other special addresses, checked after every resolution: see [`WebhookSettings::allow_private`]. |
//! | Which roots are trusted? | Mozilla's, compiled in, so that a static binary in an empty image can check a certificate, and those of [`WebhookSettings::extra_roots`]. The system's own are not read. |
//! | What does it run on? | Tokio. HTTP/1.1, and HTTP/2 where the server offers it. No proxy, no cookies, no decompression. |
//!
//! The client is hyper-util's pooled one: the connector is ours, which the check of addresses needs,
//! and redirects, proxies, and cookies are not there to be switched off.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use postrider_core::{Broker, Event, EventId, Format, Marks, Outcome, Outgoing};
//! use postrider_webhook::{Endpoint, WebhookBroker, WebhookSettings};
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}/hook", listener.local_addr()?);
//! # tokio::spawn(async move {
//! #     let (mut stream, _) = listener.accept().await.expect("a connection");
//! #     stream.read(&mut [0; 4096]).await.expect("a request");
//! #     stream.write_all(b"HTTP/1.1 204 Done\r\n\r\n").await.expect("an answer");
//! # });
//! // `url` is a server of this machine, so private addresses are allowed here.
//! let partner = Endpoint::new(url).key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?);
//! let settings = WebhookSettings { allow_private: true, ..WebhookSettings::default() };
//! let broker = WebhookBroker::new(&settings.endpoint("partner", partner))?;
//! let outgoing = Outgoing {
//!     event: Arc::new(Event::new(EventId::mint(), "order", "42", "order.placed")),
//!     topic: Arc::from("partner"),
//!     format: Format::Structured,
//!     layout: None,
//!     marks: Marks::default(),
//!     attempt: 1,
//! };
//! assert_eq!(broker.publish(&[outgoing]).await?, [Outcome::Acked]);
//! # Ok(()) }
//! ```
//!
//! Receivers verify with [`receive::Received`].

mod address;
mod answer;
mod broker;
mod connect;
mod key;
pub mod receive;
mod request;
mod settings;
pub mod signature;
mod target;

pub use broker::WebhookBroker;
pub use connect::Resolve;
pub use key::{SigningKey, VerifyingKey};
pub use request::{ATTEMPT, LATE, REPLAY};
pub use settings::{Endpoint, UrlTopics, WebhookSettings};
pub use signature::{Signed, Unverified, sign, verify};

/// The examples of the guide, compiled and run as they stand there.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/webhooks.md")]
struct Guide;
