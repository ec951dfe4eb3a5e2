//! `postrider inbox`: what was done, and correcting it by hand.

use super::id;
use crate::{Shop, code, err, said};

/// A shop whose handler `mail` was done with event 1.
fn handled() -> Shop {
    let shop = Shop::delivered();
    mark(&shop, 1);
    shop
}

fn mark(shop: &Shop, number: u32) {
    let event = id(number);
    let run = shop.operate(&[
        "inbox",
        "mark-processed",
        &event,
        "--handler",
        "mail",
        "--source",
        "/shop",
        "--reason",
        "sent by hand",
    ]);
    assert_eq!(code(&run), 0, "{}", err(&run));
}

/// R106: what a person did by hand is recorded, so that the handler does not do it again.
#[test]
fn what_was_done_by_hand_is_recorded() {
    let shop = handled();
    let list = shop.json(&["inbox", "ls", "--handler", "mail"]);
    let row = &list["rows"][0];
    assert_eq!((&row["event_id"], &row["state"]), (&id(1).as_str().into(), &"processed".into()));
    let first = id(1);
    let again = shop.operate(&[
        "inbox",
        "mark-processed",
        &first,
        "--handler",
        "mail",
        "--source",
        "/shop",
        "--reason",
        "again",
    ]);
    assert_eq!(code(&again), 0, "{}", err(&again));
    assert!(said(&again).contains("done already"), "{}", err(&again));
    assert!(shop.answer(&["audit"]).contains("sent by hand"));
    let shown = shop.answer(&["inbox", "show", &id(1)]);
    assert!(shown.contains("mail") && shown.contains("processed"), "{shown}");
}

/// R097, F34: forgetting needs a reason, leaves a tombstone that says who, and is audited.
#[test]
fn forgetting_leaves_a_tombstone() {
    let shop = handled();
    let event = id(1);
    let args = ["inbox", "forget", &event, "--handler", "mail"];
    let missing = shop.operate(&[&args[..], &["--yes"]].concat());
    assert_eq!(code(&missing), 2);
    assert!(said(&missing).contains("--reason"), "{}", err(&missing));
    let unasked = shop.operate(&[&args[..], &["--reason", "x"]].concat());
    assert_eq!(code(&unasked), 2, "{}", err(&unasked));
    let run = shop.operate(&[&args[..], &["--reason", "the mail bounced", "--yes"]].concat());
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert!(said(&run).contains("acts again"), "{}", err(&run));
    let list = shop.json(&["inbox", "ls", "--state", "forgotten"]);
    let by = list["rows"][0]["forgotten_by"].as_str().unwrap().to_owned();
    assert!(by.contains("anna@db1"), "{by}");
    let audit = shop.answer(&["audit"]);
    assert!(audit.contains("the mail bounced") && audit.contains("forget"), "{audit}");
}

#[test]
fn what_the_inbox_does_not_have_is_said() {
    let shop = handled();
    let second = id(2);
    for args in [
        vec!["inbox", "show", &second],
        vec!["inbox", "forget", &second, "--handler", "mail", "--reason", "x", "--yes"],
    ] {
        let run = shop.operate(&args);
        assert_eq!(code(&run), 1, "{args:?}: {}", err(&run));
        assert!(said(&run).contains("no row"), "{}", err(&run));
    }
}
