//! `relay --config`: several destinations, reloads, definitions, and the listener.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::running::{Running, until};
use crate::{Shop, code, err, events, orders, out, said};

pub(crate) const TWO: &str = r#"
store = "sqlite://shop.db"

[destinations.orders]
kind = "file"
url = "file://orders.ndjson"
[[destinations.orders.routes]]
match = { event_type = "order.*" }
topic = "orders"

[destinations.rest]
kind = "local"
url = "local://queue.db"
[[destinations.rest.routes]]
match = { event_type = "payment.*" }
topic = "{event_type}"
"#;

impl Shop {
    pub(crate) fn configure(&self, text: &str) {
        std::fs::write(self.path("postrider.toml"), text).unwrap();
    }

    pub(crate) fn configured(&self, args: &[&str]) -> Running {
        let all = [&["relay", "--config", "postrider.toml"], args].concat();
        Running::start(self.command(&all))
    }

    pub(crate) fn lines_of(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(file)).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        orders(&events(whole)).into_iter().map(str::to_owned).collect()
    }

    fn pay(&self) {
        let insert = "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
                      values ('payment', '1', 'payment.made', 'null')";
        self.connect().execute(insert, ()).unwrap();
    }
}

/// Each destination gets what its routes take, and what no route takes is a dead letter.
#[test]
fn one_configuration_serves_several_destinations() {
    let shop = Shop::new();
    shop.configure(TWO);
    shop.place(1..4);
    shop.pay();
    let insert = "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
                  values ('mail', '1', 'mail.sent', 'null')";
    shop.connect().execute(insert, ()).unwrap();
    let run = shop.run(&["relay", "--config", "postrider.toml", "--once"]);
    assert_eq!(code(&run), 3, "one waits: {}", err(&run));
    assert_eq!(shop.lines_of("orders.ndjson"), ["1", "2", "3"]);
    let dead = shop.run(&["dead", "ls", "--config", "postrider.toml", "--output", "ndjson"]);
    let dead: serde_json::Value = serde_json::from_str(out(&dead).trim()).unwrap();
    assert_eq!((&dead["destination"], &dead["reason"]), (&"unrouted".into(), &"no_route".into()));
}

/// The store's definition wins: a relay with another does not start, and says what does.
#[test]
fn a_changed_definition_is_applied_before_a_relay_starts() {
    let shop = Shop::new();
    shop.configure(TWO);
    assert_eq!(code(&shop.run(&["relay", "--config", "postrider.toml", "--once"])), 0);
    shop.configure(&TWO.replace("topic = \"orders\"", "topic = \"other\""));
    let refused = shop.run(&["relay", "--config", "postrider.toml", "--once"]);
    assert_eq!(code(&refused), 78);
    let text = said(&refused);
    assert!(text.contains("postrider destinations apply --config postrider.toml"), "{text}");

    let apply = ["destinations", "apply", "--config", "postrider.toml", "--output", "json"];
    let shown = shop.run(&[&apply[..], &["--dry-run"]].concat());
    let shown: serde_json::Value = serde_json::from_str(&out(&shown)).unwrap();
    let difference = &shown["rows"][0];
    assert_eq!(difference["path"], "routes[0].topic");
    assert_eq!((&difference["old"], &difference["new"]), (&"orders".into(), &"other".into()));
    // Without a person to ask, nothing is changed.
    assert_eq!(code(&shop.run(&apply)), 2);
    assert_eq!(code(&shop.run(&["relay", "--config", "postrider.toml", "--once"])), 78);

    let applied = shop.run(&[&apply[..], &["--yes", "--reason", "a new name"]].concat());
    assert_eq!(code(&applied), 0, "{}", err(&applied));
    shop.place(1..2);
    assert_eq!(code(&shop.run(&["relay", "--config", "postrider.toml", "--once"])), 0);
    let audit = out(&shop.run(&["audit", "--config", "postrider.toml", "--output", "ndjson"]));
    assert!(audit.contains("a new name"), "{audit}");
}

