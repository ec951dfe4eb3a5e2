//! Who a relay is to a server of NATS, in each way that a configuration can say it, and whom it believes.

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, stream};
use nkeys::KeyPair;
use postrider_testkit::authority::Authority;
use postrider_testkit::nats::NatsServer;
use postrider_testkit::nats_operator::NatsOperator;
use rustix::process::Signal;
use tokio::runtime::Runtime;

use super::server;
use crate::Shop;
use crate::broker::{assert_none_dead, configured};
use crate::running::until;

/// A stream for the orders, made and looked at by a client of the test's own.
struct Orders {
    runtime: Runtime,
    stream: stream::Stream,
}

impl Orders {
    fn made(server: &NatsServer, options: ConnectOptions) -> Orders {
        let runtime = Runtime::new().unwrap();
        let stream = runtime.block_on(async {
            let client = options.connect(server.address()).await.unwrap();
            let config = stream::Config {
                name: "orders".to_owned(),
                subjects: vec!["orders".to_owned()],
                ..stream::Config::default()
            };
            jetstream::new(client).create_stream(config).await.unwrap()
        });
        Orders { runtime, stream }
    }

    fn stored(&mut self) -> u64 {
        let asked = self.runtime.block_on(self.stream.info());
        asked.map_or(0, |info| info.state.messages)
    }
}

/// F36: with the wrong secret a relay lives on and names it, its events wait, and a reload brings the right one: a token, an
/// nkey, and a file of credentials. Nothing is lost or sent twice.
#[test]
fn a_reload_brings_each_kind_of_secret() {
    let (user, stranger) = (KeyPair::new_user(), KeyPair::new_user());
    let (operator, seed) = (NatsOperator::new(), |pair: &KeyPair| pair.seed().unwrap());
    let nkey = format!("authorization {{ users: [{{ nkey: {} }}] }}", user.public_key());
    let token = "authorization { token: hunter2 }".to_owned();
    let credentials = || ConnectOptions::with_credentials(&operator.creds()).unwrap();
    for (config, key, options, wrong, right) in [
        (
            token,
            "token",
            ConnectOptions::with_token("hunter2".into()),
            "sesame".into(),
            "hunter2".into(),
        ),
        (nkey, "nkey", ConnectOptions::with_nkey(seed(&user)), seed(&stranger), seed(&user)),
        (
            operator.config(),
            "creds",
            credentials(),
            operator.creds_of_a_stranger(),
            operator.creds(),
        ),
    ] {
        let Some(server) = server(&config) else { return };
        let mut orders = Orders::made(&server, options);
        let shop = Shop::new();
        let more = format!("{key} = \"file:secret\"");
        shop.configure(&configured("nats", &server.address(), &more));
        std::fs::write(shop.path("secret"), wrong).unwrap();
        shop.place(1..4);
        let mut relay = shop.configured(&[]);
        relay.wait_for("correct the credentials");
        assert_eq!(orders.stored(), 0, "{key}");
        std::fs::write(shop.path("secret"), right).unwrap();
        relay.signal(Signal::HUP);
        relay.wait_for("secrets: read anew");
        until("all are delivered", || orders.stored() == 3);
        assert!(relay.stop().success());
        assert_none_dead(&shop);
    }
}

/// F36: a certificate that has expired makes events wait, and the setting is named; the renewed one is read at the next
/// connection, without a reload. A server that shows what our roots did not sign is not believed.
#[test]
fn a_renewed_certificate_is_read_at_the_next_connection() {
    let authority = Authority::new();
    let Some(server) = server(&authority.of_nats(2090, true)) else { return };
    let (ours, our_key) = authority.sign("test", 2090);
    let options = ConnectOptions::new()
        .add_root_certificates(authority.roots())
        .add_client_certificate(ours, our_key)
        .require_tls(true);
    let mut orders = Orders::made(&server, options);
    let (certificate, key) = authority.sign("relay", 2021);
    let tls = |roots: std::path::PathBuf| {
        format!(
            "require_tls = true\nroots = {roots:?}\ncertificate = {certificate:?}\ncertificate_key = {key:?}"
        )
    };
    let shop = Shop::new();
    shop.place(1..4);
    let another = Authority::new();
    shop.configure(&configured("nats", &server.address(), &tls(another.roots())));
    let mut relay = shop.configured(&[]);
    relay.wait_for("correct `roots`");
    assert!(relay.stop().success());
    shop.configure(&configured("nats", &server.address(), &tls(authority.roots())));
    let mut relay = shop.configured(&[]);
    relay.wait_for("correct or renew `certificate` and `certificate_key`");
    assert_eq!(orders.stored(), 0);
    authority.sign("relay", 2090);
    until("all are delivered", || orders.stored() == 3);
    assert!(relay.stop().success());
    assert_none_dead(&shop);
}
