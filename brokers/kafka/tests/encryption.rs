//! Encryption: whom we believe, who believes us, and what is said where that is not so.

#![cfg(feature = "tls")]

use std::time::Duration;

use postrider_core::{Broker, ErrorKind, Outcome, Result};
use postrider_kafka::{KafkaBroker, Tls};
use postrider_testkit::authority::Authority;

use crate::publishing::{event, outgoing};
use crate::server::Server;

async fn says(server: &Server, tls: Option<Tls>) -> Result<Vec<Outcome>> {
    let mut settings = server.settings();
    settings.tls = tls;
    settings.deadline = Duration::from_secs(4);
    let broker = KafkaBroker::new(settings)?;
    broker.publish(&[outgoing("orders", &event("1", 1, 10))]).await
}

/// F36: a server is believed by its certificate, knows us by ours, and where one of them does not fit, that is what
/// is said, and nothing is sent.
#[tokio::test]
async fn certificates_are_believed_or_refused_with_a_reason() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let Some(server) = Server::with(&authority.of_kafka(), &[]).await else { return };
    let ours = Some(authority.sign("ours", 2090));
    let known = Tls { roots: Some(authority.roots()), identity: ours.clone() };
    // There is no such topic: we were let in.
    let let_in = says(&server, Some(known)).await.unwrap();
    assert!(matches!(let_in[..], [Outcome::Unroutable(_)]), "{let_in:?}");
    let (roots, certificate) = ("correct `roots`", "`certificate` and `certificate_key`");
    let wrong = [
        ("an unknown server", stranger.roots(), ours, roots),
        ("no certificate of ours", authority.roots(), None, certificate),
        ("one that has expired", authority.roots(), Some(authority.sign("old", 2021)), certificate),
    ];
    let refuses = async |server: &Server, what: &str, tls: Tls, setting: &str| {
        let refused = says(server, Some(tls)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{what}: {refused:?}");
        let said = refused.to_string();
        assert!(said.contains(setting) && said.contains("nothing was sent"), "{what}: {said}");
    };
    for (what, roots, identity, setting) in wrong {
        refuses(&server, what, Tls { roots: Some(roots), identity }, setting).await;
    }
    // (A server of Kafka does not start with a certificate that has expired.) Who does not encrypt is not understood.
    let refused = says(&server, None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("(`tls`)"), "{refused}");
    let nowhere = Tls { roots: Some("/nowhere.pem".into()), identity: None };
    let refused = says(&server, Some(nowhere)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config, "{refused:?}");
    assert!(refused.to_string().contains("/nowhere.pem"), "{refused}");
}
