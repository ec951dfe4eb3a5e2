//! Changes of many rows: chosen, shown, confirmed, and no more than that.

use super::{golden, id};
use crate::{Shop, code, err, out, said};

/// What matches everything must say so.
#[test]
fn nothing_chosen_is_not_everything() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    for args in [&["dead", "redrive"][..], &["outbox", "requeue"]] {
        let run = shop.operate(&[args, &["--yes"]].concat());
        assert_eq!((code(&run), out(&run).as_str()), (2, ""), "{args:?}: {}", err(&run));
        assert!(said(&run).contains("--all"), "{}", err(&run));
    }
    let run = shop.operate(&["dead", "discard", "--yes", "--reason", "x"]);
    assert_eq!(code(&run), 2);
    assert_eq!(shop.number("select count(*) from outbox_request"), 0);
}

/// R096: a dry run counts and changes nothing; what it counts is what is done later.
#[test]
fn a_dry_run_counts_and_changes_nothing() {
    let shop = Shop::delivered();
    shop.bury(&[1, 3, 5, 6], "dead");
    let run = shop.operate(&["dead", "redrive", "--type", "order.placed", "--dry-run"]);
    assert_eq!((code(&run), out(&run).as_str()), (0, "3\n"), "{}", err(&run));
    golden("dead-redrive-dry-run.txt", &err(&run));
    let args = ["dead", "redrive", "--all", "--dry-run", "--output", "json"];
    golden("dead-redrive-dry-run.json", &shop.answer(&args));
    assert_eq!(shop.number("select count(*) from outbox_request"), 0);
    assert_eq!(shop.number("select count(*) from outbox_audit"), 0);
}

/// F32: without a person and without `--yes` nothing is changed.
#[test]
fn without_a_terminal_it_needs_a_yes() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    let commands = [
        vec!["dead", "redrive", "--all"],
        vec!["dead", "discard", "--all", "--reason", "x"],
        vec!["outbox", "requeue", "--all"],
        vec!["erase", "--key", "order/1", "--reason", "x"],
        vec!["destinations", "remove", "default", "--reason", "x"],
        vec!["destinations", "rename", "default", "other"],
        vec!["destinations", "rewind", "default", "--to", "beginning"],
        vec!["adopt", "--reason", "x"],
        vec!["repair", "sequence", "--reason", "x"],
    ];
    for args in commands {
        let run = shop.operate(&args);
        assert_eq!((code(&run), out(&run).as_str()), (2, ""), "{args:?}: {}", err(&run));
        assert!(said(&run).contains("add --yes"), "{args:?}: {}", err(&run));
    }
    assert_eq!(shop.number("select count(*) from outbox_request"), 0);
    assert_eq!(shop.number("select count(*) from outbox_audit"), 0);
    assert_eq!(shop.number("select count(*) from outbox where erased_at is not null"), 0);
}

/// R105: before a copy is adopted, all that it would publish is counted: what waits too, and what no destination has yet.
#[test]
fn what_a_copy_would_publish_is_counted() {
    let adopt = ["adopt", "--reason", "x"];
    let fresh = Shop::new();
    fresh.commit(1..=6);
    assert!(said(&fresh.operate(&adopt)).contains("up to 6 events"));
    let shop = Shop::delivered();
    shop.bury(&[3, 5], "retrying");
    assert!(said(&shop.operate(&adopt)).contains("up to 2 events"));
}

/// R105: what was marked as sent and never arrived is sent again by one command, marked as late.
#[test]
fn what_never_arrived_is_sent_again() {
    let shop = Shop::delivered();
    // The broker's file was lost.
    std::fs::remove_file(shop.path("events.ndjson")).unwrap();
    let _daemon = shop.daemon();
    let second = id(2);
    let run = shop.json(&["outbox", "requeue", &second, "--yes", "--reason", "the file was lost"]);
    assert_eq!(run["rows"][0]["done"], 1, "{run}");
    while shop.arrived().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(5)); // waits: for another process
    }
    assert_eq!(shop.arrived(), [id(2)]);
    let text = std::fs::read_to_string(shop.path("events.ndjson")).unwrap();
    assert!(text.contains("\"postriderlate\""), "{text}");
}

/// One that waits is not sent again beside it.
#[test]
fn what_waits_is_not_requeued() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    let run = shop.operate(&["outbox", "requeue", &id(3), "--yes"]);
    assert_eq!(code(&run), 1, "{}", err(&run));
    assert!(said(&run).contains("default: dead"), "{}", err(&run));
    let all = shop.operate(&["outbox", "requeue", "--all", "--dry-run"]);
    assert_eq!(out(&all), "5\n", "{}", err(&all));
}

#[test]
fn ids_that_do_not_match_stop_everything() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    let run = shop.operate(&["dead", "redrive", &id(3), &id(1), "--yes"]);
    assert_eq!(code(&run), 1, "{}", err(&run));
    assert!(said(&run).contains("Nothing was changed"), "{}", err(&run));
    assert_eq!(shop.number("select count(*) from outbox_request"), 0);
    let wrong = shop.operate(&["dead", "redrive", "--status", "retrying", "--yes"]);
    assert_eq!(code(&wrong), 2, "{}", err(&wrong));
}
