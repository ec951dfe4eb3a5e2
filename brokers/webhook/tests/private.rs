//! Addresses that may not be called: by number, by name, and by a name that changes.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{BoxFuture, ErrorKind, Outcome, Outgoing};
use postrider_webhook::{Endpoint, Resolve, UrlTopics, WebhookBroker, WebhookSettings};

use crate::support::*;

/// A resolver that follows a script, and answers the last line again for ever.
#[derive(Default)]
pub(crate) struct Names {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn new(answers: &[&[&str]]) -> Arc<Names> {
        let read = |line: &&[&str]| line.iter().map(|text| text.parse().unwrap()).collect();
        let answers = answers.iter().map(read).collect();
        Arc::new(Names { answers: Mutex::new(answers), asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.lock().unwrap().push(host.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(async { answer.ok_or_else(|| io::Error::other("no such name")) })
    }
}

fn strict(names: &Arc<Names>, url: &str) -> WebhookBroker {
    let settings = WebhookSettings {
        urls: Some(UrlTopics::default()),
        allow_http: Some(true),
        deadline: Duration::from_secs(5),
        ..WebhookSettings::default()
    };
    let settings = settings.endpoint("partner", Endpoint::new(url));
    let resolver: Arc<dyn Resolve> = Arc::clone(names) as Arc<dyn Resolve>;
    WebhookBroker::with_resolver(&settings, resolver).unwrap()
}

/// F32: a name that leads into one's own network is refused once it is resolved, whatever the name.
#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_is_refused() {
    let server = answering(|| status(200)).await;
    let port = server.address.port();
    for address in [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "100.64.0.1",
        "::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "0.0.0.0",
    ] {
        let names = Names::new(&[&[address]]);
        for scheme in ["http", "https"] {
            let broker = strict(&names, &format!("{scheme}://hooks.example:{port}/"));
            let fault = unroutable(publish(&broker, outgoing(1)).await);
            assert_eq!(fault.kind, ErrorKind::Config);
            assert!(fault.detail.contains("`allow_private`"), "{fault}");
            assert!(fault.detail.contains(&format!("{address} of hooks.example")), "{fault}");
        }
    }
    assert_eq!(server.connections(), 0, "nothing was called");
}

/// F32: every new connection is checked, so a name that changes between two requests gains nothing.
#[tokio::test]
async fn every_new_connection_is_checked() {
    let names = Names::new(&[&["127.0.0.1"], &["10.0.0.1", "192.168.0.1"], &["::1"]]);
    let broker = strict(&names, "http://hooks.example:9/");
    for number in 1..=5 {
        unroutable(publish(&broker, outgoing(number)).await);
    }
    assert_eq!(names.asked(), ["hooks.example"; 5]);
}

/// F32: an address in place of a name passes no resolver, and is checked all the same. What a lax
/// resolver would read as an address is a name here, and checked after it was resolved.
#[tokio::test]
async fn addresses_in_urls_are_checked() {
    let server = answering(|| status(200)).await;
    let port = server.address.port();
    let names = Names::new(&[&["127.0.0.1"]]);
    let broker = strict(&names, "https://hooks.example/");
    for host in [
        "127.0.0.1",
        "[::1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "localhost",
        "LOCALHOST.",
        "127.0.0.1.",
        "0",
    ] {
        let url = format!("http://{host}:{port}/");
        let sent = Outgoing { topic: Arc::from(&*url), ..outgoing(1) };
        let fault = unroutable(publish(&broker, sent).await);
        assert!(fault.detail.contains("`allow_private`"), "{url}: {fault}");
    }
    assert_eq!(server.connections(), 0);
    // The same by the system's own resolver.
    let settings = WebhookSettings {
        urls: Some(UrlTopics::default()),
        allow_http: Some(true),
        ..WebhookSettings::default()
    };
    let broker = WebhookBroker::new(&settings).unwrap();
    let url = format!("http://localhost:{port}/");
    let sent = Outgoing { topic: Arc::from(&*url), ..outgoing(1) };
    assert!(unroutable(publish(&broker, sent).await).detail.contains("`allow_private`"));
    assert_eq!(server.connections(), 0);
}

/// The control: with the key set the very same request arrives.
#[tokio::test]
async fn allowed_it_is_called() {
    let server = answering(|| status(200)).await;
    let names: Arc<dyn Resolve> = Names::new(&[&["127.0.0.1"]]);
    let url = format!("http://hooks.example:{}/", server.address.port());
    let settings = settings().endpoint("partner", Endpoint::new(url));
    let broker = WebhookBroker::with_resolver(&settings, names).unwrap();
    assert_eq!(publish(&broker, outgoing(1)).await, Outcome::Acked);
    assert_eq!(
        server.got()[0].header("host").unwrap(),
        format!("hooks.example:{}", server.address.port())
    );
}

/// A name that cannot be resolved, or that leads nowhere, may be resolved later.
#[tokio::test]
async fn a_name_without_an_address_is_tried_again() {
    for answers in [&[][..], &[&[][..]]] {
        let broker = strict(&Names::new(answers), "https://hooks.example/");
        let fault = retried(publish(&broker, outgoing(1)).await);
        assert_eq!(fault.kind, ErrorKind::Unavailable, "{fault}");
    }
}

/// A topic that names nothing is the route's mistake, with advice.
#[tokio::test]
async fn an_unknown_name_is_unroutable() {
    let broker = broker("https://127.0.0.1/");
    let sent = Outgoing { topic: Arc::from("partmer"), ..outgoing(1) };
    let fault = unroutable(publish(&broker, sent).await);
    assert!(fault.detail.contains("`partmer`") && fault.detail.contains("topic of the route"));
}
