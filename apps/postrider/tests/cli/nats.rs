//! Destinations on NATS, with a real server.

use postrider_testkit::nats::NatsServer;

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
