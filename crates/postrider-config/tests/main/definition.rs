//! Definitions: what of a destination stands in the store, and what does not.

use postrider_config::{Class, Config};
use postrider_core::{DeadKeyPolicy, Destination, DestinationId, Event, EventId, Format, Start};

use crate::{EXAMPLE, load, load_with};

fn definition(config: &Config, name: &str) -> Destination {
    let id = DestinationId::new(name).unwrap();
    config.destinations[&id].definition(&id)
}

#[test]
fn a_definition_has_what_the_file_says() {
    let loaded = load(EXAMPLE);
    let partners = definition(&loaded.config, "partners");
    assert_eq!((partners.id.as_str(), partners.kind.as_str()), ("partners", "webhook"));
    assert_eq!(partners.limits.payload_bytes_max, 256 * 1024);
    let [first, second] = partners.routes.as_slice() else { panic!("{:?}", partners.routes) };
    assert_eq!(first.topic.to_string(), "{tenant}");
    assert_eq!((first.format, first.dead_key), (Format::Binary, DeadKeyPolicy::Park));
    assert_eq!((first.retry.attempts_max, first.retry.factor), (10, 2.0));
    assert!(second.drop && !first.drop);
    let mut event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
    assert_eq!(partners.route(&event), None);
    event.tenant = Some("acme".into());
    assert_eq!(partners.route(&event), Some(first));
    let queue = definition(&loaded.config, "queue");
    assert_eq!(queue.routes[0].topic.to_string(), "{event_type}");
}

#[test]
fn a_definition_has_no_address_and_no_secret() {
    let loaded = load(EXAMPLE);
    for name in ["partners", "queue"] {
        let text = definition(&loaded.config, name).to_definition().unwrap();
        for part in ["hooks.acme", "queue.db", "ACME", "x-api-key", "connections", "start"] {
            assert!(!text.contains(part), "{text}");
        }
    }
}

#[test]
fn starts_are_words_or_times() {
    let start = |text: &str| {
        let text = format!("[destinations.a]\nkind = \"stdout\"\nstart = {text}\n");
        load(&text).config.destinations[&DestinationId::new("a").unwrap()].start
    };
    assert_eq!((start("\"now\""), start("\"beginning\"")), (Start::Now, Start::Beginning));
    let time = Start::At("2026-11-21T10:00:00Z".parse().unwrap());
    assert_eq!(start("\"2026-11-21T11:00:00+01:00\""), time);
    assert_eq!(start("2026-11-21T10:00:00Z"), time);
}

/// For each key of a destination, the variable that changes it, and a value.
const CHANGES: [(&str, &str); 25] = [
    ("START", "beginning"),
    ("LIMITS__PAYLOAD", "100KiB"),
    ("LIMITS__HEADERS", "1KiB"),
    ("ROUTES__0__MATCH__EVENT_TYPE", "invoice.*"),
    ("ROUTES__0__MATCH__AGGREGATE_TYPE", "invoice"),
    ("ROUTES__0__MATCH__TENANT", "*"),
    ("ROUTES__0__TOPIC", "acme"),
    ("ROUTES__0__FORMAT", "structured"),
    ("ROUTES__0__DEAD_KEY", "skip"),
    ("ROUTES__0__RETRY__ATTEMPTS", "11"),
    ("ROUTES__0__RETRY__DELAY_MIN", "2s"),
    ("ROUTES__0__RETRY__DELAY_MAX", "11m"),
    ("ROUTES__0__RETRY__FACTOR", "3"),
    ("ROUTES__1__MATCH__EVENT_TYPE", "secret.*"),
    ("WEBHOOK__TIMEOUT", "4s"),
    ("WEBHOOK__CONNECTIONS", "32"),
    ("WEBHOOK__CONNECTIONS_PER_ENDPOINT", "4"),
    ("WEBHOOK__ALLOW_PRIVATE", "true"),
    ("WEBHOOK__ALLOW_HTTP", "true"),
    ("WEBHOOK__ALLOW_URLS", "true"),
    ("WEBHOOK__RESPONSE_BYTES", "2KiB"),
    ("ENDPOINTS__ACME__URL", "https://other.example/in"),
    ("ENDPOINTS__ACME__KEYS", "env:OTHER"),
    ("ENDPOINTS__ACME__HEADERS__X_API_KEY", "env:OTHER"),
    ("ENDPOINTS__NEW__URL", "https://new.example/in"),
];

/// Exactly the keys of the class `definition` change the definition.
#[test]
fn the_class_of_a_key_says_whether_the_definition_changes() {
    let old = load(EXAMPLE).config;
    let mut changed_definitions = 0;
    for (name, value) in CHANGES {
        let variable = format!("POSTRIDER_DESTINATIONS__PARTNERS__{name}");
        let new = load_with(EXAMPLE, &[(&variable, value)]).unwrap().config;
        let changes = Config::diff(&old, &new);
        assert!(!changes.is_empty(), "{name} changes nothing");
        let in_class = changes.iter().any(|change| change.class == Class::Definition);
        let in_fact = definition(&old, "partners") != definition(&new, "partners");
        assert_eq!(in_class, in_fact, "{name}: {changes:?}");
        changed_definitions += usize::from(in_fact);
    }
    assert_eq!(changed_definitions, 13);
}
