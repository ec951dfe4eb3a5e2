//! Destinations on NATS, with a real server.

mod secure;

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, consumer, stream};
use postrider_testkit::nats::NatsServer;
use rustix::process::Signal;

use crate::broker::{assert_none_dead, configured, configured_away, doctor_says};
use crate::running::until;
use crate::{Shop, code, err, out, said};

/// A server with more lines of configuration; `None`, with the reason printed, where there is no program.
#[allow(clippy::print_stdout, reason = "a skipped test says why")]
pub(crate) fn server(config: &str) -> Option<NatsServer> {
    match NatsServer::start(config) {
        Ok(server) => Some(server),
        Err(reason) => {
            println!("skipped: a server of NATS: {reason}");
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            None
        }
    }
}

/// R125: `doctor` tells what the brokers of a configuration say of themselves, with code and remedy, and says so of
/// one that cannot be asked. Without a configuration it looks at the store alone.
#[test]
fn doctor_asks_the_brokers() {
    let Some(mut server) = server("authorization { users: [{ user: joe, password: hunter2 }] }")
    else {
        return;
    };
    let shop = Shop::new();
    let login = "user = \"joe\"\npassword = \"file:password\"";
    shop.configure(&configured("nats", &server.address(), login));
    std::fs::write(shop.path("password"), "hunter2").unwrap();
    doctor_says(&shop, "no stream takes the subject orders", "PR-1302");
    std::fs::write(shop.path("password"), "wrong").unwrap();
    doctor_says(&shop, "correct the credentials", "PR-1301");
    server.kill();
    shop.configure(&configured_away("nats", &server.address(), login));
    doctor_says(&shop, "NATS cannot be used", "PR-1701");
    let alone = shop.run(&["doctor", "--store", "sqlite://shop.db"]);
    assert!(!out(&alone).contains("NATS"), "{}", out(&alone));
}

/// R082: `doctor` says how a claim in the inbox and its delivery at the broker end, in whichever order that is, and
/// makes no group by asking.
#[test]
fn doctor_compares_the_times_of_a_sidecar() {
    let Some(mut server) = server("") else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stream = runtime.block_on(async {
        let client = jetstream::new(async_nats::connect(server.address()).await.unwrap());
        let config = stream::Config {
            name: "SHOP".to_owned(),
            subjects: vec!["shop.>".to_owned()],
            ..stream::Config::default()
        };
        client.create_stream(config).await.unwrap()
    });
    let shop = Shop::new();
    let doctor = || {
        let run = shop.run(&["doctor", "--config", "postrider.toml", "--output", "ndjson"]);
        let rows = out(&run);
        let mut rows =
            rows.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap());
        rows.find(|row| row["subject"].as_str().unwrap().contains("consumer `billing`")).unwrap()
    };
    shop.configure(&format!(
        "store = \"sqlite://shop.db\"\n[consume.billing]\nfrom = \"{}/SHOP\"\n\
         inbox = \"sqlite://billing.db\"\nendpoint = \"http://127.0.0.1:9/\"\n",
        server.address()
    ));
    // A sidecar would not start, and so says this.
    let unburied = doctor();
    assert_eq!(
        (unburied["level"].as_str(), unburied["code"].as_str()),
        (Some("critical"), Some("PR-1302"))
    );
    assert!(unburied.to_string().contains("no stream takes the dead letters"), "{unburied}");
    runtime.block_on(async {
        let client = jetstream::new(async_nats::connect(server.address()).await.unwrap());
        let subjects = vec!["postrider.dead.>".to_owned()];
        let config =
            stream::Config { name: "DEAD".to_owned(), subjects, ..stream::Config::default() };
        client.create_stream(config).await.unwrap();
    });
    let alone = doctor();
    assert_eq!(alone["level"], "good", "{alone}");
    assert!(runtime.block_on(stream.get_consumer::<consumer::pull::Config>("billing")).is_err());
    for (wait, level, code, words) in [
        (7, "warning", Some("PR-1601"), "comes back in vain"),
        (66, "good", None, "comes back after 66s"),
        (600, "warning", Some("PR-1601"), "a crash delays it"),
    ] {
        let config = consumer::pull::Config {
            durable_name: Some("billing".to_owned()),
            ack_wait: std::time::Duration::from_secs(wait),
            ..consumer::pull::Config::default()
        };
        // Made, or changed.
        runtime.block_on(stream.create_consumer(config)).unwrap();
        let found = doctor();
        assert_eq!((found["level"].as_str(), found["code"].as_str()), (Some(level), code));
        assert!(found.to_string().contains(words), "{found}");
        let advice = found["advice"].as_str().unwrap_or_default();
        assert!(code.is_none() || advice.contains("consumer edit SHOP billing --wait"), "{found}");
    }
    server.kill();
    let found = doctor();
    assert_eq!(found["level"], "critical", "{found}");
    assert!(found["message"].as_str().unwrap().contains("NATS cannot be used"), "{found}");
}

