//! Events of business items, and marks that come first, as a configuration asks for them.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::EventId;
use postrider_dynamodb::{Connection, Item, Outbox};
use serde_json::{Value, json};

use super::{Tables, server};
use crate::{code, err, events, out, said};

/// The sort key of this shop's orders.
const SK: &str = "ORDER";

/// A mapping by which the order itself says what happened to it.
const BY_ATTRIBUTES: &str = "[dynamodb.derived]\naggregate_type = \"order\"\naggregate_id_from = \"number\"\n\
                             event_type_from = \"status\"\npayload_from = \"body\"\n";

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// Asks the service something.
fn ask<T>(url: &str, question: impl AsyncFnOnce(Connection) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connection = Connection::new(url.parse().unwrap()).unwrap();
    runtime.block_on(question(connection))
}

impl Tables {
    /// Writes an order with its stamp; the id of its event.
    fn write_order(&self, number: u64, version: u64, status: &str) -> EventId {
        ask(&self.url(), async |connection| {
            let pk = format!("order/{number}");
            let stamp = Outbox::open(&connection).await.unwrap().stamp(&pk, SK, version).unwrap();
            let mut item = Item::from([
                ("pk".to_owned(), text(&pk)),
                ("sk".to_owned(), text(SK)),
                ("number".to_owned(), AttributeValue::N(number.to_string())),
                ("status".to_owned(), text(status)),
                ("body".to_owned(), text("{\"amount\":1250}")),
            ]);
            item.extend(stamp.attributes());
            let client = connection.tables().await;
            let put = client.put_item().table_name(&connection.names().outbox);
            put.set_item(Some(item)).send().await.unwrap();
            stamp.id()
        })
    }

    /// Configures a relay to standard output, with more of the table about DynamoDB.
    fn configured(&self, more: &str) {
        let url = self.url();
        self.shop.configure(&format!(
            "store = \"{url}\"\n[destinations.log]\nkind = \"stdout\"\n\
             [dynamodb]\nstream = false\nbackstop = \"1s\"\n{more}"
        ));
    }

    fn relay(&self) -> std::process::Output {
        self.shop.run(&["relay", "--config", "postrider.toml", "--once"])
    }
}

/// R027: a stamped item that stands in the table arrives as the event that the configured mapping makes of it, of the
/// type that an attribute says, or that is said of all; without a mapping it stays where it is, and `doctor` tells of it.
#[test]
fn a_stamped_item_arrives_with_the_configured_type() {
    let Some(tables) = Tables::new("a_stamped_item_arrives_with_the_configured_type") else {
        return;
    };
    let paid = tables.write_order(42, 3, "order.paid");
    tables.configured("");
    let none = tables.relay();
    assert_eq!((code(&none), out(&none).as_str()), (0, ""), "{}", err(&none));
    let doctor = || out(&tables.shop.run(&["doctor", "--config", "postrider.toml"]));
    let found = doctor().split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["[PR-1016]", "`order/42`", "`ORDER`", "[dynamodb.derived]"] {
        assert!(found.contains(words), "{words}: {found}");
    }
    tables.configured(BY_ATTRIBUTES);
    assert!(!doctor().contains("PR-1016"), "a mapping is there: {}", doctor());
    let first = tables.relay();
    assert_eq!(code(&first), 0, "{}", err(&first));
    let came = events(&out(&first));
    assert_eq!(came.iter().map(|event| event.id).collect::<Vec<_>>(), [paid]);
    assert_eq!((&*came[0].key(), &*came[0].event_type), ("order/42", "order.paid"));
    assert_eq!(came[0].payload.as_bytes(), b"{\"amount\":1250}");
    assert_eq!(out(&tables.relay()), "", "once");
    tables.configured("");
    assert!(!doctor().contains("PR-1016"), "nothing is pending: {}", doctor());
    tables.configured(BY_ATTRIBUTES);

    let changed = tables.write_order(42, 4, "order.paid");
    let of_all = BY_ATTRIBUTES.replace("event_type_from = \"status\"", "event_type = \"changed\"");
    tables.configured(&of_all.replace("payload_from = \"body\"\n", ""));
    let second = tables.relay();
    let came = events(&out(&second));
    assert_eq!((came[0].id, &*came[0].event_type), (changed, "changed"), "{}", err(&second));
    let whole: Value = serde_json::from_slice(came[0].payload.as_bytes()).unwrap();
    let expected = json!({"pk": "order/42", "sk": SK, "number": 42, "status": "order.paid",
                          "body": "{\"amount\":1250}"});
    assert_eq!(whole, expected, "the item, without its stamp");
}