/// A destination is added by a command, and where it would begin is said before.
#[test]
fn an_added_destination_begins_where_the_refusal_said() {
    let shop = Shop::new();
    let one = TWO.split("[destinations.rest]").next().unwrap();
    let more = "[destinations.more]\nkind = \"file\"\nurl = \"file://more.ndjson\"\n";
    shop.configure(one);
    shop.place(1..3);
    let relay = ["relay", "--config", "postrider.toml", "--once"];
    assert_eq!(code(&shop.run(&relay)), 0);
    shop.configure(&format!("{one}{more}"));
    let refused = shop.run(&relay);
    assert_eq!(code(&refused), 78);
    let text = said(&refused);
    assert!(text.contains("apply --config postrider.toml"), "{text}");
    assert!(text.contains("write start = \"beginning\" in [destinations.more] first"), "{text}");
    let apply = ["destinations", "apply", "--config", "postrider.toml", "--yes"];
    assert_eq!(code(&shop.run(&apply)), 0);
    shop.place(3..4);
    assert_eq!(code(&shop.run(&relay)), 0);
    assert_eq!(shop.lines_of("orders.ndjson"), ["1", "2", "3"]);
    assert_eq!(shop.lines_of("more.ndjson"), ["3"]);
    // One that a configuration names is started by it, never by an address alone.
    shop.place(4..5);
    let status = out(&shop.run(&["status", "--config", "postrider.toml", "--rate", "0"]));
    let words = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("postrider relay --config postrider.toml"), "{status}");
    assert!(!words.contains("--to"), "{status}");
}

/// INV-8: a destination that the store has from an earlier run, and the configuration does not name, is told of by whoever
/// compares them, with the command that removes it.
#[test]
fn a_destination_that_the_configuration_does_not_name_is_told_of() {
    let shop = Shop::new();
    shop.place(1..3);
    assert_eq!(code(&shop.relay(&["--to", "file://first.ndjson", "--once"])), 0);
    shop.configure(TWO);
    let apply = ["destinations", "apply", "--config", "postrider.toml", "--yes"];
    for also in ["applied", "the store has all destinations of the configuration as they are there"]
    {
        let run = shop.run(&apply);
        let text = said(&run);
        assert!(code(&run) == 0 && text.contains(also), "{text}");
        assert!(text.contains("the store also has `default`"), "{text}");
        assert!(text.contains("apply --config postrider.toml --prune"), "{text}");
    }
    let run = shop.run(&["relay", "--config", "postrider.toml", "--once", "--timeout", "500ms"]);
    assert_eq!(code(&run), 3, "{}", err(&run));
    let why = "destination default is in the store, and this relay was started without it";
    assert!(said(&run).contains(why), "{}", err(&run));
    let pruned = shop.run(&[&apply[..], &["--prune"]].concat());
    assert!(code(&pruned) == 0 && !said(&pruned).contains("also has"), "{}", err(&pruned));
    assert_eq!(code(&shop.run(&["relay", "--config", "postrider.toml", "--once"])), 0);
    let same = said(&shop.run(&apply));
    assert!(same.contains("the store's destinations are those of the configuration"), "{same}");
    // An address alone stands for none of these, whatever it is called.
    let alone = shop.relay(&["--to", "file://first.ndjson", "--once"]);
    assert!(
        code(&alone) == 78 && said(&alone).contains("start this relay with --config"),
        "{}",
        err(&alone)
    );
}

