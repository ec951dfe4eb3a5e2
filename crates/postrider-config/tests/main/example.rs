//! The example and the page about it.

use std::collections::BTreeSet;
use std::path::Path;

use postrider_config::{Config, Environment, Loader, Needs, Origin};

use crate::{EXAMPLE, load, said};

#[test]
fn the_example_is_right_and_says_everything() {
    let environment = Environment::default();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/postrider.toml");
    let loaded = Loader::new(&environment).file(&path).needs(Needs::RELAY).load();
    let loaded = loaded.unwrap_or_else(|problems| panic!("{}", said(&problems)));
    assert_eq!(loaded.warnings, []);
    let names = |key: &str| {
        let inner =
            key.replace("partners", "NAME").replace("queue", "NAME").replace("stream", "NAME");
        let inner = ["topics", "cloud", "fanout", "bus", "parcels"]
            .iter()
            .fold(inner, |inner, name| inner.replace(name, "NAME"));
        inner
            .replace("billing", "NAME")
            .replace("mail", "NAME")
            .replace("stock", "NAME")
            .replace("[0]", "")
            .replace("[1]", "")
    };
    let values = loaded.values();
    let written: BTreeSet<String> = values
        .iter()
        .filter(|value| value.origin != Origin::Default)
        .map(|value| names(&value.key))
        .collect();
    let missing: BTreeSet<String> =
        values.iter().map(|value| names(&value.key)).filter(|key| !written.contains(key)).collect();
    // The example is about an outbox in SQLite: no table of one's own, and nothing of PostgreSQL or DynamoDB. Who we are is
    // said in one way.
    let others =
        ["nats.token", "nats.nkey", "nats.creds", ".access_key", ".secret_key", ".session_token"];
    let elsewhere = |key: &str| {
        key.starts_with("own_table.")
            || key.starts_with("postgres.")
            || key.starts_with("dynamodb.")
            || key == "retention.results"
            || others.iter().any(|it| key.ends_with(it))
    };
    let missing: Vec<&String> = missing.iter().filter(|key| !elsewhere(key)).collect();
    assert_eq!(missing, [] as [&String; 0]);
}

/// So does the one for DynamoDB, of what is about it. One of two keys that exclude each other stands in a comment.
#[test]
fn the_example_of_dynamodb_says_everything_of_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/dynamodb.toml");
    let environment = Environment::default();
    let loaded = Loader::new(&environment).file(&path).needs(Needs::RELAY).load();
    let loaded = loaded.unwrap_or_else(|problems| panic!("{}", said(&problems)));
    assert_eq!(loaded.warnings, []);
    let values = loaded.values().into_iter().filter(|value| value.key.starts_with("dynamodb."));
    let silent = values.filter(|value| value.origin == Origin::Default).map(|value| value.key);
    assert_eq!(silent.collect::<Vec<_>>(), ["dynamodb.derived.event_type_from"]);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("# event_type_from = "));
    let (own, plain) = (loaded.config.dynamodb, Config::default().dynamodb);
    assert_eq!(
        (own.stream, own.backstop, own.mark_first),
        (plain.stream, plain.backstop, plain.mark_first)
    );
}

/// The lines of the example that repeat defaults repeat the right ones.
#[test]
fn the_example_repeats_defaults() {
    let example = load(EXAMPLE).config;
    let plain = load("[destinations.partners]\nkind = \"stdout\"\n").config;
    assert_eq!(example.relay, plain.relay);
    assert_eq!(example.reconcile, plain.reconcile);
    assert_eq!(example.retention.inbox, plain.retention.inbox);
    let (example, plain) = (
        example.destinations.values().next().unwrap(),
        plain.destinations.values().next().unwrap(),
    );
    assert_eq!(example.webhook, plain.webhook);
    let bare = load("[destinations.a]\nkind = \"stdout\"\nroutes = [{ topic = \"x\" }]\n").config;
    let bare = &bare.destinations.values().next().unwrap().routes[0];
    assert_eq!(example.routes[0].retry, bare.retry);
}

/// Every piece of TOML on the page is a configuration.
#[test]
fn the_page_shows_configurations() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let pieces: Vec<&str> = page.split("```toml\n").skip(1).collect();
    assert!(pieces.len() >= 5, "{}", pieces.len());
    for piece in pieces {
        let text = piece.split("```").next().unwrap();
        let loaded = Loader::new(&Environment::default()).text("page", text).load();
        loaded.unwrap_or_else(|problems| panic!("{text}\n{}", said(&problems)));
    }
}

/// What the page quotes is what the program says.
#[test]
fn the_page_quotes_the_program() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let text = "store = \"sqlite:///var/lib/shop.db\"\n\n[relay]\nlease = \"8s\"\npoll_max = 500\n\
                [destinations.partners]\nkind = \"stdout\"\ntopic = \"{tenant}\"\n";
    let problems = Loader::new(&Environment::default()).text("postrider.toml", text).load();
    let said = said(&problems.unwrap_err());
    for block in said.split("\n\n") {
        assert!(page.contains(block.trim_end()), "the page does not show:\n{block}");
    }
}

#[test]
fn the_reference_has_every_key() {
    let page = postrider_config::reference();
    for value in load(EXAMPLE).values() {
        let name = value.key.rsplit('.').next().unwrap();
        let maps = ["headers", "add_headers"].map(|map| (map, format!(".{map}.")));
        let map = maps.iter().find(|(_, infix)| value.key.contains(&**infix));
        let name = map.map_or(name, |(map, _)| map);
        assert!(page.contains(&format!("| `{name}` |")), "{}", value.key);
    }
    assert!(page.contains("| `lease` | duration | `\"15s\"` | 500ms to 10m | restart |"), "{page}");
    for heading in ["`[relay.window]`", "`[[destinations.NAME.routes]]`", "`[consume.NAME]`"] {
        assert!(page.contains(&format!("### {heading}\n")), "{heading}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::default();
    let refuse = |path: &Path| said(&Config::load(Some(path), &environment).unwrap_err());
    let path = folder.path().join("postrider.toml");
    assert!(refuse(&path).contains("postrider.toml: the configuration cannot be read"));
    assert!(refuse(folder.path()).contains("cannot be read"));
    std::fs::write(&path, vec![b'#'; 1024 * 1024 + 1]).unwrap();
    assert!(refuse(&path).contains("more than 1048576 bytes"));
    std::fs::write(&path, b"# a\n\xff\n").unwrap();
    assert!(refuse(&path).contains("line 2 is not UTF-8"));
    std::fs::write(&path, b"\xef\xbb\xbf[relay]\r\nlease = \"20s\"\r\n").unwrap();
    let loaded = Config::load(Some(&path), &environment).unwrap();
    assert_eq!(loaded.config.relay.lease.as_secs(), 20);
    assert!(Config::load(None, &environment).is_ok());
}

/// Warnings do not refuse.
#[test]
fn an_empty_tenant_is_warned_of() {
    let text = "[destinations.a]\nkind = \"stdout\"\nroutes = [{ topic = \"{tenant}\" }]\n";
    let said = said(&load(text).warnings);
    assert!(said.contains("postrider.toml:3:21: events without a tenant"), "{said}");
}
