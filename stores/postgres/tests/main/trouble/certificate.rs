//! Encryption with a real server: whom the store believes, what it says where it does not, and that a
//! certificate may be renewed while it runs.

use std::time::{Duration, Instant};

use postrider_core::source::OutboxSource;
use postrider_core::{ErrorKind, Result};
use postrider_postgres::PostgresStore;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

use crate::support::Fresh;
use postrider_testkit::cluster::Cluster;

/// How long the server may take to read its configuration on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whoever signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: String,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).expect("a root").pem();
        Authority { issuer: Issuer::new(params, key), root }
    }

    /// A certificate for a name, and its key.
    fn sign(&self, name: &str, expired: bool) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        if expired {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        (signed.pem(), key.serialize_pem())
    }
}

async fn give(cluster: &Cluster, fresh: &Fresh, (certificate, key): (String, String)) {
    cluster.write("server.crt", &certificate);
    cluster.write("server.key", &key);
    fresh.run("alter system set ssl = on").await;
    fresh.run("select pg_reload_conf()").await;
    // Each new connection is served as the last configuration says, as soon as the server has read it.
    for _ in 0..500 {
        if fresh
            .number("select count(*) from pg_settings where name = 'ssl' and setting = 'on'")
            .await
            == 1
        {
            return;
        }
    }
    panic!("the server does not encrypt");
}

fn store(fresh: &Fresh, address: String) -> PostgresStore {
    PostgresStore::with(&address, fresh.options()).expect("an address")
}

/// F36: each mode believes whom it should, says what is wrong where it does not, and goes on when that is
/// mended.
#[tokio::test]
async fn a_certificate_is_believed_or_refused_with_a_reason() {
    let Some(cluster) = Cluster::start(&["fsync = off"]).await else { return };
    let fresh = Fresh::on(&cluster, 1).await;
    let plain = store(&fresh, cluster.address("localhost", "?sslmode=require"));
    let refused = plain.open().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.to_string().contains("does not encrypt"), "{refused}");
    let authority = Authority::new();
    give(&cluster, &fresh, authority.sign("localhost", false)).await;
    let root = cluster.write("root.pem", &authority.root).display().to_string();
    let full = format!("?sslmode=verify-full&sslrootcert={root}");
    for (host, rest, reason) in [
        ("localhost", "", None),
        ("localhost", "?sslmode=disable", None),
        ("localhost", "?sslmode=require", None),
        ("127.0.0.1", &*format!("?sslmode=verify-ca&sslrootcert={root}"), None),
        ("localhost", &*full, None),
        ("127.0.0.1", &*full, Some("another host")),
        ("localhost", "?sslmode=verify-full", Some("sslrootcert=PATH")),
        ("localhost", "?sslmode=verify-ca", Some("sslrootcert=PATH")),
    ] {
        let opened = store(&fresh, cluster.address(host, rest)).open().await;
        match (opened, reason) {
            (Ok(_), None) => {}
            (Err(refused), Some(reason)) => {
                assert!(refused.to_string().contains(reason), "{host} {rest}: {refused}");
                assert_eq!(refused.kind(), ErrorKind::Unavailable);
            }
            (other, _) => panic!("{host} {rest}: {other:?}"),
        }
    }
    let running = store(&fresh, cluster.address("localhost", &full));
    running.open().await.expect("open");
    give(&cluster, &fresh, authority.sign("localhost", true)).await;
    let has_expired = |said: &Result<()>| {
        said.as_ref().is_err_and(|refused| refused.to_string().contains("has expired"))
    };
    anew(&fresh, &running, has_expired).await;
    give(&cluster, &fresh, authority.sign("localhost", false)).await;
    anew(&fresh, &running, Result::is_ok).await;
}

/// Waits until the store says over new sessions what is expected: the server needs a moment to read its
/// configuration again, and whoever is cut off in between says so first.
async fn anew(fresh: &Fresh, store: &PostgresStore, expected: fn(&Result<()>) -> bool) {
    let begun = Instant::now();
    loop {
        fresh
            .run(
                "select pg_terminate_backend(pid) from pg_stat_activity \
                 where application_name = 'postrider'",
            )
            .await;
        for _ in 0..4 {
            let said = store.destinations().await.map(drop);
            if expected(&said) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "it still says {said:?}");
        }
    }
}
