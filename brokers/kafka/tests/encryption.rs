//! Encryption: whom we believe, who believes us, and what is said where that is not so.

#![cfg(feature = "tls")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_core::{Broker, ErrorKind, Outcome, Result};
use postrider_kafka::{KafkaBroker, Tls};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use crate::publishing::{event, outgoing};
use crate::server::Server;

/// Whoever signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: String,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Two certificates of one name are taken for one that signed itself.
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), root }
    }

    /// A certificate for a name, and its key.
    fn sign(&self, name: &str, expired: bool) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        if expired {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

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
    let folder = tempfile::tempdir().unwrap();
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (certificate, key) = authority.sign("127.0.0.1", false);
    let store = write(folder.path(), "server.pem", &format!("{key}{certificate}"));
    let trust = write(folder.path(), "trust.pem", &authority.root);
    let properties = format!(
        "listener.security.protocol.map=CLIENT:SSL,CONTROLLER:PLAINTEXT\n\
         ssl.keystore.type=PEM\nssl.keystore.location={}\n\
         ssl.truststore.type=PEM\nssl.truststore.location={}\nssl.client.auth=required\n",
        store.display(),
        trust.display()
    );
    let Some(server) = Server::with(&properties, &[]).await else { return };
    let pair = |name: &str, (certificate, key): (String, String)| {
        let certificate = write(folder.path(), &format!("{name}.crt"), &certificate);
        Some((certificate, write(folder.path(), &format!("{name}.key"), &key)))
    };
    let ours = pair("ours", authority.sign("relay", false));
    let known = Tls { roots: Some(trust.clone()), identity: ours.clone() };
    // There is no such topic: we were let in.
    let let_in = says(&server, Some(known)).await.unwrap();
    assert!(matches!(let_in[..], [Outcome::Unroutable(_)]), "{let_in:?}");
    let other = write(folder.path(), "stranger.pem", &stranger.root);
    let wrong = [
        ("an unknown server", Some(other), ours),
        ("no certificate of ours", Some(trust.clone()), None),
        ("one that has expired", Some(trust), pair("old", authority.sign("relay", true))),
    ];
    for (what, roots, identity) in wrong {
        let refused = says(&server, Some(Tls { roots, identity })).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{what}: {refused:?}");
        let said = refused.to_string();
        assert!(said.contains("certificate") && said.contains("nothing was sent"), "{said}");
    }
    // Who does not encrypt is not understood.
    assert_eq!(says(&server, None).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let nowhere = Tls { roots: Some("/nowhere.pem".into()), identity: None };
    let refused = says(&server, Some(nowhere)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config, "{refused:?}");
    assert!(refused.to_string().contains("/nowhere.pem"), "{refused}");
}
