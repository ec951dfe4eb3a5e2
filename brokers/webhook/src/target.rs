//! Endpoints, checked and made ready: what can be decided once is not decided for every request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use postrider_core::{Code, Error, ErrorKind, Fault, Result};

use crate::address::refusal;
use crate::{SigningKey, WebhookSettings};

const ENDPOINTS_MAX: usize = 100_000;
const KEYS_MAX: usize = 8;
const HEADERS_MAX: usize = 32;
/// Longer URLs are not taken by common servers.
const URL_BYTES_MAX: usize = 2_048;
const NAME_BYTES_MAX: usize = 255;
const AGENT: &str = concat!("Postrider/", env!("CARGO_PKG_VERSION"));

/// Where a request goes, and what is the same in all requests that go there.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) uri: Uri,
    pub(crate) signer: Arc<Signer>,
}

/// Keys and ready headers.
pub(crate) struct Signer {
    pub(crate) keys: Vec<SigningKey>,
    pub(crate) headers: HeaderMap,
}

/// What may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) allow_private: bool,
    pub(crate) allow_http: bool,
}

impl Rules {
    pub(crate) fn of(settings: &WebhookSettings) -> Rules {
        Rules {
            allow_private: settings.allow_private,
            allow_http: settings.allow_http.unwrap_or(settings.allow_private),
        }
    }
}

/// The endpoints of some settings.
pub(crate) struct Table {
    named: HashMap<String, Target>,
    urls: Option<Arc<Signer>>,
    rules: Rules,
}

impl Table {
    /// Checks all endpoints.
    ///
    /// # Errors
    /// `Config`, naming the endpoint and the rule it breaks.
    pub(crate) fn new(settings: &WebhookSettings) -> Result<Table> {
        if settings.endpoints.len() > ENDPOINTS_MAX {
            let message = format!("more than {ENDPOINTS_MAX} endpoints; use several destinations");
            return Err(wrong(message));
        }
        let rules = Rules::of(settings);
        let ready = |(name, endpoint): (&String, &crate::Endpoint)| {
            check_name(name)?;
            let uri = read_url(&endpoint.url, rules).map_err(wrong)?;
            let signer = Arc::new(Signer::new(&endpoint.keys, &endpoint.headers)?);
            Ok((name.clone(), Target { uri, signer }))
        };
        let named = settings
            .endpoints
            .iter()
            .map(|entry| ready(entry).map_err(|e: Error| e.context("endpoint", entry.0)))
            .collect::<Result<_>>()?;
        let urls = match &settings.urls {
            None => None,
            Some(urls) => Some(Arc::new(Signer::new(&urls.keys, &urls.headers)?)),
        };
        Ok(Table { named, urls, rules })
    }

    /// The target of a topic.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub(crate) fn find(&self, topic: &str) -> Result<Target, Fault> {
        if let Some(target) = self.named.get(topic) {
            return Ok(target.clone());
        }
        if !topic.contains("://") {
            let name: String = topic.chars().take(NAME_BYTES_MAX).collect();
            return Err(Fault::new(
                ErrorKind::Unroutable,
                format!(
                    "no endpoint is named `{}`: add it to the destination's `endpoints`, or correct \
                     the topic of the route",
                    name.escape_debug()
                ),
            ));
        }
        let Some(signer) = &self.urls else {
            return Err(Fault::new(
                ErrorKind::Config,
                "the topic is a URL, which is not allowed: set `urls`, or name an endpoint",
            ));
        };
        let uri = read_url(topic, self.rules).map_err(|m| Fault::new(ErrorKind::Config, m))?;
        Ok(Target { uri, signer: Arc::clone(signer) })
    }
}

