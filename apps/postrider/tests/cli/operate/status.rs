//! `postrider status` and `doctor`: what flows, and who holds up what does not.

use crate::{Shop, code, err, out, said};

#[test]
fn nothing_to_do_is_healthy_also_without_a_relay() {
    let shop = Shop::delivered();
    let run = shop.operate(&["status", "--rate", "0"]);
    assert_eq!(code(&run), 0, "{}", out(&run));
    assert!(out(&run).contains("healthy"), "{}", out(&run));
}

#[test]
fn the_screen_fits() {
    let shop = Shop::delivered();
    shop.bury(&[3], "dead");
    shop.commit(7..=9);
    let run = shop.operate(&["status", "--rate", "0"]);
    let screen = out(&run);
    assert_eq!(code(&run), 6, "{screen}");
    assert!(screen.lines().count() <= 24, "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    shop.golden("status.txt", &screen);
    let json = shop.operate(&["status", "--rate", "0", "--output", "json"]);
    shop.golden("status.json", &out(&json));
}

/// INV-8: whoever holds events up is named, with the command that helps.
#[test]
fn whoever_holds_events_up_is_named() {
    let shop = Shop::delivered();
    shop.commit(7..=9);
    let named = |shop: &Shop| {
        let run = shop.operate(&["status", "--rate", "0", "--output", "json"]);
        let status: serde_json::Value = serde_json::from_str(&out(&run)).unwrap();
        let kinds: Vec<String> = status["held_up_by"]
            .as_array()
            .unwrap()
            .iter()
            .map(|blocker| blocker["kind"].as_str().unwrap().to_owned())
            .collect();
        (code(&run), kinds, status)
    };
    let (exit, kinds, status) = named(&shop);
    assert_eq!((exit, &*kinds), (6, &["no_relay".to_owned()][..]), "{status}");
    shop.pretend_alive();
    let (exit, kinds, status) = named(&shop);
    assert_eq!((exit, &*kinds), (6, &["unknown".to_owned()][..]), "{status}");
    shop.answer(&["destinations", "pause", "default"]);
    let (exit, kinds, status) = named(&shop);
    assert_eq!((exit, &*kinds[0]), (6, "destination_paused"), "{status}");
    shop.answer(&["destinations", "resume", "default"]);
    shop.answer(&["partitions", "pause", "0"]);
    let (exit, kinds, status) = named(&shop);
    assert_eq!((exit, &*kinds), (6, &["partition_paused".to_owned()][..]), "{status}");
    shop.answer(&["partitions", "resume", "0"]);
    shop.carry();
    shop.bury(&[3], "dead");
    let (exit, kinds, status) = named(&shop);
    assert!(kinds.contains(&"dead_letters".to_owned()), "{status}");
    let text = status.to_string();
    assert!(text.contains("holds 1 key") && text.contains("postrider dead ls"), "{text}");
    assert_eq!(exit, 0, "{status}");
    let strict = shop.operate(&["status", "--rate", "0", "--strict"]);
    assert_eq!(code(&strict), 6, "{}", out(&strict));
}

#[test]
fn a_backlog_is_shown_by_route() {
    let shop = Shop::delivered();
    shop.commit(7..=9);
    let status = shop.operate(&["status", "--rate", "0", "--output", "json"]);
    let status: serde_json::Value = serde_json::from_str(&out(&status)).unwrap();
    let row = &status["backlog"][0];
    assert_eq!((&row["topic"], &row["count"]), (&"{event_type}".into(), &3.into()), "{status}");
}

#[test]
fn two_readings_give_rates() {
    let shop = Shop::delivered();
    let status = shop.json(&["status", "--rate", "50ms"]);
    assert_eq!(status["enqueued_per_second"], 0.0, "{status}");
    assert_eq!(status["destinations"][0]["acked_per_second"], 0.0, "{status}");
    let once = shop.json(&["status", "--rate", "0"]);
    assert!(once["enqueued_per_second"].is_null(), "{once}");
}

#[test]
fn watching_needs_a_terminal_or_lines() {
    let shop = Shop::delivered();
    let run = shop.operate(&["status", "--watch"]);
    assert_eq!(code(&run), 2, "{}", err(&run));
    assert!(said(&run).contains("--output ndjson"), "{}", err(&run));
}

#[test]
fn doctor_says_what_to_do() {
    let shop = Shop::delivered();
    let run = shop.operate(&["doctor"]);
    assert!(code(&run) == 0 || code(&run) == 6, "{}", err(&run));
    assert!(!out(&run).is_empty());
    assert!(out(&run).lines().all(|line| line.chars().count() <= 80), "{}", out(&run));
    let json = shop.operate(&["doctor", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&out(&json)).unwrap();
    for row in json["rows"].as_array().unwrap() {
        assert!(["good", "warning", "critical"].contains(&row["level"].as_str().unwrap()), "{row}");
    }
}
