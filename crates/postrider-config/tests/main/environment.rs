//! Variables over the file, and in place of it.

use postrider_config::{Environment, Loader, Needs, Origin};

use crate::{EXAMPLE, load, load_with, refused};

/// Every key of the example can be set by a variable, and then says so.
#[test]
fn every_key_has_a_variable() {
    let mut count = 0;
    for value in load(EXAMPLE).values() {
        let Some(text) = &value.value else { continue };
        let name = value.key.replace(['.', '['], "__").replace([']', '"'], "");
        let variable = format!("POSTRIDER_{}", name.replace('-', "_").to_uppercase());
        // Addresses are not listed whole; another one will do. A sidecar's is one of http alone.
        let other = match value.key.starts_with("consume.") {
            true => "http://other.example/",
            false => "https://other.example/",
        };
        let text = if text.contains("***") { other } else { text.trim_matches('"') };
        let loaded = load_with(EXAMPLE, &[(&variable, text)])
            .unwrap_or_else(|problems| panic!("{variable}: {}", problems[0]));
        let values = loaded.values();
        let now = values.iter().find(|now| now.key == value.key).unwrap();
        assert_eq!(now.origin, Origin::Variable(variable), "{}", value.key);
        count += 1;
    }
    assert!(count > 60, "only {count} keys were tried");
}

#[test]
fn a_configuration_needs_no_file() {
    let environment: Environment = [
        ("POSTRIDER_STORE", "sqlite://shop.db"),
        ("POSTRIDER_RELAY__WINDOW", "{ rows = 16, bytes = \"1MiB\" }"),
        ("POSTRIDER_DESTINATIONS__PARTNERS__KIND", "webhook"),
        ("POSTRIDER_DESTINATIONS__PARTNERS__ROUTES__0__TOPIC", "acme"),
        ("POSTRIDER_DESTINATIONS__PARTNERS__ENDPOINTS__ACME__URL", "https://hooks.example/in"),
        ("POSTRIDER_DESTINATIONS__PARTNERS__ENDPOINTS__ACME__KEYS", "env:NEW, file:/run/old"),
        ("POSTRIDER_DESTINATIONS__PARTNERS__ENDPOINTS__ACME__HEADERS__X_API_KEY", "env:API"),
        ("POSTRIDER_DESTINATIONS__QUEUE__KIND", "local"),
        ("POSTRIDER_DESTINATIONS__QUEUE__URL", "local://queue.db"),
        ("POSTRIDER_DESTINATIONS__QUEUE__ROUTES", "[{ topic = \"x\", format = \"structured\" }]"),
        ("PATH", "/bin"),
    ]
    .into_iter()
    .collect();
    let loaded = Loader::new(&environment).needs(Needs::RELAY).load().unwrap();
    let config = loaded.config;
    assert_eq!(config.relay.window.rows, 16);
    let [partners, queue] = config.destinations.values().collect::<Vec<_>>()[..] else { panic!() };
    let endpoint = &partners.endpoints["acme"];
    assert_eq!(endpoint.keys.len(), 2);
    assert_eq!(endpoint.headers["x-api-key"].to_string(), "env:API");
    assert_eq!(queue.routes[0].topic.as_ref().unwrap().to_string(), "x");
}

#[test]
fn names_are_matched_without_case_and_signs() {
    let file = "[destinations.\"Part-ners.eu\"]\nkind = \"stdout\"\n";
    let variable = "POSTRIDER_DESTINATIONS__PART_NERS_EU__KIND";
    let loaded = load_with(file, &[(variable, "file"), ("POSTRIDER_relay__LEASE", "20s")]);
    let said = crate::said(&loaded.unwrap_err());
    // The kind was set on the destination of the file, which now lacks its url.
    assert!(said.contains("POSTRIDER_DESTINATIONS__PART_NERS_EU__KIND: a destination"), "{said}");
    assert!(!said.contains("lease"), "{said}");
}

#[test]
fn what_others_set_is_passed_over() {
    let theirs = [
        ("POSTRIDER_CONFIG", "postrider.toml"),
        ("POSTRIDER_SEED", "1"),
        ("POSTRIDER_SERVICE_HOST", "10.0.0.1"),
        ("POSTRIDER_PORT_9464_TCP_PROTO", "tcp"),
        ("POSTRIDERX", "1"),
    ];
    assert!(load_with("", &theirs).is_ok());
    let environment: Environment = [("POSTRIDER_USER", "me")].into_iter().collect();
    assert!(Loader::new(&environment).load().is_err());
    assert!(Loader::new(&environment).reserve(&["POSTRIDER_USER"]).load().is_ok());
}

#[test]
fn a_variable_wins_and_the_contradiction_names_it() {
    let said = refused("[relay]\nheartbeat = \"4s\"\n", &[("POSTRIDER_RELAY__LEASE", "9s")]);
    assert!(said.starts_with("POSTRIDER_RELAY__LEASE: heartbeat 4s"), "{said}");
    assert!(said.contains("relay.heartbeat = \"4s\" stands in postrider.toml:2"), "{said}");
}

/// R107: a variable of ours may hold the secret itself; then it is the reference.
#[test]
fn a_secret_in_a_variable_stays_there() {
    let variables = [
        ("POSTRIDER_STORE", "postgres://shop:hunter2@db/orders"),
        ("POSTRIDER_OBSERVE__TOKEN", "hunter2"),
    ];
    let loaded = load_with("", &variables).unwrap();
    let shown = format!("{:?} {:?}", loaded.values(), loaded.config);
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(
        shown.contains("env:POSTRIDER_STORE") && shown.contains("env:POSTRIDER_OBSERVE__TOKEN")
    );
    let environment: Environment = variables.into_iter().collect();
    let (secrets, _) = loaded.resolve(&environment).unwrap();
    let store = loaded.config.store.as_ref().unwrap();
    assert_eq!(secrets.address(store), Some("postgres://shop:hunter2@db/orders"));
}
