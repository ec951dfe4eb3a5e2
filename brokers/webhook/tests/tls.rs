//! TLS: a company's own root, both versions of HTTP, and certificates that are not trusted.

use std::sync::Arc;

use http::Version;
use postrider_core::{ErrorKind, Outcome};
use postrider_webhook::{Endpoint, Resolve, WebhookBroker, WebhookSettings};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use crate::private::Names;
use crate::support::*;

/// A server for `hooks.example`, and its certificate in PEM.
async fn server(protocols: &[&str]) -> (Server, String) {
    let key = KeyPair::generate().unwrap();
    let names = vec!["hooks.example".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let server = Server::start_with_tls(Arc::new(|_| Some(status(200))), Some(acceptor)).await;
    (server, certificate.pem())
}

fn broker(server: &Server, host: &str, roots: Vec<String>) -> WebhookBroker {
    let url = format!("https://{host}:{}/", server.address.port());
    let settings = WebhookSettings { extra_roots: roots, ..settings() };
    let names: Arc<dyn Resolve> = Names::new(&[&["127.0.0.1"]]);
    let settings = settings.endpoint("partner", Endpoint::new(url));
    WebhookBroker::with_resolver(&settings, names).unwrap()
}

#[tokio::test]
async fn a_root_of_ones_own_is_trusted() {
    for (protocols, version) in [
        (&["h2", "http/1.1"][..], Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let (server, root) = server(protocols).await;
        let broker = broker(&server, "hooks.example", vec![root]);
        for number in 1..=3 {
            assert_eq!(publish(&broker, outgoing(number)).await, Outcome::Acked);
        }
        assert_eq!((server.connections(), server.got().len()), (1, 3));
        assert!(server.got().iter().all(|got| got.version == version), "{version:?}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_no_delivery() {
    let (server, root) = server(&["http/1.1"]).await;
    for (host, roots) in [("hooks.example", Vec::new()), ("other.example", vec![root])] {
        let fault = retried(publish(&broker(&server, host, roots), outgoing(1)).await);
        assert_eq!(fault.kind, ErrorKind::Unavailable);
        assert!(fault.detail.contains("certificate"), "{fault}");
    }
    assert!(server.got().is_empty());
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_named() {
    let server = answering(|| status(200)).await;
    let fault = retried(publish(&broker(&server, "hooks.example", Vec::new()), outgoing(1)).await);
    assert_eq!(fault.kind, ErrorKind::Unavailable);
    assert!(fault.detail.starts_with("TLS failed"), "{fault}");
}
