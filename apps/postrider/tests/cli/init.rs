//! `postrider init`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::{Shop, code, err, out};

#[test]
fn doing_it_again_changes_nothing_and_says_so() {
    let shop = Shop::bare();
    let first = shop.run(&["init", "sqlite://shop.db"]);
    assert!(err(&first).contains("created the tables"), "{}", err(&first));
    shop.place(1..4);
    let again = shop.run(&["init", "--store", "sqlite://shop.db"]);
    assert_eq!((code(&again), out(&again).as_str()), (0, ""));
    assert!(err(&again).contains("nothing was changed"), "{}", err(&again));
    let rows: u32 =
        shop.connect().query_row("select count(*) from outbox", (), |row| row.get(0)).unwrap();
    assert_eq!(rows, 3);
}

#[test]
fn printed_sql_makes_the_same_tables_and_touches_nothing() {
    let shop = Shop::bare();
    let printed = shop.run(&["init", "--print", "sqlite://shop.db"]);
    assert_eq!(code(&printed), 0);
    assert!(!shop.path("shop.db").exists(), "--print made a file");
    let shell = Command::new("sqlite3")
        .arg(shop.path("shop.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let Ok(mut shell) = shell else {
        println!("skipped: printed_sql_makes_the_same_tables: there is no sqlite3 shell");
        return;
    };
    shell.stdin.take().unwrap().write_all(&printed.stdout).unwrap();
    assert!(shell.wait().unwrap().success());
    shop.place(1..3);
    let relayed = shop.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&relayed), 0, "{}", err(&relayed));
    assert_eq!(out(&relayed).lines().count(), 2);
}
