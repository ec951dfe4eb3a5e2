//! A destination that is out: who is told, while another flows and when none does.

use crate::configured::get;
use crate::running::{Running, until};
use crate::{Shop, code, err, said};

/// Both take every order; nobody listens at the second.
const ONE_OUT: &str = r#"
store = "sqlite://shop.db"

[destinations.audit]
kind = "file"
url = "file://audit.ndjson"
[[destinations.audit.routes]]
match = { event_type = "order.*" }
topic = "audit"

[destinations.partner]
kind = "webhook"
[destinations.partner.endpoints.shop]
url = "http://127.0.0.1:1/orders"
[destinations.partner.webhook]
allow_private = true
[[destinations.partner.routes]]
match = { event_type = "order.*" }
topic = "shop"
"#;

fn started(shop: &Shop) -> (Running, String) {
    let args = ["relay", "--config", "postrider.toml", "--listen", "127.0.0.1:0"];
    let mut relay = Running::start(shop.command(&args));
    let line = relay.wait_for("metrics and health on http://");
    let address = line.rsplit("http://").next().unwrap().trim().to_owned();
    (relay, address)
}

/// INV-8: a destination that is out is named while another flows; once nothing flows the relay is blocked by it.
#[test]
fn a_destination_that_is_out_is_named() {
    let shop = Shop::new();
    shop.configure(ONE_OUT);
    let (mut relay, address) = started(&shop);
    let mut order = 0;
    let standing = "postrider_destination_standing{destination=\"partner\"} 1";
    until("it stands while the other moves", || {
        order += 1;
        shop.place(order..order + 1);
        get(&address, "/metrics", None).contains(standing)
    });
    let mut named = String::new();
    until("it is named while the relay is ready", || {
        order += 1;
        shop.place(order..order + 1);
        named = get(&address, "/readyz", None);
        named.starts_with("HTTP/1.1 200") && named.contains("of partner: ")
    });
    assert!(named.contains("moving") && !named.contains("of audit: "), "{named}");
    until("the line names it", || {
        order += 1;
        shop.place(order..order + 1);
        relay.has_said("held up, while others move, by endpoint shop of partner")
    });
    until("it is blocked", || get(&address, "/readyz", None).starts_with("HTTP/1.1 503"));
    relay.wait_for("blocked by endpoint shop of partner");
    assert!(relay.stop().success());
}

/// The setting that is named is the one that gave the address.
#[test]
fn a_listener_whose_port_is_taken_names_its_setting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let shop = Shop::new();
    shop.configure(ONE_OUT);
    let refused = shop.run(&["relay", "--config", "postrider.toml", "--listen", &address]);
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(said(&refused).contains("`[observe] listen`"), "{}", err(&refused));
    let from = ["--from", "local://queue.db/orders", "--group", "billing"];
    let to = ["--inbox", "sqlite://shop.db", "--to", "http://127.0.0.1:1/events"];
    let refused = shop.run(&[&["consume"], &from[..], &to, &["--listen", &address]].concat());
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    let told = said(&refused);
    assert!(told.contains("`[consume.NAME] listen`") && !told.contains("Nothing was"), "{told}");
}