/// An erasure says what it does not reach where events are made of business items, and says nothing of them elsewhere.
#[test]
fn an_erasure_says_that_it_does_not_reach_events_of_items() {
    let Some(tables) = Tables::new("an_erasure_says_that_it_does_not_reach") else { return };
    for (mapping, told) in [(BY_ATTRIBUTES, true), ("", false)] {
        tables.configured(mapping);
        let erase = ["erase", "--key", "order/42", "--reason", "request 1", "--dry-run"];
        let erase = [&erase[..], &["--config", "postrider.toml"]].concat();
        let ended = tables.shop.run(&erase);
        assert_eq!(code(&ended), 0, "{}", err(&ended));
        let words = "events of business items are not reached";
        assert_eq!(said(&ended).contains(words), told, "{}", said(&ended));
    }
}

/// R027: what no event could be made by is refused before anything is asked of the service, with the place in the file,
/// and what to write.
#[test]
fn a_mapping_that_is_no_use_is_refused_before_connecting() {
    let shop = crate::Shop::bare();
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let port = server::listen(move |_, _| {
        *count.lock().unwrap() += 1;
        ("400 Bad Request", String::new())
    });
    for (from, to, place, words) in [
        ("event_type_from = \"status\"\n", "", "postrider.toml:5:18", "event_type_from ="),
        ("payload_from", "payload", "postrider.toml:8:1", "did you mean `payload_from`?"),
        ("\"number\"", "\"pr_event\"", "postrider.toml:6:21", "name an attribute of your own"),
        (
            "[dynamodb.derived]",
            "[dynamodb]\nmark_first = true\n[dynamodb.derived]",
            "postrider.toml:5:14",
            "leave mark_first out",
        ),
    ] {
        let mapping = BY_ATTRIBUTES.replace(from, to);
        shop.configure(&format!(
            "store = \"dynamodb://?endpoint=http://127.0.0.1:{port}\"\n[destinations.log]\nkind = \"stdout\"\n{mapping}"
        ));
        for command in [&["relay", "--once"][..], &["config", "check"]] {
            let ended = shop.run(&[command, &["--config", "postrider.toml"]].concat());
            assert_eq!(code(&ended), 78, "{to}: {}", err(&ended));
            let told = format!("{}{}", said(&ended), out(&ended));
            assert!(told.contains(place) && told.contains(words), "{to}: {told}");
        }
    }
    assert_eq!(*asked.lock().unwrap(), 0, "nothing was asked");
}

/// R032: with `mark_first` an event says that it is marked, and by whom, when its receiver has it; without it does not.
#[test]
fn mark_first_marks_an_event_before_it_is_sent() {
    let Some(tables) = Tables::new("mark_first_marks_an_event_before_it_is_sent") else { return };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (note, url) = (Arc::clone(&seen), tables.url());
    let port = server::listen(move |_, _| {
        let marks = ask(&url, async |connection| marks(&connection).await);
        note.lock().unwrap().push(marks);
        ("200 OK", String::new())
    });
    for first in [true, false] {
        tables.place(&["1"]);
        let url = tables.url();
        tables.shop.configure(&format!(
            "store = \"{url}\"\n[dynamodb]\nstream = false\nbackstop = \"1s\"\nmark_first = {first}\n\
             [relay]\npublish_deadline = \"60s\"\nlease = \"120s\"\n\
             [destinations.partner]\nkind = \"webhook\"\n\
             [[destinations.partner.routes]]\ntopic = \"acme\"\n\
             [destinations.partner.webhook]\nallow_private = true\ntimeout = \"50s\"\n\
             [destinations.partner.endpoints.acme]\nurl = \"http://127.0.0.1:{port}/in\"\n\
             keys = [\"env:PARTNER_KEY\"]\n"
        ));
        let mut relay = tables.shop.command(&["relay", "--config", "postrider.toml", "--once"]);
        let relay = relay.env("PARTNER_KEY", super::operate::KEY).output().unwrap();
        assert_eq!(code(&relay), 0, "{}", err(&relay));
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [usize::from(first)]);
    }
}

/// How many events are pending and marked all the same.
async fn marks(connection: &Connection) -> usize {
    let client = connection.tables().await;
    let scan = client.scan().table_name(&connection.names().outbox).consistent_read(true);
    let items = scan.send().await.unwrap().items.unwrap_or_default();
    let says = |item: &&Item, name: &str| item.contains_key(name);
    let pending = items.iter().filter(|item| says(item, "pr_shard"));
    pending.filter(|item| says(item, "published_at") && says(item, "marked_by")).count()
}
