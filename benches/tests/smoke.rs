//! Every benchmark runs with a handful of rows and prints what programs read.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_postrider-bench"))
        .args(arguments.split_whitespace())
        .output()
        .expect("the benchmark starts")
}

/// Runs a benchmark that must succeed, and reads its one line.
fn run(arguments: &str) -> Value {
    let output = bench(&format!("{arguments} --json"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    let json: Value = serde_json::from_str(&text).unwrap();
    let name = arguments.split_whitespace().next().unwrap();
    assert_eq!(json["name"], name);
    assert_eq!(json["store"], "sqlite");
    assert!(json["rows"].as_u64().is_some_and(|rows| rows > 0), "{json}");
    let ours = json["ours_per_s"].as_f64().unwrap();
    assert!(ours > 0.0, "{json}");
    let baselines = json["baselines"].as_object().unwrap();
    assert!(!baselines.is_empty(), "{json}");
    for (name, rate) in baselines {
        let quotient = ours / rate.as_f64().unwrap();
        let ratio = json["ratios"][name].as_f64().unwrap();
        assert!((ratio - quotient).abs() <= 0.001 + quotient / 1_000.0, "{name}: {json}");
    }
    json
}

#[test]
fn enqueue_compares_with_the_business_alone_in_both_modes_of_durability() {
    let json = run("enqueue --rows 20 --rounds 1");
    assert!(json["baselines"]["business_only"].as_f64().unwrap() > 0.0);
    assert!(json["synchronous_normal"]["ours_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(json["enqueue_many"]["batch"], 100);
}

#[test]
fn drain_compares_with_a_plain_read_and_the_textbook() {
    let json = run("drain --rows 3000 --rounds 1");
    assert_eq!(json["broker"], "noop");
    for baseline in ["plain_read", "textbook", "textbook_batched"] {
        assert!(json["ratios"][baseline].as_f64().unwrap() > 0.0, "{json}");
    }
    // Destinations that stand together share their pages: nothing is read twice.
    assert_eq!(json["relay"]["rows_read"], 3000.0);
    assert!(json["relay"]["fetches"].as_f64().unwrap() >= 3.0);
    assert!(json["relay"]["settlements"].as_f64().unwrap() >= 1.0);
}

#[test]
fn drain_delivers_to_the_local_broker_too() {
    assert_eq!(run("drain --rows 100 --rounds 1 --broker local")["broker"], "local");
}

#[test]
fn memory_compares_a_large_backlog_with_a_small_one() {
    let json = run("memory --rows 500 --rounds 1");
    assert_eq!(json["small_rows"], 50);
    assert!(json["peak_rss_kib"]["large"].as_f64().unwrap() > 1_000.0, "{json}");
    assert!(json["peak_rss_ratio"].as_f64().unwrap() > 0.0, "{json}");
}

#[test]
fn latency_has_percentiles_of_ours_and_of_polling_and_looks_at_an_idle_relay() {
    let json = run("latency --rows 40 --rounds 1 --idle-seconds 1");
    for contender in ["ours", "ours_other_process", "poll_20ms"] {
        let us = &json["latency_us"][contender];
        assert!(us["p50"].as_f64().unwrap() <= us["p99"].as_f64().unwrap(), "{json}");
        assert!(us["max"].as_f64().unwrap() > 0.0, "{json}");
    }
    assert!(json["idle"]["fetches_per_s"].as_f64().is_some());
}

#[test]
fn webhook_compares_with_the_bare_client_to_one_endpoint_and_to_many() {
    let json = run("webhook --rows 300 --rounds 1");
    assert_eq!(json["broker"], "webhook");
    assert!(json["ratios"]["bare_client"].as_f64().unwrap() > 0.0, "{json}");
    let many = &json["endpoints_64"];
    assert!(many["hosts_ratio"].as_f64().unwrap() > 0.0, "{json}");
    assert!(many["paths_ratio"].as_f64().unwrap() > 0.0, "{json}");
    for contender in ["ours", "bare_client", "ours_64_hosts", "ours_64_paths"] {
        let cost = &json["cpu_us_per_delivery"][contender];
        assert!(cost["client"].as_f64().unwrap() > 0.0, "{json}");
        assert!(cost["receiver"].as_f64().unwrap() > 0.0, "{json}");
        assert!(cost["connections"].as_f64().unwrap() >= 1.0, "{json}");
    }
}

#[test]
fn idle_counts_what_a_relay_asks_of_its_store() {
    let json = run("idle --idle-seconds 2");
    assert!(json["calls"]["fetch"].as_f64().unwrap() >= 1.0, "{json}");
    for contender in ["ours", "ours_no_wake", "textbook_poll_500ms", "bare_process"] {
        assert!(json["cpu_seconds_per_minute"][contender].as_f64().is_some(), "{json}");
    }
    if cfg!(target_os = "linux") {
        assert!(json["wake_ups_per_s"]["ours"].as_f64().unwrap() > 0.0, "{json}");
    }
}

#[test]
fn start_delivers_what_was_committed_before_and_after_a_kill_too() {
    let json = run("start --rounds 2");
    assert_eq!(json["binary"], "this one");
    for contender in ["ours", "ours_after_kill", "bare_process"] {
        let ms = &json["start_ms"][contender];
        assert_eq!(ms["starts"], 2, "{json}");
        assert!(ms["p50"].as_f64().unwrap() <= ms["p99"].as_f64().unwrap(), "{json}");
        assert!(ms["p50"].as_f64().unwrap() > 0.0, "{json}");
    }
}

#[test]
fn without_a_name_the_benchmarks_are_listed() {
    let output = bench("");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for name in ["enqueue", "drain", "memory", "latency", "webhook", "idle", "start"] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn without_json_there_is_a_table() {
    let output = bench("enqueue --rows 5 --rounds 1");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("business_only"), "{text}");
    assert!(serde_json::from_str::<Value>(&text).is_err());
}

#[test]
fn what_does_not_exist_is_refused() {
    for wrong in [
        "nothing",
        "drain --store oracle",
        "drain --rows 0",
        "enqueue --broker local",
        "start --binary",
        // It says where the peer's jars come from.
        "peer --store postgres",
    ] {
        let output = bench(wrong);
        assert!(!output.status.success(), "{wrong}");
        assert!(!output.stderr.is_empty(), "{wrong}");
    }
}
