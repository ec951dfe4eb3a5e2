//! What a person mends by a command: a removal that was cut off, and numbers that were set back.

use super::Database;
use crate::{code, err, said};

/// R101: a removal that was cut off is finished by the same command, though there is no destination of that name any more; a
/// name that nobody knows is still refused.
#[test]
fn a_removal_that_was_cut_off_is_finished_by_the_same_command() {
    let Some(database) = Database::new("a_removal_that_was_cut_off") else { return };
    let relayed = database.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&relayed), 0, "{}", err(&relayed));
    let waiting = format!("\"{}\".outbox_waiting", database.schema);
    database.sql(&format!(
        "insert into {waiting} (destination, partition, seq, key, key_hash, state, holds_key, next_at, reason, moved_at)
        select 'orders', 0, seq, 'order/1', 0, 'dead', false, now(), 'gave_up', now() from generate_series(1, 7) seq"
    ));
    let left = || database.number(&format!("select count(*) from {waiting}"));
    let remove = |name: &str, more: &[&str]| {
        database.run(&[&["destinations", "remove", name, "--reason", "gone"], more].concat())
    };
    let unknown = remove("order", &["--yes"]);
    assert_eq!(code(&unknown), 1, "{}", err(&unknown));
    assert!(err(&unknown).contains("there is no destination `order`"), "{}", err(&unknown));
    let counted = remove("orders", &["--dry-run"]);
    assert_eq!((code(&counted), left()), (0, 7), "{}", err(&counted));
    let finished = remove("orders", &["--yes"]);
    assert_eq!((code(&finished), left()), (0, 0), "{}", err(&finished));
    assert!(said(&finished).contains("what was left of it is gone"), "{}", err(&finished));
    assert_eq!(code(&remove("orders", &["--yes"])), 1, "nothing is left to remove");
}

/// F13: a sequence that was set back and carried past every cursor again: the command says that events got new numbers, not
/// that nothing was changed.
#[test]
fn a_repair_says_all_that_it_did() {
    let Some(database) = Database::new("a_repair_says_all_that_it_did") else { return };
    for events in [50, 1] {
        database.place(4, events);
        let relayed = database.relay(&["--to", "stdout", "--once"]);
        assert_eq!(code(&relayed), 0, "{}", err(&relayed));
    }
    database.sql(&format!("select setval('\"{}\".outbox_seq', 1, false)", database.schema));
    database.place(4, 100);
    let repair = || {
        let run = database
            .run(&["repair", "sequence", "--reason", "set back", "--yes", "--output", "json"]);
        assert_eq!(code(&run), 0, "{}", err(&run));
        let answer: serde_json::Value = serde_json::from_str(&crate::out(&run)).unwrap();
        (answer, err(&run))
    };
    let (answer, told) = repair();
    assert_eq!(answer["before"], answer["after"], "{answer}");
    assert!(answer["renumbered"].as_u64().unwrap() > 0, "{answer}");
    assert!(told.contains("events got new numbers"), "{told}");
    assert!(!told.contains("nothing was changed"), "{told}");
    assert!(repair().1.contains("nothing was changed"));
}
