//! Producers without any library of ours: plain INSERTs by other programs.

use std::process::Command;

use crate::{Shop, code, err, events, orders, out};

/// R001, R002: what another program committed is told, and what it rolled back is not.
#[test]
fn plain_inserts_of_other_programs_are_delivered() {
    let insert = "insert into outbox (aggregate_type, aggregate_id, event_type, payload) \
                  values ('order', '%', 'order.placed', '{}');";
    let row = |id: &str| insert.replace('%', id);
    let sql = format!(
        "begin; {} {} commit; begin; {} rollback; {}",
        row("1"),
        row("2"),
        row("ghost"),
        row("3")
    );
    let python = "import sqlite3, sys\n\
                  c = sqlite3.connect('shop.db', isolation_level=None)\n\
                  for s in sys.argv[1].split(';'): c.execute(s)\n";
    let programs: [(&str, Vec<&str>); 2] =
        [("sqlite3", vec!["shop.db", &sql]), ("python3", vec!["-c", python, &sql])];
    for (program, args) in programs {
        let shop = Shop::new();
        let ran = Command::new(program).args(args).current_dir(shop.folder.path()).output();
        let Ok(ran) = ran else {
            println!("skipped: plain_inserts_of_other_programs: there is no {program}");
            continue;
        };
        if !ran.status.success() && err(&ran).contains("No module named") {
            println!("skipped: plain_inserts_of_other_programs: {program} has no sqlite3");
            continue;
        }
        assert!(ran.status.success(), "{program}: {}", err(&ran));
        let run = shop.relay(&["--to", "stdout", "--once"]);
        assert_eq!(code(&run), 0, "{program}: {}", err(&run));
        assert_eq!(orders(&events(&out(&run))), ["1", "2", "3"], "{program}");
    }
}
