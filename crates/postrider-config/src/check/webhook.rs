//! Webhook destinations: endpoints that routes name, and addresses that will be refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use postrider_core::Template;

use crate::choice::Kind;
use crate::destination::DestinationConfig;
use crate::path::Path;
use crate::reading::{Complaint, Reading};
use crate::section::near;
use crate::webhook::Endpoint;

pub(super) fn examine(destination: &DestinationConfig, at: &Path, reading: &mut Reading) {
    if destination.kind != Kind::Webhook || !reading.is_sound(&[at.key("kind")]) {
        return;
    }
    let endpoints = at.key("endpoints");
    if destination.endpoints.is_empty()
        && !destination.webhook.allow_urls
        && reading.is_read(&endpoints)
    {
        let message = "a webhook destination needs an endpoint to send to";
        let advice = format!("write [{}.ENDPOINT] with a url below it", endpoints.heading());
        reading.contradict(&[at.key("kind"), endpoints.clone()], Complaint::new(message, advice));
    }
    if destination.routes.is_empty() {
        let name = destination.endpoints.keys().next();
        let name = name.map_or("ENDPOINT", |name| name.as_str());
        let message = "a webhook destination needs a route: its topic names the endpoint";
        let heading = at.key("routes").heading();
        let advice =
            format!("write [[{heading}]] with topic = {} below it", crate::key::quoted(name));
        reading.contradict(&[at.key("kind"), at.key("routes")], Complaint::new(message, advice));
    }
    for (index, route) in destination.routes.iter().enumerate() {
        if let Some(topic) = route.topic.as_ref().and_then(literal) {
            let at = at.key("routes").index(index).key("topic");
            if reading.is_read(&endpoints) {
                examine_topic(destination, &topic, at, reading);
            }
        }
    }
    for (name, endpoint) in &destination.endpoints {
        examine_endpoint(destination, endpoint, &endpoints.key(name.as_str()), at, reading);
    }
}

/// The topic of a template without fields.
fn literal(template: &Template) -> Option<String> {
    let text = template.to_string();
    let bare = text.replace("{{", "").replace("}}", "");
    (!bare.contains('{')).then(|| text.replace("{{", "{").replace("}}", "}"))
}

fn examine_topic(destination: &DestinationConfig, topic: &str, at: Path, reading: &mut Reading) {
    let is_url = topic.starts_with("https://") || topic.starts_with("http://");
    if destination.endpoints.contains_key(topic) || (is_url && destination.webhook.allow_urls) {
        return;
    }
    let shown: String = topic.chars().take(80).collect();
    let known: Vec<&str> = destination.endpoints.keys().map(|name| name.as_str()).collect();
    let (message, advice) = if is_url {
        (
            "a topic that is a URL is refused without allow_urls".to_owned(),
            "write the address as an endpoint and name it here, or set allow_urls = true"
                .to_owned(),
        )
    } else {
        let advice = match near(topic, &known) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None if known.is_empty() => "there is no endpoint at all".to_owned(),
            None => {
                let first: Vec<&str> = known.iter().copied().take(20).collect();
                format!("known are {}", first.join(", "))
            }
        };
        (format!("no endpoint has the name \"{}\"", shown.escape_debug()), advice)
    };
    reading.contradict(&[at], Complaint::new(message, advice));
}

fn examine_endpoint(
    destination: &DestinationConfig,
    endpoint: &Endpoint,
    at: &Path,
    parent: &Path,
    reading: &mut Reading,
) {
    let url = at.key("url");
    if !super::require_http(&url, Some(&endpoint.url), reading) {
        return;
    }
    let Some(text) = endpoint.url.literal() else { return };
    let webhook = parent.key("webhook");
    let rules = &destination.webhook;
    let plain = endpoint.url.scheme().as_deref() == Some("http");
    if plain && !rules.allow_http && !rules.allow_private {
        let message = "an address without TLS is refused without allow_http";
        let advice = format!("write https://, or allow_http = true in [{}]", webhook.heading());
        reading
            .contradict(&[url.clone(), webhook.key("allow_http")], Complaint::new(message, advice));
    }
    if is_private(text) && !rules.allow_private {
        let message = "an address of this machine or of a private network is refused without \
                       allow_private";
        let advice =
            format!("write another address, or allow_private = true in [{}]", webhook.heading());
        reading.contradict(&[url, webhook.key("allow_private")], Complaint::new(message, advice));
    }
}

/// Whether the host is written as an address that is not public. Names are looked up at each
/// request, not here.
fn is_private(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    if host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost") {
        return true;
    }
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(four)) => is_private_four(four),
        Ok(IpAddr::V6(six)) => is_private_six(six),
        Err(_) => false,
    }
}

fn is_private_four(ip: Ipv4Addr) -> bool {
    ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified()
}

fn is_private_six(ip: Ipv6Addr) -> bool {
    let first = ip.segments()[0];
    let local = first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80;
    local
        || ip.is_loopback()
        || ip.is_unspecified()
        || ip.to_ipv4_mapped().is_some_and(is_private_four)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known() {
        for url in [
            "http://localhost:8000/x",
            "https://127.0.0.1",
            "https://u@10.1.2.3:8443/in",
            "https://169.254.169.254/latest",
            "https://[::1]/x",
            "https://[fd00::1]:1/x",
            "https://[::ffff:192.168.0.1]/x",
        ] {
            assert!(is_private(url), "{url}");
        }
        for url in ["https://hooks.example/127.0.0.1", "https://1.1.1.1/", "https://[2606::1]/"] {
            assert!(!is_private(url), "{url}");
        }
    }

    #[test]
    fn templates_without_fields_are_topics() {
        let literal = |text: &str| literal(&text.parse().unwrap());
        assert_eq!(literal("acme"), Some("acme".into()));
        assert_eq!(literal("a{{b}}"), Some("a{b}".into()));
        assert_eq!(literal("{tenant}"), None);
        assert_eq!(literal("{{{tenant}}}"), None);
    }
}