/// A client of the test's own, as the server's only user.
async fn client(server: &NatsServer, password: &str) -> jetstream::Context {
    let options = ConnectOptions::with_user_and_password("joe".into(), password.into());
    jetstream::new(options.connect(server.address()).await.unwrap())
}

/// F36: a password that the server does not know any more makes events wait, the relay lives on and names the
/// setting; a reload brings the new one, and nothing is lost or sent twice.
#[test]
fn a_reload_brings_new_credentials() {
    let only = |password: &str| {
        format!("authorization {{ users: [{{ user: joe, password: {password} }}] }}")
    };
    let Some(mut server) = server(&only("hunter2")) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stored = |server: &NatsServer, password| {
        runtime.block_on(async {
            let stream = client(server, password).await.get_stream("orders").await.unwrap();
            stream.cached_info().state.messages
        })
    };
    runtime.block_on(async {
        let config = stream::Config {
            name: "orders".to_owned(),
            subjects: vec!["orders".to_owned()],
            ..stream::Config::default()
        };
        client(&server, "hunter2").await.create_stream(config).await.unwrap();
    });
    let shop = Shop::new();
    shop.configure(&configured(
        "nats",
        &server.address(),
        "user = \"joe\"\npassword = \"file:password\"",
    ));
    std::fs::write(shop.path("password"), "hunter2").unwrap();
    let mut relay = shop.configured(&[]);
    shop.place(1..4);
    until("the first are delivered", || stored(&server, "hunter2") == 3);
    server.kill();
    server.configure(&only("sesame"));
    server.run().unwrap();
    shop.place(4..7);
    relay.wait_for("correct the credentials");
    assert_eq!(stored(&server, "sesame"), 3);
    std::fs::write(shop.path("password"), "sesame").unwrap();
    relay.signal(Signal::HUP);
    relay.wait_for("secrets: read anew");
    until("the others are delivered", || stored(&server, "sesame") == 6);
    assert!(relay.stop().success());
    assert_none_dead(&shop);
}

/// R107: a relay without a configuration carries to a subject that the address names; who we are comes from the
/// environment.
#[test]
fn an_address_is_enough() {
    let Some(server) = server("authorization { users: [{ user: joe, password: hunter2 }] }") else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = || stream::Config {
        name: "SHOP".to_owned(),
        subjects: vec!["shop.>".to_owned()],
        ..stream::Config::default()
    };
    let mut stream = runtime.block_on(async {
        client(&server, "hunter2").await.create_stream(config()).await.unwrap()
    });
    let shop = Shop::new();
    shop.place(1..4);
    let open = server.address().replace("nats://", "nats://joe:hunter2@") + "/shop.{event_type}";
    let ended = shop.relay(&["--to", &open, "--once"]);
    assert_eq!(code(&ended), 78, "{}", err(&ended));
    assert!(said(&ended).contains("--to env:NAME") && !said(&ended).contains("hunter2"));
    let mut command =
        shop.command(&["relay", "--store", "sqlite://shop.db", "--to", "env:SHOP", "--once"]);
    let ended = command.env("SHOP", &open).output().unwrap();
    assert_eq!(code(&ended), 0, "{}", err(&ended));
    let stored = runtime.block_on(async { stream.info().await.unwrap().state.messages });
    assert_eq!(stored, 3);
}
