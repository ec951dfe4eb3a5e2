//! What the server does not let a user do, without JetStream, and when it is granted after all.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use postrider_core::{Broker, ErrorKind, Fault, Outcome, Outgoing};
use postrider_nats::{Credentials, NatsBroker};
use tokio::time::Instant;

use crate::publishing::{event, outgoing};
use crate::server::Server;

/// How long a server may take to read its configuration, and a client to find out.
const PATIENCE: Duration = Duration::from_secs(60);

fn user(name: &str, permissions: &str) -> String {
    format!(
        "authorization {{ users = [ {{ user: {name}, password: {name}, permissions: {permissions} }} ] }}"
    )
}

fn broker_of(server: &Server, name: &str, allow_lossy: bool) -> NatsBroker {
    let mut settings = server.settings();
    settings.credentials = Credentials::User { name: name.into(), password: name.into() };
    settings.deadline = Duration::from_secs(30);
    settings.allow_lossy = allow_lossy;
    NatsBroker::new(settings).unwrap()
}

fn forbidden(outcome: &Outcome) -> &str {
    let Outcome::Unroutable(Fault { kind: ErrorKind::Unauthorized, detail }) = outcome else {
        panic!("{outcome:?}");
    };
    detail
}

/// R067, F36: without JetStream too, nothing counts as read that the server did not let this user publish; also where
/// that is of more subjects than can be heard of at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_user_may_not_publish_without_jetstream_is_said() {
    let few = user("few", r#"{ publish: { deny: ["orders.secret", "secret.>"] } }"#);
    let Some(server) = Server::with(&few) else { return };
    let broker = broker_of(&server, "few", true);
    for round in 0..50 {
        let events = ["1", "2", "3"].map(|key| event(key, round, 10));
        let subjects = ["orders.new", "orders.secret", "orders.new"];
        let batch: Vec<Outgoing> =
            subjects.iter().zip(&events).map(|(subject, event)| outgoing(subject, event)).collect();
        let outcomes = broker.publish(&batch).await.unwrap();
        assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Acked, &Outcome::Acked));
        let detail = forbidden(&outcomes[1]);
        assert!(detail.contains("publish to `orders.secret`: grant it"), "{detail}");
    }
    for count in [10, 400, 10, 400] {
        let to = |n: u32| outgoing(&format!("secret.{n}"), &event(&n.to_string(), 1, 10));
        let batch: Vec<Outgoing> = (0..count).map(to).collect();
        match broker.publish(&batch).await {
            Ok(outcomes) => assert!(outcomes.iter().all(|it| !forbidden(it).is_empty())),
            Err(error) => assert!(count > 16 && error.to_string().contains("not known"), "{error}"),
        }
    }
}

/// F36: nor where the server cannot be asked whether it has read it; and that is said at once.
#[tokio::test]
async fn a_user_that_cannot_ask_without_jetstream_is_told_so() {
    for (name, permissions, words) in [
        ("deaf", r#"{ subscribe: { deny: "_INBOX.>" } }"#, "subscribe to `_INBOX.>`"),
        ("mute", r#"{ publish: { deny: "_INBOX.>" } }"#, "publish to `_INBOX.>`"),
    ] {
        let Some(server) = Server::with(&user(name, permissions)) else { return };
        let (broker, begun) = (broker_of(&server, name, true), Instant::now());
        let outcomes = broker.publish(&[outgoing("orders", &event("1", 1, 10))]).await.unwrap();
        let detail = forbidden(&outcomes[0]);
        assert!(detail.contains(words) && detail.contains("grant it"), "{detail}");
        assert!(begun.elapsed() < Duration::from_secs(15), "not at the deadline");
    }
}

/// Over how many connections the server was asked for answers that it does not let this user hear: each says so in its log, several
/// times a second. Its own numbers of connections tell less: it gives them out of order, also to those that asked before
/// whether it is ready.
fn deaf_connections(server: &Server) -> usize {
    let log = server.log();
    let violations = log.lines().filter(|line| line.contains("Subscription Violation"));
    let number = |line: &str| {
        let (_, rest) = line.split_once("cid:").expect("a connection's number");
        rest.split_whitespace().next().map(str::to_owned)
    };
    violations.map(number).collect::<BTreeSet<_>>().len()
}

/// How long a connection is kept over which no answer is heard.
const KEPT: Duration = Duration::from_secs(5);

/// F36: a user that is let hear answers after all is heard of again, with nothing but a reload of the server: by itself
/// the client would ask for its answers again only over another connection. Until then it costs the server no more than
/// one connection each 5 s, however many batches ask at once.
#[tokio::test]
async fn answers_that_are_granted_later_are_heard() {
    let deaf = user("joe", r#"{ subscribe: { deny: "_INBOX.>" } }"#);
    for allow_lossy in [false, true] {
        let Some(server) = Server::with(&deaf) else { return };
        let broker = broker_of(&server, "joe", allow_lossy);
        let sent = event("1", 1, 10);
        let publish = async || broker.publish(&[outgoing("orders", &sent)]).await;
        let begun = Instant::now();
        // For longer than one connection is kept: another one is no less deaf.
        while begun.elapsed() < KEPT + KEPT / 2 || deaf_connections(&server) < 2 {
            assert!(begun.elapsed() < PATIENCE, "no other connection: {}", server.log());
            for said in join_all((0..4).map(|_| publish())).await {
                match said {
                    Ok(outcomes) => assert!(forbidden(&outcomes[0]).contains("_INBOX.>")),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                }
            }
            // waits: so that it is asked now and then, as a relay does
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let made = deaf_connections(&server);
        let spans = usize::try_from(begun.elapsed().as_secs() / KEPT.as_secs()).unwrap();
        assert!(
            (2..=1 + spans).contains(&made),
            "{made} connections in {:?}: {}",
            begun.elapsed(),
            server.log()
        );
        let path = server.folder().join("nats.conf");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, config.replace(&deaf, &user("joe", "{ }"))).unwrap();
        assert!(server.signal("-HUP"));
        if !allow_lossy {
            let options = async_nats::ConnectOptions::new();
            let options = options.user_and_password("joe".into(), "joe".into());
            let begun = Instant::now();
            // Which is how we know that it has read it. While it does, it refuses a user who is changed.
            loop {
                let config = async_nats::jetstream::stream::Config {
                    name: "orders".to_owned(),
                    ..Default::default()
                };
                let client = options.clone().connect(server.address()).await;
                if let Ok(client) = client
                    && async_nats::jetstream::new(client).create_stream(config).await.is_ok()
                {
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "{}", server.log());
            }
        }
        let begun = Instant::now();
        loop {
            let said = publish().await;
            if matches!(said.as_deref(), Ok([Outcome::Acked])) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{said:?}");
            // waits: so that it is asked now and then, as a relay does
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