/// R107, F31: secrets stand in the environment or in files, and nowhere else.
#[test]
fn a_secret_in_the_file_is_refused_and_not_repeated() {
    let shop = Shop::new();
    let partners = r#"
store = "sqlite://shop.db"
[destinations.partners]
kind = "webhook"
[[destinations.partners.routes]]
topic = "acme"
[destinations.partners.endpoints.acme]
url = "https://hooks.acme.example/in"
keys = ["KEY"]
"#;
    shop.configure(&partners.replace("KEY", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"));
    let refused = shop.run(&["config", "check", "--config", "postrider.toml"]);
    assert_eq!(code(&refused), 78);
    assert!(err(&refused).contains("postrider.toml:9:"), "{}", err(&refused));
    assert!(!err(&refused).contains("C2FVsBQI"), "{}", err(&refused));
    shop.configure(&partners.replace("KEY", "env:NOT_THERE"));
    let missing = shop.run(&["relay", "--config", "postrider.toml", "--once"]);
    assert_eq!(code(&missing), 78, "before anything is connected to");
    assert!(said(&missing).contains("NOT_THERE"), "{}", err(&missing));
}

/// One file is enough, from the first command on.
#[test]
fn the_tables_are_made_where_the_configuration_says() {
    let shop = Shop::bare();
    shop.configure(TWO);
    let init = shop.run(&["init", "--config", "postrider.toml"]);
    assert_eq!(code(&init), 0, "{}", err(&init));
    assert!(shop.path("shop.db").exists());
    assert_eq!(code(&shop.run(&["init"])), 2, "nothing names a database");
}

/// Every key has its variable.
#[test]
fn the_environment_overrides_the_file() {
    let shop = Shop::new();
    shop.configure(TWO);
    let show = |variables: &[(&str, &str)]| {
        let args = ["config", "show", "--config", "postrider.toml", "--output", "ndjson"];
        let mut command = shop.command(&args);
        command.envs(variables.iter().copied());
        command.output().unwrap()
    };
    let shown = out(&show(&[("POSTRIDER_DESTINATIONS__ORDERS__URL", "file://other.ndjson")]));
    let line = shown.lines().find(|line| line.contains("destinations.orders.url")).unwrap();
    assert!(line.contains("other.ndjson") && line.contains("POSTRIDER_DESTINATIONS__"), "{line}");
    let refused = show(&[("POSTRIDER_RELAY__LEESE", "20s")]);
    assert_eq!(code(&refused), 78);
    assert!(said(&refused).contains("POSTRIDER_RELAY__LEASE?"), "{}", err(&refused));
}

pub(crate) fn get(address: &str, path: &str, token: Option<&str>) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let bearer = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    let bearer = bearer.unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{bearer}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Metrics and health, for those with the token; whether the process lives, for everybody.
#[test]
fn the_listener_tells_how_it_goes() {
    let shop = Shop::new();
    shop.configure(&format!("{TWO}\n[observe]\ntoken = \"env:TOKEN\"\n"));
    shop.place(1..4);
    let args = ["relay", "--config", "postrider.toml", "--listen", "127.0.0.1:0"];
    let mut command = shop.command(&args);
    command.env("TOKEN", "hush");
    let mut relay = Running::start(command);
    let line = relay.wait_for("metrics and health on http://");
    let address = line.rsplit("http://").next().unwrap().trim();
    until("the orders are delivered", || shop.lines_of("orders.ndjson").len() == 3);
    assert!(get(address, "/healthz", None).starts_with("HTTP/1.1 200"));
    assert!(get(address, "/metrics", None).starts_with("HTTP/1.1 401"));
    assert!(get(address, "/metrics", Some("wrong")).starts_with("HTTP/1.1 401"));
    until("it is ready", || get(address, "/readyz", Some("hush")).starts_with("HTTP/1.1 200"));
    let metrics = get(address, "/metrics", Some("hush"));
    assert!(metrics.contains("application/openmetrics-text"), "{metrics}");
    for line in [
        "postrider_published_events_total{destination=\"orders\"} 3",
        "postrider_enqueued_events_total{} 3",
        "postrider_delivery_seconds_count{destination=\"orders\"} 3",
        "postrider_invariant_violations_total{invariant=\"INV-3\"} 0",
        "messaging_client_sent_messages_total{messaging_operation_name=\"send\",messaging_system=\"postrider\",\
         messaging_destination_name=\"orders\"} 3",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(relay.stop().success());
}

/// A listener that others can reach wants a token, before anything is started.
#[test]
fn an_open_listener_without_a_token_is_refused() {
    let shop = Shop::new();
    shop.configure(TWO);
    let args = ["relay", "--config", "postrider.toml", "--listen", "0.0.0.0:0", "--once"];
    let refused = shop.run(&args);
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(said(&refused).contains("token"), "{}", err(&refused));
}

/// R100: each line is an object with the event, its key, where it went, and which attempt it was.
#[test]
fn logs_are_json_on_request() {
    let shop = Shop::new();
    shop.configure(TWO);
    shop.place(1..2);
    let run = shop.run(&[
        "relay",
        "--config",
        "postrider.toml",
        "--once",
        "--log",
        "debug",
        "--log-format",
        "json",
    ]);
    let lines: Vec<serde_json::Value> = err(&run)
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let delivered = lines.iter().find(|line| line["message"] == "delivered");
    let delivered = delivered.unwrap_or_else(|| panic!("no delivery in {lines:#?}"));
    assert_eq!(delivered["destination"], "orders");
    for field in
        ["timestamp", "level", "message", "event_id", "key", "endpoint", "route", "attempt"]
    {
        assert!(!delivered[field].is_null(), "{field} is missing in {delivered:#}");
    }
}

const CONSUMERS: &str = r#"
[consume.billing]
from = "local://queue.db/order.*"
inbox = "sqlite://shop.db"
endpoint = "http://127.0.0.1:9/events"

[consume.shipping]
from = "local://queue.db/order.*"
inbox = "sqlite://shop.db"
endpoint = "http://127.0.0.1:9/events"
"#;

/// A sidecar is chosen by its handler's name, and what is missing is said before anything starts.
#[test]
fn a_sidecar_runs_out_of_the_configuration() {
    let shop = Shop::new();
    shop.configure(CONSUMERS);
    let consume = |args: &[&str]| shop.command(&[&["consume"], args].concat()).output().unwrap();
    let which = consume(&["--config", "postrider.toml"]);
    assert_eq!(code(&which), 78);
    assert!(said(&which).contains("--handler billing or shipping"), "{}", err(&which));
    let wrong = consume(&["--config", "postrider.toml", "--handler", "biling"]);
    assert!(said(&wrong).contains("did you mean `billing`?"), "{}", err(&wrong));
    let nothing = consume(&["--group", "billing"]);
    assert_eq!(code(&nothing), 78);
    assert!(said(&nothing).contains("--from is missing"), "{}", err(&nothing));

    let args = ["consume", "--config", "postrider.toml", "--handler", "shipping"];
    let mut running = Running::start(shop.command(&args));
    let line = running.wait_for("receiving");
    assert!(line.contains("group shipping") && line.contains("handler shipping"), "{line}");
    assert!(running.stop().success());
}

/// R104: above the watermark nothing is enqueued, and the message says so with its code.
#[test]
fn a_watermark_refuses_what_comes_too_fast() {
    let shop = Shop::new();
    shop.configure(&format!("{TWO}\n[backpressure]\nrows = 2\n"));
    assert_eq!(code(&shop.run(&["relay", "--config", "postrider.toml", "--once"])), 0);
    let enqueue = || {
        shop.run(&[
            "enqueue",
            "--config",
            "postrider.toml",
            "--aggregate-type",
            "order",
            "--aggregate-id",
            "1",
            "--type",
            "order.placed",
            "--payload",
            "1",
        ])
    };
    for _ in 0..3 {
        assert_eq!(code(&enqueue()), 0);
    }
    let refused = enqueue();
    assert_eq!(code(&refused), 1, "{}", err(&refused));
    assert!(said(&refused).contains("PR-1010"), "{}", err(&refused));
    assert_eq!(code(&shop.run(&["relay", "--config", "postrider.toml", "--once"])), 0);
    assert_eq!(code(&enqueue()), 0, "there is room again");
}

/// F31: a broker's field outside of its limits is refused before anything connects, with file, line, and what to write;
/// and what the limits are, a program can ask.
#[test]
fn what_brokers_take_is_told_and_kept_to() {
    let shop = Shop::new();
    let listed = shop.run(&["config", "brokers"]);
    let kinds: serde_json::Value = serde_json::from_str(&out(&listed)).unwrap();
    let kafka = kinds.as_array().unwrap().iter().find(|kind| kind["kind"] == "kafka").unwrap();
    let fields = kafka["destination"]["tables"][0]["fields"].as_array().unwrap();
    let linger = fields.iter().find(|field| field["name"] == "linger").unwrap();
    assert_eq!(linger["max"], "500ms");
    let text = "[destinations.a]\nkind = \"kafka\"\nurl = \"kafka://127.0.0.1:9\"\n\
                [destinations.a.kafka]\nlinger = ";
    for (value, status) in [("500ms", 0), ("501ms", 78)] {
        shop.configure(&format!("{text}\"{value}\"\n"));
        let run = shop.run(&["config", "check", "--config", "postrider.toml"]);
        assert_eq!(code(&run), status, "{}", err(&run));
        if status == 78 {
            assert!(said(&run).contains("postrider.toml:5:10"), "{}", err(&run));
            assert!(said(&run).contains("write linger = \"500ms\""), "{}", err(&run));
        }
    }
}
