//! A database that cannot be written to: who only looks is answered, and who would write is told why not.

use super::Database;
use crate::{code, err, out};

/// F4: at a read-only database every command that only reads answers, and says what is the matter; the doctor finds
/// it; what writes is refused.
#[test]
fn a_database_that_cannot_be_written_to_is_looked_at() {
    let Some(database) = Database::new("a_database_that_cannot_be_written_to") else { return };
    let enqueue =
        ["enqueue", "--aggregate-type", "order", "--aggregate-id", "1", "--type", "order.placed"];
    database.answer(&enqueue);
    let id = database.rows(&["outbox", "ls"])[0]["id"].as_str().unwrap().to_owned();
    let url = format!("{}&options=-c%20default_transaction_read_only%3Don", database.url());
    let run = |args: &[&str]| {
        database.shop.command(&[args, &["--store", &url]].concat()).output().unwrap()
    };
    // An event waits, and no destination is defined: that alone is not well.
    let status = run(&["status"]);
    assert_eq!(code(&status), 6, "{}", err(&status));
    assert!(err(&status).contains("cannot be written to (PR-1003)"), "{}", err(&status));
    for args in [
        &["outbox", "ls"][..],
        &["outbox", "show", &id],
        &["dead", "ls"],
        &["destinations", "ls"],
        &["inbox", "ls"],
        &["audit"],
    ] {
        let answer = run(args);
        assert_eq!(code(&answer), 0, "{args:?}: {}", err(&answer));
        let said = err(&answer);
        assert!(said.contains("cannot be written to (PR-1003)"), "{args:?}: {said}");
    }
    assert!(out(&run(&["outbox", "ls"])).contains("order.placed"));
    let found = run(&["doctor"]);
    assert_eq!(code(&found), 6, "{}", err(&found));
    assert!(out(&found).contains("default_transaction_read_only is on"), "{}", out(&found));
    let refused = run(&enqueue);
    assert!(code(&refused) != 0 && err(&refused).contains("PR-1003"), "{}", err(&refused));
    assert_eq!(database.rows(&["outbox", "ls"]).len(), 1);
}
