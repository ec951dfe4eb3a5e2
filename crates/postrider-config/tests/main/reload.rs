//! What changed between two configurations, and what it takes to have effect.

use postrider_config::{Class, Config};

use crate::{EXAMPLE, load, load_with};

#[test]
fn changes_have_classes() {
    let old = load(EXAMPLE).config;
    for (variable, value, key, class) in [
        ("STORE", "sqlite://b.db", "store", Class::Restart),
        ("RELAY__WINDOW__ROWS", "16", "relay.window.rows", Class::Restart),
        ("OBSERVE__LISTEN", "127.0.0.1:1", "observe.listen", Class::Restart),
        ("OBSERVE__LOG", "debug", "observe.log", Class::Live),
        ("OBSERVE__TOKEN", "env:OTHER", "observe.token", Class::Live),
        ("RETENTION__OUTBOX", "8d", "retention.outbox", Class::Restart),
        ("DESTINATIONS__QUEUE__URL", "local://b.db", "destinations.queue.url", Class::Live),
    ] {
        let new = load_with(EXAMPLE, &[(&format!("POSTRIDER_{variable}"), value)]).unwrap().config;
        let changes = Config::diff(&old, &new);
        let [change] = changes.as_slice() else { panic!("{variable}: {changes:?}") };
        assert_eq!((change.key.as_str(), change.class), (key, class));
        assert_ne!(change.old, change.new);
    }
    assert_eq!(Config::diff(&old, &old), []);
}

#[test]
fn a_hidden_part_of_an_address_is_a_change() {
    let [old, new] = ["a", "b"].map(|path| {
        let url = format!("https://hooks.acme.example/{path}");
        load(&EXAMPLE.replace("https://hooks.acme.example/in", &url)).config
    });
    let changes = Config::diff(&old, &new);
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].old, changes[0].new);
}

#[test]
fn another_destination_is_a_definition() {
    let old = load("[destinations.a]\nkind = \"stdout\"\n").config;
    let new = load("[destinations.b]\nkind = \"stdout\"\n").config;
    let changes = Config::diff(&old, &new);
    let kind = changes.iter().find(|change| change.key == "destinations.b.kind").unwrap();
    assert_eq!((&kind.old, kind.new.as_deref()), (&None, Some("\"stdout\"")));
    assert_eq!(
        kind.to_string(),
        "destinations.b.kind: (absent) -> \"stdout\" [definition]: not taken; run `postrider \
         destinations apply --config FILE`"
    );
    assert!(
        changes.iter().any(|change| change.key == "destinations.a.kind" && change.new.is_none())
    );
}
