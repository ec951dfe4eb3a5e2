//! When our own certificates end, as machines and people are told.

use postrider_testkit::authority::Authority;
use rustix::process::Signal;

use crate::broker::configured_away;
use crate::configured::get;
use crate::running::until;
use crate::{Shop, code, err, out};

/// 2030-12-31 and 2040-12-31, at midnight.
const ENDS: [(i32, &str); 2] = [(2030, "1924905600.0"), (2040, "2240524800.0")];

/// R099, R125: a relay shows when the certificate that it has read ends, until a reload reads another one; and `doctor`
/// looks at the file. No server is needed for either.
#[test]
fn the_end_of_a_certificate_is_shown() {
    let authority = Authority::new();
    let [(first, shown), (second, shown_again)] = ENDS;
    let (certificate, key) = authority.sign("relay", first);
    let shop = Shop::new();
    let more = format!(
        "certificate = \"{}\"\ncertificate_key = \"{}\"",
        certificate.display(),
        key.display()
    );
    shop.configure(&configured_away("nats", "nats://127.0.0.1:9", &more));
    let mut relay = shop.configured(&["--listen", "127.0.0.1:0"]);
    let line = relay.wait_for("metrics and health on http://");
    let address = line.rsplit("http://").next().unwrap().trim();
    let metric = |value: &str| {
        format!("postrider_certificate_end_timestamp_seconds{{destination=\"stream\"}} {value}")
    };
    let text = get(address, "/metrics", None);
    assert!(text.contains(&metric(shown)), "{text}");
    authority.sign("relay", second);
    let text = get(address, "/metrics", None);
    assert!(text.contains(&metric(shown)), "it has read no other one yet: {text}");
    relay.signal(Signal::HUP);
    until("the new one is read", || get(address, "/metrics", None).contains(&metric(shown_again)));
    authority.sign("relay", 2020);
    relay.signal(Signal::HUP);
    relay.wait_for("our certificate ends soon, or has ended");
    assert!(relay.stop().success());

    let run = shop.run(&["doctor", "--config", "postrider.toml", "--output", "ndjson"]);
    assert_eq!(code(&run), 6, "{}", err(&run));
    let rows = out(&run);
    let rows = rows.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap());
    let ours: Vec<_> = rows.filter(|row| row["code"] == "PR-1723").collect();
    let [row] = &ours[..] else { panic!("{ours:?}") };
    assert_eq!(
        (&row["level"], &row["subject"]),
        (&"critical".into(), &"destination `stream`, certificate".into(),)
    );
}
