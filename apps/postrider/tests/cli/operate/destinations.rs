//! `postrider destinations` and `partitions`.

use super::{golden, id};
use crate::{Shop, code, err, out, said};

#[test]
fn destinations_and_partitions_are_listed() {
    let shop = Shop::delivered();
    golden("destinations-ls.txt", &shop.answer(&["destinations", "ls"]));
    golden("destinations-ls.json", &shop.answer(&["destinations", "ls", "--output", "json"]));
    golden("partitions-ls.txt", &shop.answer(&["partitions", "ls"]));
    golden("partitions-ls.ndjson", &shop.answer(&["partitions", "ls", "--output", "ndjson"]));
}

/// A paused destination gets nothing, and everything when it is resumed.
#[test]
fn a_paused_destination_waits() {
    let shop = Shop::delivered();
    let paused = shop.json(&["destinations", "pause", "default", "--reason", "upgrade", "--yes"]);
    assert_eq!(paused["rows"][0]["state"], "paused", "{paused}");
    shop.commit(7..=8);
    let before = shop.arrived().len();
    shop.relay(&["--to", "file://events.ndjson", "--once", "--timeout", "300ms"]);
    assert_eq!(shop.arrived().len(), before);
    shop.answer(&["destinations", "resume", "default"]);
    shop.carry();
    assert_eq!(shop.arrived()[before..], [id(7), id(8)]);
}

#[test]
fn an_unknown_destination_suggests() {
    let shop = Shop::delivered();
    for args in [
        &["destinations", "pause", "defualt"][..],
        &["destinations", "remove", "defualt", "--reason", "x", "--yes"],
        &["destinations", "rename", "defualt", "x", "--yes"],
        &["destinations", "rewind", "defualt", "--to", "beginning", "--yes"],
        &["destinations", "enable", "defualt", "hook"],
        &["reconcile", "--destination", "defualt"],
    ] {
        let run = shop.operate(args);
        assert_eq!(code(&run), 1, "{args:?}: {}", err(&run));
        assert!(said(&run).contains("Did you mean `default`?"), "{args:?}: {}", err(&run));
    }
    let run = shop.operate(&["partitions", "pause", "7", "--yes"]);
    assert_eq!(code(&run), 1);
    assert!(said(&run).contains("no partition 7"), "{}", err(&run));
}

#[test]
fn history_is_sent_again_as_a_replay() {
    let shop = Shop::delivered();
    let args = ["destinations", "rewind", "default", "--to", "beginning"];
    let dry = shop.operate(&[&args[..], &["--dry-run"]].concat());
    assert_eq!((code(&dry), out(&dry).as_str()), (0, "6\n"), "{}", err(&dry));
    let before = shop.arrived().len();
    {
        let _daemon = shop.daemon();
        let run = shop.operate(&[&args[..], &["--yes"]].concat());
        assert_eq!(code(&run), 0, "{}", err(&run));
    }
    shop.carry();
    assert!(shop.arrived().len() >= before + 6);
    let text = std::fs::read_to_string(shop.path("events.ndjson")).unwrap();
    assert!(text.contains("postriderreplay"), "{text}");
}

#[test]
fn a_renamed_destination_keeps_its_place() {
    let shop = Shop::delivered();
    let run = shop.operate(&["destinations", "rename", "default", "orders", "--yes"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    shop.commit(7..=7);
    let before = shop.arrived().len();
    let relay = shop.relay(&["--to", "file://events.ndjson", "--as", "orders", "--once"]);
    assert_eq!(code(&relay), 0, "{}", err(&relay));
    assert_eq!(shop.arrived()[before..], [id(7)]);
    let taken = shop.operate(&["destinations", "rename", "orders", "unrouted", "--yes"]);
    assert_eq!(code(&taken), 1, "{}", err(&taken));
}

#[test]
fn a_removed_destination_goes_with_what_waits() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    shop.commit(7..=8);
    let args = ["destinations", "remove", "default", "--reason", "old"];
    let dry = shop.operate(&[&args[..], &["--dry-run", "--output", "json"]].concat());
    let dry: serde_json::Value = serde_json::from_str(&out(&dry)).unwrap();
    assert_eq!((&dry["pending"], &dry["dead"]), (&2.into(), &1.into()), "{dry}");
    assert_eq!(shop.number("select count(*) from outbox_destination where id = 'default'"), 1);
    let run = shop.operate(&[&args[..], &["--yes"]].concat());
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert_eq!(shop.number("select count(*) from outbox_destination where id = 'default'"), 0);
    assert_eq!(shop.number("select count(*) from outbox_waiting"), 0);
    let built_in = shop.operate(&["destinations", "remove", "unrouted", "--reason", "x", "--yes"]);
    assert_eq!(code(&built_in), 1, "{}", err(&built_in));
}
