//! Destinations on Kafka, with a real server.

use std::time::Duration;

use postrider_testkit::authority::Authority;
use postrider_testkit::kafka::{KafkaServer, Stored, artifacts};
use rustix::process::Signal;
use tokio::runtime::Runtime;

use crate::broker::{assert_none_dead, configured, configured_away, doctor_says, doctor_says_of};
use crate::running::until;
use crate::{Shop, code, err, out, said};

/// A user who sends the password, on the listener of the clients.
const USERS: &str = "listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.client.sasl.enabled.mechanisms=PLAIN
listener.name.client.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"joe\" password=\"hunter2\" user_joe=\"hunter2\";";

/// A server with more lines of configuration; `None`, with the reason printed, where there is no program.
fn server(properties: &str) -> Option<KafkaServer> {
    server_of(properties, &[])
}

/// The same with users who prove their passwords.
fn server_of(properties: &str, users: &[&str]) -> Option<KafkaServer> {
    (!is_absent()).then(|| KafkaServer::start(properties, users).unwrap())
}

/// Whether there is no server's program, with the reason printed.
#[allow(clippy::print_stdout, reason = "a skipped test says why")]
pub(crate) fn is_absent() -> bool {
    let Err(reason) = artifacts() else { return false };
    println!("skipped: a server of Kafka: {reason}");
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    true
}

fn url(server: &KafkaServer) -> String {
    format!("kafka://{}", server.address())
}

/// R125: `doctor` tells what the brokers of a configuration say of themselves, with code and remedy, and says so of
/// one that cannot be asked.
#[test]
fn doctor_asks_the_brokers() {
    let Some(mut server) = server(USERS) else { return };
    let shop = Shop::new();
    let login = "user = \"joe\"\npassword = \"file:password\"\nmechanism = \"plain\"";
    shop.configure(&configured("kafka", &url(&server), login));
    std::fs::write(shop.path("password"), "hunter2").unwrap();
    doctor_says(&shop, "there is no topic `orders`", "PR-1302");
    std::fs::write(shop.path("password"), "wrong").unwrap();
    doctor_says(&shop, "correct the credentials", "PR-1301");
    server.kill();
    shop.configure(&configured_away("kafka", &url(&server), login));
    doctor_says(&shop, "Kafka cannot be used", "PR-1701");
}

/// R125, R082: `doctor` says of a sidecar what would keep it from its start, and makes no group by asking.
#[test]
fn doctor_looks_at_what_a_sidecar_reads() {
    let Some(mut server) = server("") else { return };
    let runtime = Runtime::new().unwrap();
    let shop = Shop::new();
    let says = |words, code| doctor_says_of(&shop, "consumer `billing`", words, code);
    shop.configure(&format!(
        "store = \"sqlite://shop.db\"\n[consume.billing]\nfrom = \"{}/orders\"\n\
         inbox = \"sqlite://billing.db\"\nendpoint = \"http://127.0.0.1:9/\"\n",
        url(&server)
    ));
    says("there is no topic `orders`", "PR-1302");
    runtime.block_on(server.create("orders", 2, &[]));
    says("create `postrider.dead.billing`", "PR-1302");
    runtime.block_on(server.create("postrider.dead.billing", 1, &[]));
    let told = out(&shop.run(&["doctor", "--config", "postrider.toml", "--output", "ndjson"]));
    assert!(
        told.contains("its topic `orders` and the one of its dead letters are there"),
        "{told}"
    );
    server.kill();
    says("Kafka cannot be used", "PR-1701");
}

