//! Exit codes, and what is said with them.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::{Shop, code, err, out, said};

#[test]
fn a_database_without_tables_is_an_operator_error_with_advice() {
    let shop = Shop::bare();
    std::fs::write(shop.path("shop.db"), "").unwrap();
    let run = shop.relay(&["--to", "stdout", "--once"]);
    assert_eq!((code(&run), out(&run).as_str()), (1, ""));
    assert!(said(&run).contains("error[PR-1001]"), "{}", err(&run));
    assert!(said(&run).contains("Run `postrider init URL`"), "{}", err(&run));
}

#[test]
fn a_missing_database_is_not_created() {
    let shop = Shop::bare();
    let run = shop.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&run), 1);
    assert!(said(&run).contains("postrider init"), "{}", err(&run));
    assert!(!shop.path("shop.db").exists());
}

/// R038: 3 when something waits, with how much of what; what can be delivered is.
#[test]
fn a_dead_letter_ends_a_one_shot_run_with_3() {
    let shop = Shop::new();
    shop.place(1..3);
    // A format of the future cannot be read, and is kept.
    shop.connect()
        .execute(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload, format)
             values ('order', '3', 'order.placed', 'null', 99)",
            (),
        )
        .unwrap();
    shop.place(4..5);
    let run = shop.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&run), 3, "{}", err(&run));
    assert_eq!(out(&run).lines().count(), 3);
    assert!(
        said(&run)
            .contains("default: 1 waiting (0 retrying, 0 parked, 0 held, 0 disabled, 1 dead)")
    );
}

/// R038: 3 when nothing is settled for the timeout.
#[test]
fn a_destination_that_takes_nothing_ends_a_one_shot_run_with_3() {
    let shop = Shop::new();
    shop.place(1..3);
    let run = shop.relay(&["--to", "file:///dev/full", "--once", "--timeout", "500ms"]);
    assert_eq!(code(&run), 3, "{}", err(&run));
    assert!(said(&run).contains("--timeout"), "{}", err(&run));
    let later = shop.relay(&["--to", "stdout", "--once"]);
    assert_eq!((code(&later), out(&later).lines().count()), (0, 2), "{}", err(&later));
}

/// R038: 4 when another relay holds the lease, and who.
#[test]
fn a_lease_held_by_another_ends_a_one_shot_run_with_4() {
    let shop = Shop::new();
    shop.place(1..2);
    let mut daemon = shop
        .command(&["relay", "--store", "sqlite://shop.db", "--to", "stdout", "--lease", "60s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let run = shop.relay(&["--to", "local://queue.db", "--once", "--lease", "1s"]);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(code(&run), 4, "{}", err(&run));
    let owner = shop
        .connect()
        .query_row("select owner from outbox_lease", (), |row| row.get::<_, String>(0))
        .unwrap();
    assert!(said(&run).contains(&owner), "{}", err(&run));
    assert!(said(&run).contains("error[PR-1203]"), "{}", err(&run));
}

#[test]
fn an_unknown_scheme_suggests_and_lists_what_works() {
    let shop = Shop::new();
    for (to, expected) in [
        ("loca://queue.db", "did you mean `local://PATH`?"),
        (
            "amqp://k:9092",
            "What works today: stdout, file://PATH, local://PATH, https://URL, kafka:",
        ),
        ("queue.db", "did you mean `local://queue.db`?"),
    ] {
        let run = shop.relay(&["--to", to, "--once"]);
        assert_eq!(code(&run), 78, "{to}: {}", err(&run));
        assert!(said(&run).contains(expected), "{to}: {}", err(&run));
    }
    let run = shop.run(&["relay", "--store", "mysql://root:hunter2@db/shop", "--to", "stdout"]);
    assert_eq!(code(&run), 78);
    assert!(!err(&run).contains("hunter2"), "{}", err(&run));
}

#[test]
fn a_destination_that_the_store_does_not_have_is_refused() {
    let shop = Shop::new();
    assert_eq!(code(&shop.relay(&["--to", "stdout", "--once"])), 0);
    let run = shop.relay(&["--to", "stdout", "--as", "audit", "--once"]);
    assert_eq!((code(&run), out(&run).as_str()), (78, ""));
    assert!(said(&run).contains("error[PR-1201]"), "{}", err(&run));
    assert!(said(&run).contains("--as default"), "{}", err(&run));
}

#[test]
fn a_definition_other_than_the_stores_is_refused() {
    let shop = Shop::new();
    assert_eq!(code(&shop.relay(&["--to", "stdout", "--once"])), 0);
    shop.connect()
        .execute(
            "update outbox_destination set definition = replace(definition, '{event_type}', 'all')
             where id = 'default'",
            (),
        )
        .unwrap();
    let run = shop.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&run), 78, "{}", err(&run));
    assert!(said(&run).contains("error[PR-1201]"), "{}", err(&run));
}

#[test]
fn times_that_contradict_each_other_or_have_no_unit_are_refused() {
    let shop = Shop::new();
    let run = shop.relay(&["--to", "stdout", "--timeout", "60"]);
    assert_eq!(code(&run), 2);
    assert!(said(&run).contains("write 60s"), "{}", err(&run));
}

/// A program that has no client for a store says which feature has it.
#[cfg(not(feature = "dynamodb"))]
#[test]
fn a_store_that_is_not_built_in_is_named() {
    let ended = Shop::bare().run(&["status", "--store", "dynamodb://eu-central-1"]);
    assert_eq!(code(&ended), 78, "{}", err(&ended));
    assert!(err(&ended).contains("--features dynamodb"), "{}", err(&ended));
}