impl Signer {
    fn new(keys: &[SigningKey], headers: &[(String, String)]) -> Result<Signer> {
        if keys.len() > KEYS_MAX || headers.len() > HEADERS_MAX {
            return Err(wrong(format!("at most {KEYS_MAX} keys and {HEADERS_MAX} headers")));
        }
        let mut ready = HeaderMap::with_capacity(headers.len() + 1);
        ready.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
        for (name, value) in headers {
            let shown = name.escape_debug();
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong(format!("`{shown}` is no name of a header")))?;
            if is_reserved(name.as_str()) {
                return Err(wrong(format!("the header `{shown}` is set by Postrider itself")));
            }
            // The value may be a credential: it is not repeated.
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| wrong(format!("the value of `{shown}` has forbidden characters")))?;
            value.set_sensitive(true);
            ready.insert(name, value);
        }
        Ok(Signer { keys: keys.to_vec(), headers: ready })
    }
}

/// Headers that say what the request is, or how it is framed.
fn is_reserved(name: &str) -> bool {
    const NAMES: [&str; 12] = [
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
    ];
    let prefixes = ["ce-", "postrider-", "proxy-", "webhook-"];
    NAMES.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn check_name(name: &str) -> Result<()> {
    let broken = name.is_empty()
        || name.len() > NAME_BYTES_MAX
        || name.contains("://")
        || name.chars().any(char::is_control);
    if broken {
        return Err(wrong("the name of an endpoint has 1 to 255 bytes, and is no URL"));
    }
    Ok(())
}

/// Reads a URL. What is wrong is said without repeating it: it may hold a secret.
fn read_url(text: &str, rules: Rules) -> Result<Uri, String> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("the URL has {} bytes, at most {URL_BYTES_MAX}", text.len()));
    }
    if text.contains('#') {
        return Err("the URL has a fragment (`#`), which would not be sent".to_owned());
    }
    let unreadable = || "the URL cannot be read; write https://HOST/PATH in ASCII".to_owned();
    let uri: Uri = text.parse().map_err(|_| unreadable())?;
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
        return Err(unreadable());
    };
    if authority.as_str().contains('@') {
        return Err("the URL holds credentials, which is refused: send them in a header".to_owned());
    }
    if *scheme == Scheme::HTTP && !rules.allow_http {
        return Err("the URL begins with http://, which is refused: set `allow_http`".to_owned());
    }
    if *scheme != Scheme::HTTPS && *scheme != Scheme::HTTP {
        return Err("the URL does not begin with https://".to_owned());
    }
    let host = authority.host();
    let port = authority.port();
    let length = host.len() + port.as_ref().map_or(0, |port| 1 + port.as_str().len());
    if host.is_empty() || length != authority.as_str().len() || uri.port_u16() == Some(0) {
        return Err(unreadable());
    }
    match literal(host).and_then(refusal) {
        Some(kind) if !rules.allow_private => Err(refused(host, kind)),
        _ => Ok(uri),
    }
}

/// The address that a host is, if it is no name.
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

/// What is said of an address that may not be called.
pub(crate) fn refused(address: impl std::fmt::Display, kind: &str) -> String {
    let code = Code::AddressRefused;
    format!("the address {address} is refused ({kind}): set `allow_private` to call it [{code}]")
}