/// R107: a relay without a configuration carries to a topic that the address names, or to one for each type.
#[test]
fn an_address_is_enough() {
    let Some(server) = server("") else { return };
    let runtime = Runtime::new().unwrap();
    for topic in ["shop.order", "order.placed"] {
        runtime.block_on(server.create(topic, 2, &[]));
    }
    let shop = Shop::new();
    let stored = |topic| runtime.block_on(server.stored(topic)).len();
    shop.place(1..4);
    let ended =
        shop.relay(&["--to", &format!("{}/shop.{{aggregate_type}}", url(&server)), "--once"]);
    assert_eq!(code(&ended), 0, "{}", err(&ended));
    assert_eq!((stored("shop.order"), stored("order.placed")), (3, 0));
    shop.place(4..6);
    let ended = shop.relay(&["--to", &url(&server), "--once"]);
    assert_eq!(code(&ended), 0, "{}", err(&ended));
    assert_eq!((stored("shop.order"), stored("order.placed")), (3, 2));
    // Who we are stands on no command line.
    let ended = shop.relay(&["--to", "kafka://joe:hunter2@127.0.0.1:9092", "--once"]);
    assert_eq!(code(&ended), 78, "{}", err(&ended));
    assert!(said(&ended).contains("--to env:NAME") && !said(&ended).contains("hunter2"));
}

/// Partitions that are added under way are told of when they are used.
#[test]
fn partitions_that_are_added_are_told_of() {
    let Some(server) = server("") else { return };
    let runtime = Runtime::new().unwrap();
    runtime.block_on(server.create("orders", 1, &[]));
    let shop = Shop::new();
    shop.configure(&configured("kafka", &url(&server), "refresh = \"1s\""));
    let mut relay = shop.configured(&[]);
    shop.place(1..4);
    let count = || runtime.block_on(server.count("orders"));
    until("the first are delivered", || count() == 3);
    runtime.block_on(server.add_partitions("orders", 4));
    // waits: the relay looks at the topic when it sends something, once a second
    std::thread::sleep(Duration::from_secs(1));
    shop.place(4..7);
    relay.wait_for("the topic `orders` has 4 partitions and had 1");
    assert!(relay.stop().success());
}

/// F36, R126: a password that the servers do not take makes events wait, the relay lives on and names the setting; a reload
/// brings the right one, and nothing is lost or sent twice.
#[test]
fn a_reload_brings_a_new_password() {
    let Some(mut server) = server(USERS) else { return };
    server.let_in(&[
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "joe"),
        ("sasl.password", "hunter2"),
    ]);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(server.create("orders", 1, &[]));
    let shop = Shop::new();
    let login = "user = \"joe\"\npassword = \"file:password\"\nmechanism = \"plain\"";
    shop.configure(&configured("kafka", &url(&server), login));
    std::fs::write(shop.path("password"), "sesame").unwrap();
    shop.place(1..4);
    let mut relay = shop.configured(&[]);
    relay.wait_for("correct the credentials");
    std::fs::write(shop.path("password"), "hunter2").unwrap();
    relay.signal(Signal::HUP);
    relay.wait_for("secrets: read anew");
    until("all are delivered", || runtime.block_on(server.count("orders")) == 3);
    assert!(relay.stop().success());
    assert_none_dead(&shop);
}

/// A server that asks for certificates, in which there is a topic, and its authority; and a configuration that shows one
/// which is good until a year.
#[cfg(feature = "kafka-tls")]
fn asking(until: i32) -> Option<(Authority, KafkaServer, String)> {
    let authority = Authority::new();
    let mut server = server(&authority.of_kafka())?;
    let (certificate, key) = authority.sign("relay", until);
    // A client of the test's own, with a certificate that stays good.
    let (ours, our_key) = authority.sign("test", 2090);
    server.let_in(&[
        ("security.protocol", "ssl"),
        ("ssl.ca.location", authority.roots().to_str().unwrap()),
        ("ssl.certificate.location", ours.to_str().unwrap()),
        ("ssl.key.location", our_key.to_str().unwrap()),
    ]);
    Runtime::new().unwrap().block_on(server.create("orders", 1, &[]));
    let tls = format!(
        "tls = true\nroots = {:?}\ncertificate = {certificate:?}\ncertificate_key = {key:?}",
        authority.roots()
    );
    let configured = configured("kafka", &url(&server), &tls);
    Some((authority, server, configured))
}

