//! The examples in other languages, by their READMEs' own words.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::running::{Running, until};
use crate::{Shop, code, err};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// Whether Python is there. Where it is not, the test says that it was skipped.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
fn python() -> bool {
    let found = Command::new("python3").arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: python3 is not on this machine");
    }
    found
}

/// A Python program of an example that says where it listens.
fn listening(
    shop: &Shop,
    program: &Path,
    args: &[&str],
    variables: &[(&str, &str)],
) -> (Running, String) {
    // What it prints goes to standard error, which is read.
    let mut command = Command::new("sh");
    command.args(["-c", "exec python3 \"$@\" >&2", "sh"]).arg(program).args(args);
    command.envs(variables.iter().copied()).current_dir(shop.path(""));
    let mut running = Running::start(command);
    let line = running.wait_for("listening on ");
    let port = line.rsplit(' ').next().unwrap().to_owned();
    (running, port)
}

/// R006: an application that INSERTs, and a handler in Python behind the sidecar.
#[test]
fn a_python_application_and_a_python_handler() {
    if !python() {
        return;
    }
    let shop = Shop::new();
    for order in ["42", "43"] {
        let program = example("python/shop.py");
        let mut place = Command::new("python3");
        place.arg(program).arg(shop.path("shop.db")).args([order, "1250"]);
        assert!(place.status().unwrap().success(), "order {order}");
    }
    let relayed = shop.relay(&["--to", "local://queue.db", "--once"]);
    assert_eq!(code(&relayed), 0, "{}", err(&relayed));
    assert_eq!(code(&shop.run(&["init", "sqlite://billing.db"])), 0);
    let (handler, port) = listening(&shop, &example("python/handler.py"), &["0", "bills.db"], &[]);
    let to = format!("http://127.0.0.1:{port}/events");
    let consume = Running::start(shop.command(&[
        "consume",
        "--from",
        "local://queue.db/order.*",
        "--group",
        "billing",
        "--handler",
        "billing",
        "--inbox",
        "sqlite://billing.db",
        "--to",
        &to,
    ]));
    let bills = || {
        let database = rusqlite::Connection::open(shop.path("bills.db")).unwrap();
        let sql = "select count(*) from bills where total_cents = 1250";
        database.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap_or(0)
    };
    until("both orders are billed", || bills() == 2);
    assert!(consume.stop().success());
    drop(handler);
}

/// Signed webhooks to partners, out of the example's own configuration.
#[test]
fn webhooks_reach_partners_who_verify_them() {
    if !python() {
        return;
    }
    let shop = Shop::new();
    let key = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let keys = [("PARTNER_KEY", key)];
    let partner = example("partners/partner.py");
    let (mut acme, acme_port) = listening(&shop, &partner, &["0"], &keys);
    let (globex, globex_port) = listening(&shop, &partner, &["0", "--gone"], &keys);
    let text = std::fs::read_to_string(example("partners/postrider.toml")).unwrap();
    let text = text.replace("8001", &acme_port).replace("8002", &globex_port);
    std::fs::write(shop.path("postrider.toml"), text).unwrap();
    for tenant in ["acme", "globex"] {
        let enqueued = shop.run(&[
            "enqueue",
            "--store",
            "sqlite://shop.db",
            "--tenant",
            tenant,
            "--aggregate-type",
            "order",
            "--aggregate-id",
            "42",
            "--type",
            "order.placed",
            "--payload",
            "{\"total_cents\": 1250}",
        ]);
        assert_eq!(code(&enqueued), 0, "{}", err(&enqueued));
    }
    let mut command = shop.command(&["relay", "--config", "postrider.toml", "--once"]);
    let run = command.env("ACME_KEY", key).env("GLOBEX_KEY", key).output().unwrap();
    // One partner wants nothing any more: his event waits.
    assert_eq!(code(&run), 3, "{}", err(&run));
    acme.wait_for("order.placed {\"total_cents\": 1250}");
    let dead = shop.run(&[
        "dead",
        "ls",
        "--status",
        "disabled",
        "--config",
        "postrider.toml",
        "--output",
        "ndjson",
    ]);
    assert!(crate::out(&dead).contains("globex"), "{}", crate::out(&dead));
    drop((acme, globex));
}
