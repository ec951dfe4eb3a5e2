//! `postrider erase`, `adopt`, and `repair sequence`.

use super::id;
use crate::{Shop, code, err, out, said};

#[test]
fn an_erased_key_has_no_payload_anywhere() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    let args = ["erase", "--key", "order/2", "--reason", "request 7"];
    let dry = shop.operate(&[&args[..], &["--dry-run", "--output", "json"]].concat());
    let dry: serde_json::Value = serde_json::from_str(&out(&dry)).unwrap();
    assert_eq!(
        (&dry["outbox"], &dry["waiting"], &dry["total"], &dry["erased"]),
        (&2.into(), &1.into(), &3.into(), &false.into()),
        "{dry}"
    );
    assert_eq!(shop.number("select count(*) from outbox where erased_at is not null"), 0);
    // Where nobody can be asked, nothing is said to be gone.
    let unasked = shop.operate(&args);
    assert_eq!(code(&unasked), 2);
    assert!(said(&unasked).contains("3 payloads would be erased"), "{}", err(&unasked));
    let done = shop.json(&[&args[..], &["--yes"]].concat());
    assert_eq!(done["erased"], true, "{done}");
    let shown = shop.json(&["outbox", "show", &id(4)]);
    assert_eq!((&shown["erased"], &shown["payload"]), (&true.into(), &serde_json::Value::Null));
    let again = shop.json(&[&args[..], &["--yes"]].concat());
    assert_eq!(again["total"], 0, "{again}");
    let nothing = shop.operate(&["erase", "--key", "order/2", "--reason", "again", "--yes"]);
    assert!(said(&nothing).contains("retention has taken from the outbox"), "{}", err(&nothing));
    let missing = shop.operate(&["erase", "--key", "order/2", "--yes"]);
    assert_eq!(code(&missing), 2);
    assert!(said(&missing).contains("--reason"), "{}", err(&missing));
    assert!(shop.answer(&["audit"]).contains("request 7"));
}

#[test]
fn a_sequence_that_fell_behind_is_raised() {
    let shop = Shop::delivered();
    shop.connect()
        .execute_batch("update sqlite_sequence set seq = 1 where name = 'outbox'")
        .unwrap();
    shop.connect().execute("delete from outbox where seq > 1", ()).unwrap();
    let run = shop.json(&["repair", "sequence", "--yes", "--reason", "restored"]);
    assert_eq!(run["before"], 1, "{run}");
    assert!(run["after"].as_u64().unwrap() >= 6, "{run}");
    shop.commit(7..=7);
    let before = shop.arrived().len();
    shop.carry();
    assert_eq!(shop.arrived()[before..], [id(7)]);
}

#[test]
fn a_copy_is_adopted() {
    let shop = Shop::delivered();
    let (file, copy) = (shop.path("shop.db"), shop.path("copy.db"));
    shop.connect().execute("vacuum into ?1", [copy.to_str().unwrap()]).unwrap();
    for beside in ["-wal", "-shm"] {
        _ = std::fs::remove_file(shop.path(&format!("shop.db{beside}")));
    }
    std::fs::rename(copy, file).unwrap();
    // Nobody who starts one more relay gets any further.
    let status = shop.operate(&["status", "--rate", "0"]);
    let said = out(&status).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("a copy") && said.contains("postrider adopt --reason"), "{said}");
    assert!(code(&status) == 6 && !said.contains("no relay is alive"), "{said}");
    let run = shop.operate(&["adopt", "--yes", "--reason", "moved to db2"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert!(shop.answer(&["audit"]).contains("moved to db2"));
    assert!(!out(&shop.operate(&["status", "--rate", "0"])).contains("adopt"));
}
