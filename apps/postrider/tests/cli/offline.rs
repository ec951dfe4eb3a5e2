//! `postrider demo` on a machine without a network, an account, or anything installed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Shop, code, err};

/// How long a scenario of faults may take.
const SCENARIO_MAX: Duration = Duration::from_secs(30);

/// Whether a process may have a network of its own, in which there is nothing.
fn can_cut_off() -> bool {
    let tried = Command::new("unshare").args(["--map-root-user", "--net", "true"]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// R109: with an empty environment and without any network, not even the loopback, the demo runs
/// with all its faults.
#[test]
fn the_demo_needs_no_network_and_no_account() {
    if !can_cut_off() {
        eprintln!("skipped: this machine gives no network of one's own");
        return;
    }
    let shop = Shop::bare();
    let program = env!("CARGO_BIN_EXE_postrider");
    let run = Command::new("unshare")
        .args(["--map-root-user", "--net", program, "demo", "--json", "--orders", "24"])
        .env_clear()
        .env("TMPDIR", shop.folder.path())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(shop.folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert!(err(&run).contains("killed"), "its faults were played: {}", err(&run));
}

/// R110: the demo with all its faults ends by itself within half a minute.
#[test]
fn the_demo_ends_within_half_a_minute() {
    let shop = Shop::bare();
    let begun = Instant::now();
    let run = shop.run(&["demo", "--json", "--seed", "5"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert!(begun.elapsed() < SCENARIO_MAX, "{:?}", begun.elapsed());
}
