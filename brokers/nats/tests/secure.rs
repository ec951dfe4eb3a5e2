//! Encryption, certificates, and credentials files, each with a server that asks for them.

use std::time::Duration;

use postrider_core::{Broker, Error, ErrorKind, Outcome};
use postrider_nats::{Credentials, NatsBroker, NatsSettings};
use postrider_testkit::authority::Authority;
use postrider_testkit::nats_operator::NatsOperator;

use crate::publishing::{event, outgoing};
use crate::server::Server;

async fn says(mut settings: NatsSettings) -> Result<Vec<Outcome>, Error> {
    settings.deadline = Duration::from_secs(3);
    let broker = NatsBroker::new(settings)?;
    let said = broker.publish(&[outgoing("orders", &event("1", 1, 10))]).await;
    broker.close().await.unwrap();
    said
}

/// No stream takes the subject: we were let in.
fn assert_let_in(said: Result<Vec<Outcome>, Error>) {
    let said = said.unwrap();
    assert!(matches!(said[..], [Outcome::Unroutable(_)]), "{said:?}");
}

/// R126, F36: encryption with a root of one's own; a server that nobody vouches for, and one whose certificate has
/// expired, are not believed, and the setting is named.
#[tokio::test]
async fn a_server_shows_who_it_is() {
    let authority = Authority::new();
    let Some(server) = Server::with(&authority.of_nats(2099, false)) else { return };
    let mut settings = server.settings();
    settings.tls.roots = Some(authority.roots());
    settings.tls.required = true;
    assert_let_in(says(settings.clone()).await);
    settings.tls.roots = None;
    let stranger = says(settings.clone()).await.unwrap_err();
    settings.tls.roots = Some(authority.path("missing.pem"));
    let missing = says(settings.clone()).await.unwrap_err();
    drop(server);
    let expired = Authority::new();
    let Some(server) = Server::with(&expired.of_nats(2021, false)) else { return };
    let mut settings = server.settings();
    settings.tls.roots = Some(expired.roots());
    let expired = says(settings).await.unwrap_err();
    let (unavailable, config) = (ErrorKind::Unavailable, ErrorKind::Config);
    for (error, kind, words) in [
        (stranger, unavailable, "`roots`"),
        (missing, config, "`roots`"),
        (expired, unavailable, "xpired"),
    ] {
        assert_eq!(error.kind(), kind, "{error}");
        let said = error.to_string();
        assert!(said.contains(words) && said.contains("nothing was sent"), "{said}");
    }
    // A server that does not encrypt, where we ask for it.
    let Some(plain) = Server::start() else { return };
    let mut settings = plain.settings();
    settings.tls.required = true;
    let refused = says(settings).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    let said = refused.to_string();
    assert!(said.contains("`require_tls`") && said.contains("nothing was sent"), "{said}");
}

/// F36: a server that asks for our certificate gets it; without one, with a stranger's, and with an expired one we
/// are refused, and told which setting it is.
#[tokio::test]
async fn a_certificate_shows_who_we_are() {
    let authority = Authority::new();
    let Some(server) = Server::with(&authority.of_nats(2099, true)) else { return };
    let mut settings = server.settings();
    settings.tls.roots = Some(authority.roots());
    let with = |identity| {
        let mut settings = settings.clone();
        settings.tls.identity = identity;
        says(settings)
    };
    assert_let_in(with(Some(authority.sign("good", 2099))).await);
    let nobody = with(None).await.unwrap_err();
    let other = Authority::new();
    let stranger = with(Some(other.sign("stranger", 2099))).await.unwrap_err();
    let expired = with(Some(authority.sign("expired", 2021))).await.unwrap_err();
    for error in [nobody, stranger, expired] {
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        assert!(error.to_string().contains("`certificate`"), "{error}");
    }
    let (certificate, _) = authority.sign("half", 2099);
    let half = with(Some((certificate, authority.path("missing.key")))).await.unwrap_err();
    assert!(half.to_string().contains("`certificate_key`"), "{half}");
}

/// F36: a certificate beside another one's key is refused where a broker is made, which is before a reload gives up what it
/// had, and both files are named. A server is not asked.
#[test]
fn a_certificate_beside_another_key_makes_no_broker() {
    let authority = Authority::new();
    let (certificate, _) = authority.sign("one", 2099);
    let (_, key) = authority.sign("another", 2099);
    let mut settings = NatsSettings::new("nats://127.0.0.1:1");
    settings.tls.identity = Some((certificate.clone(), key.clone()));
    let refused = NatsBroker::new(settings.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    for name in [&certificate, &key] {
        assert!(refused.to_string().contains(name.to_str().unwrap()), "{refused}");
    }
    std::fs::write(&certificate, "half of a file").unwrap();
    let refused = NatsBroker::new(settings).unwrap_err();
    assert!(refused.to_string().contains("cannot be used together"), "{refused}");
}

/// F36: a credentials file, with a server that believes an operator's signatures; another operator's user is not
/// let in, and what is no credentials file is refused before anybody is asked.
#[tokio::test]
async fn a_credentials_file_shows_who_we_are() {
    let operator = NatsOperator::new();
    let Some(server) = Server::with(&operator.config()) else { return };
    let with = |content: String| {
        let mut settings = server.settings();
        settings.credentials = Credentials::Creds(content.into());
        says(settings)
    };
    assert_let_in(with(operator.creds()).await);
    assert_let_in(with(operator.creds().trim().to_owned()).await);
    let refused = with(operator.creds_of_a_stranger()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{refused}");
    let mut half = server.settings();
    half.credentials = Credentials::Creds("nothing".into());
    // Before anybody gives up another broker for it.
    let nothing = NatsBroker::new(half).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::Config, "{nothing}");
    assert!(!format!("{refused:?}{nothing:?}").contains(&operator.seed()));
}
