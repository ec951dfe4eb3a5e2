//! `postrider migrate revert`: the way back, which takes everything along.

use super::Database;
use crate::{code, err, out};

/// F30: it says what goes, counted; it is refused beside a relay and where nobody is there to ask; and then nothing is left, and
/// the tables can be made again.
#[test]
fn the_tables_are_taken_back_by_whoever_saw_what_goes() {
    let Some(database) = Database::new("migrate revert") else { return };
    let relays = format!("\"{}\".outbox_relay", database.schema);
    database.place(2, 2);
    let held = || {
        let text =
            database.answer(&["migrate", "revert", "--to", "0", "--dry-run", "--output", "json"]);
        let held: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(held["reverted"], false);
        (held["events"].as_u64().unwrap(), held["undelivered"].as_u64().unwrap())
    };
    assert_eq!(held(), (4, 4), "no destination has passed any");
    let relayed = database.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&relayed), 0, "{}", err(&relayed));
    database.place(1, 3);
    assert_eq!(held(), (7, 3));
    let back = |more: &[&str]| database.run(&[&["migrate", "revert", "--to", "0"], more].concat());
    let unasked = back(&[]);
    assert_eq!(code(&unasked), 2, "{}", err(&unasked));
    assert!(err(&unasked).contains("there is no terminal to ask on"), "{}", err(&unasked));
    database.sql(&format!(
        "insert into {relays} values ('relay_alive', now() + interval '1 hour', true)"
    ));
    let refused = back(&["--yes"]);
    assert_eq!(code(&refused), 1, "{}", err(&refused));
    assert!(err(&refused).contains("relays are alive: relay_alive"), "{}", err(&refused));
    database.sql(&format!("delete from {relays}"));
    assert_eq!(held(), (7, 3), "nothing was changed");
    let printed = out(&back(&["--print"]));
    assert!(printed.contains("begin;") && printed.contains("drop table"), "{printed}");
    assert_eq!(held(), (7, 3), "--print touched the database");
    let done = back(&["--yes"]);
    assert_eq!(code(&done), 0, "{}", err(&done));
    assert_eq!(code(&database.run(&["migrate", "status"])), 6, "nothing is there");
    let again = back(&["--yes"]);
    assert_eq!(code(&again), 0, "{}", err(&again));
    assert!(err(&again).contains("nothing to take back"), "{}", err(&again));
    let init = database.run(&["init", &database.url(), "--partitions", "4"]);
    assert_eq!(code(&init), 0, "{}", err(&init));
    assert_eq!(held(), (0, 0));
}
