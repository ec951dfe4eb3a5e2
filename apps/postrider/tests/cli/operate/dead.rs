//! `postrider dead`: lists, and what becomes of what is redriven or discarded.

use super::{golden, id};
use crate::{Shop, code, err, out, said};

/// R093: a dead letter is listed with its reason, shown with its payload, sent again or discarded.
#[test]
fn dead_letters_are_listed_with_their_reasons() {
    let shop = Shop::delivered();
    shop.bury(&[3, 5], "dead");
    golden("dead-ls.txt", &shop.answer(&["dead", "ls"]));
    golden("dead-ls.json", &shop.answer(&["dead", "ls", "--output", "json"]));
    golden("dead-ls.ndjson", &shop.answer(&["dead", "ls", "--output", "ndjson"]));
    // R019: the attempts, the last answer.
    let row = &shop.json(&["dead", "ls", "--id", &id(3)])["rows"][0];
    assert_eq!((&row["attempts"], &row["holds_key"]), (&3.into(), &true.into()));
    assert_eq!(shop.json(&["dead", "show", &id(5)])["payload"]["cents"], 500);
    let other = shop.operate(&["dead", "show", &id(1)]);
    assert_eq!(code(&other), 1);
    assert!(said(&other).contains("not a dead letter"), "{}", err(&other));
    assert!(said(&other).contains("default: published"), "{}", err(&other));
}

/// R096: what is sent again is exactly what was counted; a second redrive of it does nothing.
#[test]
fn a_redrive_sends_what_was_counted_once() {
    let shop = Shop::delivered();
    shop.bury(&[3, 5], "dead");
    let _daemon = shop.daemon();
    let before = shop.arrived().len();
    let run = shop.json(&["dead", "redrive", &id(3), "--yes"]);
    let request = &run["rows"][0];
    assert_eq!((&request["done"], &request["finished"]), (&1.into(), &true.into()), "{run}");
    assert_eq!((&request["who"], &request["verb"]), (&"anna@db1".into(), &"redrive".into()));
    while shop.arrived().len() == before {
        std::thread::sleep(std::time::Duration::from_millis(5)); // waits: for another process
    }
    assert_eq!(shop.arrived()[before..], [id(3)]);
    let again = shop.operate(&["dead", "redrive", &id(3), "--yes"]);
    assert_eq!(code(&again), 1, "{}", err(&again));
    let rest = shop.json(&["dead", "ls"]);
    assert_eq!(rest["rows"].as_array().unwrap().len(), 1, "{rest}");
}

/// R093, R096: what is discarded is not delivered, stays as a row, and its key flows.
#[test]
fn a_discarded_dead_letter_never_arrives() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    let missing = shop.operate(&["dead", "discard", &id(3), "--yes"]);
    assert_eq!(code(&missing), 2);
    assert!(said(&missing).contains("--reason"), "{}", err(&missing));
    {
        let _daemon = shop.daemon();
        let run = shop.operate(&["dead", "discard", &id(3), "--yes", "--reason", "a test order"]);
        assert_eq!(code(&run), 0, "{}", err(&run));
        assert!(said(&run).contains("discard: 1 done"), "{}", err(&run));
    }
    let before = shop.arrived().len();
    shop.carry();
    assert_eq!(shop.arrived().len(), before);
    let list = shop.json(&["dead", "ls", "--status", "discarded"]);
    assert_eq!(list["rows"][0]["id"], id(3).as_str());
    let audit = shop.json(&["audit"]);
    let texts = audit.to_string();
    for part in ["anna@db1", "a test order", "discard"] {
        assert!(texts.contains(part), "{texts}");
    }
    shop.settle_down();
    golden("audit.txt", &shop.answer(&["audit"]));
}

/// Without a relay the request is written down, said to be so, and carried out later.
#[test]
fn without_a_relay_it_is_written_down() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    let run = shop.operate(&["dead", "redrive", "--all", "--yes"]);
    assert_eq!(code(&run), 5, "{}", err(&run));
    assert!(said(&run).contains("no relay is alive"), "{}", err(&run));
    assert!(said(&run).contains("PR-1204"), "{}", err(&run));
    assert!(said(&run).contains("postrider relay --config FILE"), "{}", err(&run));
    assert!(out(&run).contains("open"), "{}", out(&run));
    let status = shop.operate(&["status", "--rate", "0"]);
    assert!(out(&status).contains("1 open request\n"), "{}", out(&status));
    let before = shop.arrived().len();
    shop.carry();
    assert_eq!(shop.arrived()[before..], [id(3)]);
}

#[test]
fn not_waiting_for_it_is_no_failure() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    let run = shop.operate(&["dead", "redrive", "--all", "--yes", "--wait", "0"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert!(said(&run).contains("request 1 is written down"), "{}", err(&run));
}

/// R096: where a redrive leads nowhere, it says so before it is asked for.
#[test]
fn a_redrive_of_what_no_route_takes_says_what_helps() {
    let shop = Shop::bare();
    let configuration = "store = \"sqlite://u.db\"\n[destinations.out]\nkind = \"stdout\"\n\
                         [[destinations.out.routes]]\nmatch = { event_type = \"order.*\" }\n\
                         topic = \"x\"\n";
    std::fs::write(shop.path("u.toml"), configuration).unwrap();
    assert_eq!(code(&shop.run(&["init", "sqlite://u.db"])), 0);
    let enqueue = ["enqueue", "--store", "sqlite://u.db", "--aggregate-type", "a"];
    let enqueue = [&enqueue[..], &["--aggregate-id", "1", "--type", "other"]].concat();
    assert_eq!(code(&shop.run(&enqueue)), 0);
    assert_eq!(code(&shop.run(&["relay", "--config", "u.toml", "--once"])), 3);
    let plan = ["dead", "redrive", "--dry-run", "--config", "u.toml", "--all"];
    let planned = shop.run(&plan);
    assert_eq!(out(&planned).trim(), "1");
    assert!(said(&planned).contains("explain PR-1202"), "{}", err(&planned));
    let none = shop.run(&[&plan[..], &["--key", "nothing"]].concat());
    assert!(!said(&none).contains("DESTINATION"), "{}", err(&none));
}
