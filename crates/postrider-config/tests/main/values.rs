//! What is in effect, and who wrote it.

use postrider_config::{EffectiveValue, Origin};

use crate::{EXAMPLE, load, load_with};

fn find<'a>(values: &'a [EffectiveValue], key: &str) -> &'a EffectiveValue {
    values.iter().find(|value| value.key == key).unwrap_or_else(|| panic!("no {key}"))
}

#[test]
fn each_value_says_where_it_comes_from() {
    let text = "[relay]\nheartbeat = \"2s\"\n[relay.window]\nrows = 5\n";
    let values = load_with(text, &[("POSTRIDER_RELAY__LEASE", "20s")]).unwrap().values();
    let lease = find(&values, "relay.lease");
    assert_eq!(lease.value.as_deref(), Some("\"20s\""));
    assert_eq!(lease.origin, Origin::Variable("POSTRIDER_RELAY__LEASE".into()));
    let heartbeat = find(&values, "relay.heartbeat");
    let (path, line, column) = ("postrider.toml".to_owned(), 2, 13);
    assert_eq!(heartbeat.origin, Origin::File { path, line, column });
    assert_eq!(heartbeat.origin.to_string(), "postrider.toml:2");
    let rows = find(&values, "relay.window.rows");
    assert_eq!(
        (rows.value.as_deref(), rows.origin.to_string()),
        (Some("5"), "postrider.toml:4".into())
    );
    assert_eq!(find(&values, "relay.drain").origin, Origin::Default);
    let store = find(&values, "store");
    assert_eq!((store.value.as_deref(), &store.origin), (None, &Origin::Default));
}

/// R107: secrets are listed as references, and addresses without what may be one.
#[test]
fn secrets_are_listed_as_references() {
    let values = load(EXAMPLE).values();
    let shown = |key: &str| find(&values, key).value.clone().unwrap();
    let acme = "destinations.partners.endpoints.acme";
    assert_eq!(
        shown(&format!("{acme}.keys")),
        "[\"env:ACME_KEY\", \"file:/run/secrets/acme_old\"]"
    );
    assert_eq!(shown(&format!("{acme}.headers.x-api-key")), "\"env:ACME_API_KEY\"");
    assert_eq!(shown(&format!("{acme}.url")), "\"https://hooks.acme.example/***\"");
    assert_eq!(shown("destinations.queue.url"), "\"local:///var/lib/queue.db\"");
}

/// What is listed can be written as a file again, and is the same configuration.
#[test]
fn listed_values_are_a_configuration() {
    let first = load("[relay]\nlease = \"90s\"\n[destinations.\"a.b\"]\nkind = \"stdout\"\n");
    let lines: Vec<String> = first
        .values()
        .into_iter()
        .filter_map(|value| Some(format!("{} = {}\n", value.key, value.value?)))
        .collect();
    assert_eq!(load(&lines.concat()).config, first.config);
}