pub(crate) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, "read webhook settings").message(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, UrlTopics};
    use proptest::prelude::*;

    fn url(text: &str, allow_private: bool) -> Result<Uri, String> {
        read_url(text, Rules { allow_private, allow_http: allow_private })
    }

    #[test]
    fn a_url_is_https_without_credentials_and_tricks() {
        for good in
            ["https://a.example", "https://a.example:8443/x/y?z=1", "https://[2606:4700::1111]/"]
        {
            assert!(url(good, false).is_ok(), "{good}");
        }
        for (bad, expected) in [
            ("http://a.example/", "allow_http"),
            ("https://user:hush@a.example/", "credentials"),
            ("https://hush@127.0.0.1/", "credentials"),
            ("https://a.example/#.b.example", "fragment"),
            ("ftp://a.example/", "https://"),
            ("file:///hush", "cannot be read"),
            ("https://", "cannot be read"),
            ("https:///hush", "cannot be read"),
            ("https://a.example:0/", "cannot be read"),
            ("https://a.example:99999/", "cannot be read"),
            ("https://a.example:x/", "cannot be read"),
            ("https://a b.example/", "cannot be read"),
            ("https://ä.example/", "cannot be read"),
            ("/hush", "cannot be read"),
            ("https://127.0.0.1/", "allow_private"),
            ("https://[::1]:8443/", "allow_private"),
            ("https://[::ffff:10.0.0.1]/", "allow_private"),
            ("https://169.254.169.254/latest/hush", "allow_private"),
        ] {
            let error = url(bad, false).unwrap_err();
            assert!(error.contains(expected) && !error.contains("hush"), "{bad}: {error}");
        }
        assert!(url("http://127.0.0.1:80/", true).is_ok());
        assert!(url("http://user@127.0.0.1:80/", true).is_err());
        assert!(url(&format!("https://a.example/{}", "x".repeat(3_000)), false).is_err());
    }

    #[test]
    fn wrong_settings_name_the_endpoint_and_no_secret() {
        for endpoint in [
            Endpoint::new("http://a.example/hush"),
            Endpoint::new("https://a.example").header("webhook-id", "hush"),
            Endpoint::new("https://a.example").header("Content-Length", "1"),
            Endpoint::new("https://a.example").header("x y", "hush"),
            Endpoint::new("https://a.example").header("x", "hush\r\ny: 1"),
        ] {
            let settings = WebhookSettings::default().endpoint("partner", endpoint);
            let error = Table::new(&settings).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Config);
            let text = format!("{error:?}");
            assert!(text.contains("endpoint=partner") && !text.contains("hush"), "{text}");
        }
        for name in ["", "https://a.example", "a\nb"] {
            let settings =
                WebhookSettings::default().endpoint(name, Endpoint::new("https://a.example"));
            assert!(Table::new(&settings).is_err(), "{name}");
        }
    }

    #[test]
    fn topics_are_names_or_where_allowed_urls() {
        let settings =
            WebhookSettings::default().endpoint("partner", Endpoint::new("https://a.example/x"));
        let table = Table::new(&settings).unwrap();
        assert_eq!(table.find("partner").ok().unwrap().uri, "https://a.example/x");
        let unknown = table.find("partmer").err().unwrap();
        assert_eq!(unknown.kind, ErrorKind::Unroutable);
        assert!(unknown.detail.contains("`partmer`") && unknown.detail.contains("`endpoints`"));
        assert!(table.find("https://b.example/").err().unwrap().detail.contains("`urls`"));
        let urls = WebhookSettings { urls: Some(UrlTopics::default()), ..settings };
        let table = Table::new(&urls).unwrap();
        assert_eq!(table.find("https://b.example/").ok().unwrap().uri, "https://b.example/");
        let private = table.find("https://10.0.0.1/").err().unwrap();
        assert!(private.detail.contains("allow_private"), "{private}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// F22, F32: no topic brings the table down or leads where it may not.
        #[test]
        fn arbitrary_topics_are_answered(
            scheme in "(https?://)?",
            rest in prop_oneof![any::<String>(), "[0-9a-fx.:@/\\[\\]#?%]{0,40}"],
        ) {
            let urls = Some(UrlTopics::default());
            let settings = WebhookSettings { urls, ..WebhookSettings::default() };
            let table = Table::new(&settings).unwrap();
            if let Ok(target) = table.find(&format!("{scheme}{rest}")) {
                prop_assert_eq!(target.uri.scheme_str(), Some("https"));
                let host = target.uri.host().unwrap();
                prop_assert!(!target.uri.authority().unwrap().as_str().contains('@'));
                prop_assert!(literal(host).and_then(refusal).is_none(), "{}", host);
            }
        }
    }
}
