//! `postrider outbox ls`, `show`, `cancel`, in every format.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::{golden, id};
use crate::{Shop, code, err, out, said};

#[test]
fn lists_look_the_same_in_every_version() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    shop.commit(7..=7);
    golden("outbox-ls.txt", &shop.answer(&["outbox", "ls"]));
    golden("outbox-ls.json", &shop.answer(&["outbox", "ls", "--output", "json"]));
    golden("outbox-ls.ndjson", &shop.answer(&["outbox", "ls", "--output", "ndjson"]));
}

#[test]
fn an_event_is_shown_with_what_became_of_it() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    golden("outbox-show.txt", &shop.answer(&["outbox", "show", &id(3)]));
    golden("outbox-show.json", &shop.answer(&["outbox", "show", &id(3), "--output", "json"]));
    let detail = shop.json(&["outbox", "show", &id(3)]);
    // R019: attempts and the last answer are there.
    assert_eq!(detail["deliveries"][0]["attempts"], 3);
    assert_eq!(detail["deliveries"][0]["detail"], "422: no such customer");
    assert_eq!(detail["payload"]["cents"], 300);
}

/// The next page's command is printed, and gives the next page; with `--all` there is one list.
#[test]
fn pages_follow_each_other() {
    let shop = Shop::delivered();
    let mut args = vec!["outbox", "ls", "--limit", "4", "--output", "ndjson"];
    let first = shop.operate(&args);
    assert_eq!((code(&first), out(&first).lines().count()), (0, 4), "{}", err(&first));
    let said = err(&first);
    let next = said.lines().find(|line| line.contains("postrider outbox ls")).unwrap().trim();
    assert!(next.starts_with("postrider outbox ls --limit 4 --output ndjson --after "), "{next}");
    let token = next.rsplit(' ').next().unwrap().to_owned();
    args.extend(["--after", &token]);
    let second = shop.operate(&args);
    assert_eq!((code(&second), out(&second).lines().count()), (0, 2), "{}", err(&second));
    assert!(err(&second).is_empty(), "{}", err(&second));
    let all = shop.answer(&["outbox", "ls", "--all", "--output", "ndjson"]);
    assert_eq!(all, format!("{}{}", out(&first), out(&second)));
    let document = shop.json(&["outbox", "ls", "--all"]);
    assert_eq!(document["rows"].as_array().unwrap().len(), 6);
    assert!(document["next"].is_null());
}

#[test]
fn filters_choose() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    shop.commit(7..=7);
    let count = |args: &[&str]| {
        let args = [&["outbox", "ls", "--output", "ndjson"], args].concat();
        shop.answer(&args).lines().count()
    };
    let third = id(3);
    for (args, expected) in [
        (&["--key", "order/2"][..], 2),
        (&["--type", "*.placed"], 4),
        (&["--id", &third], 1),
        (&["--status", "dead"], 1),
        (&["--status", "pending"], 1),
        (&["--since", "1h"], 0),
        (&["--until", "1h"], 7),
        (&["--error", "NO SUCH"], 1),
        (&["--attempts", "3"], 1),
        (&["--attempts", "4"], 0),
        (&["--aggregate-type", "invoice"], 0),
        (&["--tenant", "acme"], 0),
    ] {
        assert_eq!(count(args), expected, "{args:?}");
    }
    let wrong = shop.operate(&["outbox", "ls", "--status", "daed"]);
    assert_eq!(code(&wrong), 2);
    assert!(said(&wrong).contains("did you mean `dead`?"), "{}", err(&wrong));
    let wrong = shop.operate(&["outbox", "ls", "--since", "yesterday"]);
    assert_eq!(code(&wrong), 2);
}

#[test]
fn an_unknown_id_suggests_the_nearest() {
    let shop = Shop::delivered();
    for text in ["01941f29-7c00-7000-8000-00000000001", "01941f29-7c00-7000-8000-000000000009"] {
        let run = shop.operate(&["outbox", "show", text]);
        assert!(code(&run) > 0);
        assert!(
            said(&run).contains("Did you mean 01941f29-7c00-7000-8000-00000000000"),
            "{}",
            err(&run)
        );
    }
    let far = shop.operate(&["outbox", "show", "ffffffff-ffff-4fff-8fff-ffffffffffff"]);
    assert_eq!(code(&far), 1);
    assert!(said(&far).contains("there is no event") && !said(&far).contains("Did you mean"));
}

#[test]
fn a_store_must_be_named_and_there() {
    let shop = Shop::new();
    let run = shop.command(&["outbox", "ls"]).env_remove("POSTRIDER_STORE").output().unwrap();
    assert_eq!(code(&run), 78);
    assert!(said(&run).contains("POSTRIDER_STORE"), "{}", err(&run));
    let run = shop.run(&["outbox", "ls", "--store", "sqlite://other.db"]);
    assert_eq!(code(&run), 1);
    assert!(said(&run).contains("postrider init"), "{}", err(&run));
    assert!(!shop.path("other.db").exists());
}

/// A reader that goes away, like `head`, ends the command quietly.
#[test]
fn a_closed_pipe_is_no_failure() {
    let shop = Shop::new();
    shop.place(1..3_001);
    for format in ["table", "json", "ndjson"] {
        let mut child = shop
            .operator(&["outbox", "ls", "--all", "--output", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!((code(&ended), err(&ended).as_str()), (0, ""), "{format}");
    }
}

#[test]
fn a_scheduled_event_is_listed_and_taken_back() {
    let shop = Shop::new();
    let scheduled = shop.answer(&[
        "enqueue",
        "--aggregate-type",
        "order",
        "--aggregate-id",
        "1",
        "--type",
        "order.reminded",
        "--after",
        "2h",
    ]);
    let event = scheduled.trim();
    let list = shop.json(&["outbox", "ls", "--status", "scheduled"]);
    assert_eq!(list["rows"][0]["id"], event);
    let shown = shop.json(&["outbox", "show", event]);
    assert!(shown["due"].is_string() && shown["seq"].is_null(), "{shown}");
    assert_eq!(shop.answer(&["outbox", "cancel", event]), "cancelled\n");
    let again = shop.operate(&["outbox", "cancel", event]);
    assert_eq!(code(&again), 1);
    assert_eq!(shop.json(&["outbox", "ls", "--status", "scheduled"])["rows"][0].as_str(), None);
}

#[test]
fn what_was_delivered_cannot_be_taken_back() {
    let shop = Shop::delivered();
    let run = shop.operate(&["outbox", "cancel", &id(1)]);
    assert_eq!((code(&run), out(&run).as_str()), (1, "too_late\n"), "{}", err(&run));
}
