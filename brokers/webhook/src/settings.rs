//! What the operator says: endpoints, keys, times, limits, and which addresses may be called.
//!
//! Invariant: `Debug` shows neither keys, nor header values, nor more of a URL than its host, since
//! partners put secrets into paths.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::SigningKey;

/// The settings of a [`WebhookBroker`](crate::WebhookBroker).
///
/// All but `connections` and `connections_per_endpoint` can be replaced while it runs, with
/// [`reload`](crate::WebhookBroker::reload).
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// Endpoints by the name that a route's topic gives. At most 100,000.
    pub endpoints: BTreeMap<String, Endpoint>,
    /// If set, a topic may also be a whole `https://…` URL, signed with these keys. Default: no. A
    /// template that puts an event's fields into a URL gives whoever writes those fields a say in
    /// where requests go.
    pub urls: Option<UrlTopics>,
    /// Whether private, loopback, and other special addresses may be called. Default: no, since a
    /// partner who names his endpoint could otherwise make the relay call its own network.
    pub allow_private: bool,
    /// Whether `http://` may be called. Default: as `allow_private`.
    pub allow_http: Option<bool>,
    /// From the beginning of a request to the end of its answer, connecting included. Default 15 s,
    /// as Standard Webhooks advises. It must be at most the relay's publish deadline (5 s unless
    /// changed), or that one ends the request first, and names no event.
    pub deadline: Duration,
    /// Requests under way at once. Default 64: enough that one slow partner does not hold the others.
    pub connections: u32,
    /// Requests under way at once to one endpoint. Default 8: a partner is no target practice.
    pub connections_per_endpoint: u32,
    /// How long an unused connection is kept. Default 4 s: shorter than the 5 s after which common
    /// servers close theirs, so that no request meets a connection that is just being closed. A host
    /// has at most `connections` of them, since several endpoints may share it.
    pub idle: Duration,
    /// How much of a refusal's body is kept as the reason, in bytes. Default 1 KiB, at most 64 KiB.
    pub answer_bytes_max: usize,
    /// The largest request body, in bytes; a larger event is refused before it is sent. Default
    /// 2 MiB: a payload of 1 MiB in base64, and its envelope.
    pub request_bytes_max: usize,
    /// Root certificates in PEM that are trusted besides Mozilla's: a company's own, for example.
    pub extra_roots: Vec<String>,
}

impl Default for WebhookSettings {
    fn default() -> WebhookSettings {
        WebhookSettings {
            endpoints: BTreeMap::new(),
            urls: None,
            allow_private: false,
            allow_http: None,
            deadline: Duration::from_secs(15),
            connections: 64,
            connections_per_endpoint: 8,
            idle: Duration::from_secs(4),
            answer_bytes_max: 1024,
            request_bytes_max: postrider_core::cloudevents::DOCUMENT_BYTES_MAX,
            extra_roots: Vec::new(),
        }
    }
}

impl WebhookSettings {
    /// The same settings with one more endpoint.
    #[must_use]
    pub fn endpoint(mut self, name: &str, endpoint: Endpoint) -> WebhookSettings {
        self.endpoints.insert(name.to_owned(), endpoint);
        self
    }
}

/// Where events go, and how they are signed.
#[derive(Clone)]
pub struct Endpoint {
    /// `https://…`, without credentials and without a fragment.
    pub url: String,
    /// Every key signs, so that a receiver may know the old or the new one while keys are changed.
    /// Without keys requests are not signed. At most 8.
    pub keys: Vec<SigningKey>,
    /// Headers sent with every request, such as `authorization`. At most 32.
    pub headers: Vec<(String, String)>,
}

impl Endpoint {
    /// An endpoint without keys and headers.
    pub fn new(url: impl Into<String>) -> Endpoint {
        Endpoint { url: url.into(), keys: Vec::new(), headers: Vec::new() }
    }

    /// The same endpoint with one more key.
    #[must_use]
    pub fn key(mut self, key: SigningKey) -> Endpoint {
        self.keys.push(key);
        self
    }

    /// The same endpoint with one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Endpoint {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// How requests are signed whose topic is a URL.
#[derive(Clone, Default)]
pub struct UrlTopics {
    /// As an endpoint's.
    pub keys: Vec<SigningKey>,
    /// As an endpoint's. They are sent wherever the topic leads: no place for a credential.
    pub headers: Vec<(String, String)>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("url", &shown(&self.url))
            .field("keys", &self.keys)
            .field("headers", &Names(&self.headers))
            .finish()
    }
}

impl fmt::Debug for UrlTopics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlTopics")
            .field("keys", &self.keys)
            .field("headers", &Names(&self.headers))
            .finish()
    }
}

struct Names<'a>(&'a [(String, String)]);

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, _)| (name, "***"))).finish()
    }
}

/// A URL's scheme and host.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return "***".to_owned();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let more = if rest.len() == authority.len() { "" } else { "/***" };
    format!("{scheme}://{host}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F32: settings may be logged.
    #[test]
    fn debug_shows_no_secret() {
        let endpoint = Endpoint::new("https://user:pa55@hooks.example/T0/secret?token=hush")
            .key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap())
            .header("authorization", "Bearer hush");
        let urls = UrlTopics { keys: Vec::new(), headers: endpoint.headers.clone() };
        let mut settings = WebhookSettings::default().endpoint("a", endpoint);
        settings.urls = Some(urls);
        let text = format!("{settings:?}");
        for secret in ["pa55", "secret", "hush", "MfKQ"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(text.contains("https://hooks.example/***") && text.contains("authorization"));
    }
}