/// F36: a certificate that has expired makes events wait, the relay lives on and says which setting it is; a reload
/// reads the renewed one from the same files, and nothing is lost.
#[cfg(feature = "kafka-tls")]
#[test]
fn a_reload_reads_renewed_certificates() {
    let Some((authority, server, configured)) = asking(2021) else { return };
    let runtime = Runtime::new().unwrap();
    let shop = Shop::new();
    shop.configure(&configured);
    shop.place(1..4);
    let mut relay = shop.configured(&[]);
    relay.wait_for("correct or renew `certificate` and `certificate_key`");
    authority.sign("relay", 2090);
    let stored = || runtime.block_on(server.stored("orders"));
    relay.signal(Signal::HUP);
    until("all are delivered", || {
        // waits: the test's own client is not hurried
        std::thread::sleep(Duration::from_millis(20));
        stored().len() >= 3
    });
    assert!(relay.stop().success());
    let mut ids: Vec<_> = stored().iter().map(Stored::id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert_none_dead(&shop);
}

/// F36: a reload in the middle of a rotation, with a certificate whose key is not there yet, is refused with the names of both
/// files, and the relay sends on with what it had; with both, the reload takes them.
#[cfg(feature = "kafka-tls")]
#[test]
fn a_reload_refuses_a_certificate_beside_another_key() {
    let Some((authority, server, configured)) = asking(2090) else { return };
    let runtime = Runtime::new().unwrap();
    let shop = Shop::new();
    shop.configure(&configured);
    let mut relay = shop.configured(&[]);
    let stored = || runtime.block_on(server.count("orders"));
    shop.place(1..4);
    until("the first are delivered", || stored() == 3);
    let (_, key) = authority.sign("other", 2090);
    std::fs::copy(key, authority.path("relay.key")).unwrap();
    relay.signal(Signal::HUP);
    relay.wait_for("the reload changed nothing");
    let told = relay.heard();
    for words in ["destination `stream`", "relay.pem", "relay.key"] {
        assert!(told.contains(words), "{told}");
    }
    shop.place(4..7);
    until("the next are delivered", || stored() == 6);
    authority.sign("relay", 2090);
    relay.signal(Signal::HUP);
    relay.wait_for("certificates were read again");
    shop.place(7..10);
    until("the last are delivered", || stored() == 9);
    assert!(relay.stop().success());
    assert_none_dead(&shop);
}

/// The guide's own example, word by word but for the addresses: a password that is proved over TLS.
#[cfg(feature = "kafka-tls")]
#[test]
fn the_example_of_the_guide_is_let_in() {
    let authority = Authority::new();
    let users = ["SCRAM-SHA-512=[name=relay,password=hunter2]"];
    let Some(mut server) = server_of(&authority.of_kafka_with_users(), &users) else { return };
    let roots = authority.roots();
    server.let_in_as_broker(&roots);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(server.create("shop.order", 1, &[]));
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/kafka.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let theirs = "kafka://kafka-1.internal:9092,kafka-2.internal:9092";
    let changed = [
        (theirs, url(&server)),
        ("/etc/postrider/roots.pem", roots.display().to_string()),
        ("env:KAFKA_PASSWORD", "file:password".to_owned()),
    ];
    let example = changed.iter().fold(example.to_owned(), |example, (theirs, ours)| {
        assert!(example.contains(theirs), "{theirs} is not in the example");
        example.replace(theirs, ours)
    });
    let shop = Shop::new();
    shop.configure(&example);
    std::fs::write(shop.path("password"), "hunter2").unwrap();
    shop.place(1..4);
    let ended = shop.relay(&["--config", "postrider.toml", "--once"]);
    assert_eq!(code(&ended), 0, "{}", err(&ended));
    assert_eq!(runtime.block_on(server.count("shop.order")), 3);
}
