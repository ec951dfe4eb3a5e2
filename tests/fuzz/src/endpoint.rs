//! Endpoints of webhooks: their names, their URLs, and the headers that go there.

use std::net::IpAddr;
use std::sync::OnceLock;

use postrider_webhook::{Endpoint, SigningKey, WebhookBroker, WebhookSettings};

use crate::message::Message;

/// A request's line with the URL behind `@url`, and headers: what is taken leads to nobody's private network.
pub fn endpoint(input: &[u8]) {
    static BROKER: OnceLock<WebhookBroker> = OnceLock::new();
    let mut message = Message::of(input);
    let url = message.take("@url").unwrap_or("https://shop.example/hook");
    let name = message.take("@name").unwrap_or("shop");
    let mut endpoint = Endpoint::new(url);
    if let Some(key) = message.take("@key").and_then(|key| key.parse::<SigningKey>().ok()) {
        endpoint = endpoint.key(key);
    }
    for (name, value) in &message.headers {
        endpoint = endpoint.header(name, &String::from_utf8_lossy(value));
    }
    let shown = format!("{endpoint:?}").replace("/***", "");
    let settings = WebhookSettings::default().endpoint(name, endpoint);
    let broker = BROKER.get_or_init(|| {
        WebhookBroker::new(&WebhookSettings::default()).expect("a broker without endpoints")
    });
    match broker.reload(&settings) {
        Err(refused) => assert!(!refused.to_string().is_empty()),
        Ok(()) => taken(url, name, &shown),
    }
}

fn taken(url: &str, name: &str, shown: &str) {
    assert!(!name.chars().any(char::is_control), "{name:?}");
    let (scheme, rest) = url.split_once("://").expect("an address with a scheme");
    assert!(scheme.eq_ignore_ascii_case("https"), "{url}");
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    assert!(!authority.contains('@') && !url.contains('#'), "{url}");
    let whole = format!("{authority}{path}");
    assert!(path.len() < 2 || !shown.contains(&whole), "a path is shown, which may be a secret");
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(host, _)| host),
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    };
    if let Ok(address) = host.parse::<IpAddr>() {
        assert!(!is_special(address), "{url}");
    }
}

/// As the standard library tells them, which is less than the broker refuses.
fn is_special(address: IpAddr) -> bool {
    let common = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    common
        || match address {
            IpAddr::V4(v4) => v4.is_private() || v4.is_link_local() || v4.is_broadcast(),
            IpAddr::V6(v6) => {
                v6.is_unique_local() || v6.is_unicast_link_local() || v6.to_ipv4().is_some()
            }
        }
}
