//! Destinations on NATS, with a real server.

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, stream};
use postrider_testkit::nats::NatsServer;
use rustix::process::Signal;

use crate::running::until;
use crate::{Shop, code, err, out, said};

/// A server with more lines of configuration; `None`, with the reason printed, where there is no program.
#[allow(clippy::print_stdout, reason = "a skipped test says why")]
fn server(config: &str) -> Option<NatsServer> {
    match NatsServer::start(config) {
        Ok(server) => Some(server),
        Err(reason) => {
            println!("skipped: a server of NATS: {reason}");
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            None
        }
    }
}

/// A configuration with one destination, and more lines about its connection.
fn configured(url: &str, more: &str) -> String {
    format!(
        "store = \"sqlite://shop.db\"\n[destinations.stream]\nkind = \"nats\"\nurl = \"{url}\"\n\
         routes = [{{ topic = \"orders\" }}]\n[destinations.stream.nats]\ntimeout = \"2s\"\n{more}\n"
    )
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
    shop.configure(&configured(&server.address(), "user = \"joe\"\npassword = \"file:password\""));
    std::fs::write(shop.path("password"), "hunter2").unwrap();
    let doctor = ["doctor", "--config", "postrider.toml", "--output", "ndjson"];
    let ask = |words: &str, code_of: Option<&str>| {
        let run = shop.run(&doctor);
        assert_eq!(code(&run), 6, "{}", err(&run));
        assert!(!said(&run).contains("hunter2") && !out(&run).contains("hunter2"));
        let rows = out(&run);
        let mut rows =
            rows.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap());
        let row = rows.find(|row| row["subject"].as_str().unwrap().contains("`stream`"));
        let row = row.unwrap_or_else(|| panic!("nothing of the broker: {}", out(&run)));
        assert!(row.to_string().contains(words), "{row}");
        assert_eq!(row["code"].as_str(), code_of, "{row}");
        assert!(row["advice"].is_string(), "{row}");
    };
    ask("no stream takes the subject orders", Some("PR-1302"));
    std::fs::write(shop.path("password"), "wrong").unwrap();
    ask("correct the credentials", Some("PR-1301"));
    server.kill();
    ask("NATS cannot be used", None);
    let alone = shop.run(&["doctor", "--store", "sqlite://shop.db"]);
    assert!(!out(&alone).contains("NATS"), "{}", out(&alone));
}

/// A client of the test's own, as the server's only user.
async fn client(server: &NatsServer, password: &str) -> jetstream::Context {
    let options = ConnectOptions::with_user_and_password("joe".into(), password.into());
    jetstream::new(options.connect(server.address()).await.unwrap())
}

/// F25, F36: a password that the server does not know any more makes events wait, the relay lives on and names the
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
    shop.configure(&configured(&server.address(), "user = \"joe\"\npassword = \"file:password\""));
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
    let waiting = "select count(*) from outbox_waiting where state = 'dead'";
    let dead: u32 = shop.connect().query_row(waiting, (), |row| row.get(0)).unwrap();
    assert_eq!(dead, 0);
}
