//! `postrider chaos`: each scenario does its damage the wrong way and holds with us, and each is seen to
//! fail when our half is played the wrong way as well.

use std::time::{Duration, Instant};

use postrider_testkit::services;
use serde_json::Value;

use crate::{Shop, code, err, out, said};

/// The promise of every scenario.
const TOOK_MAX: Duration = Duration::from_secs(30);

/// Plays a scenario and returns its report, which is the only line of standard output.
fn play(name: &str, more: &[&str]) -> (i32, Value) {
    play_as(name, more, "")
}

/// The same as somebody, by a key of AWS.
fn play_as(name: &str, more: &[&str], key: &str) -> (i32, Value) {
    let (shop, began) = (Shop::bare(), Instant::now());
    let mut command = shop.command(&[&["chaos", "run", name, "--json"], more].concat());
    if !key.is_empty() {
        command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", key);
    }
    let run = command.output().unwrap();
    assert!(began.elapsed() < TOOK_MAX, "{name} took {:?}", began.elapsed());
    let text = out(&run);
    assert_eq!(text.lines().count(), 1, "{text}{}", err(&run));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["scenario"], name);
    // What is left in its temporary folder.
    assert_eq!(std::fs::read_dir(shop.folder.path()).unwrap().count(), 0, "{name}");
    (code(&run), report)
}

/// Plays a scenario that has to hold, and returns what it judged.
fn holds(name: &str) -> Vec<String> {
    let (code, report) = play(name, &[]);
    assert_eq!((code, &report["holds"]), (0, &Value::Bool(true)), "{report:#}");
    judgements(&report)
}

fn judgements(report: &Value) -> Vec<String> {
    let lines = report["story"].as_array().unwrap();
    let judged = lines.iter().filter(|line| line["holds"] == true);
    judged.map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn says(judged: &[String], expected: &[&str]) {
    for text in expected {
        assert!(judged.iter().any(|line| line.contains(text)), "{text}: {judged:#?}");
    }
}

/// Every scenario's name, and the stores that it is played on.
fn listed() -> Vec<(String, Vec<String>)> {
    listed_by("stores")
}

/// Every scenario's name, and the stores or brokers that it can have.
fn listed_by(what: &str) -> Vec<(String, Vec<String>)> {
    let shop = Shop::bare();
    let list = shop.run(&["chaos", "list", "--json"]);
    assert_eq!(code(&list), 0, "{}", err(&list));
    let lines = out(&list);
    let scenarios = lines.lines().map(|line| {
        let scenario: Value = serde_json::from_str(line).unwrap();
        let kinds = scenario[what].as_array().unwrap();
        let kinds = kinds.iter().map(|kind| kind.as_str().unwrap().to_owned()).collect();
        (scenario["name"].as_str().unwrap().to_owned(), kinds)
    });
    scenarios.collect()
}

/// R110, R111, R079, R083: with a claim of 10 s and a visibility of 5 s, two answers are `leased`, the message
/// stays queued, and then there is one charge.
#[test]
fn a_stuck_claim_is_leased_twice_and_then_charged_once() {
    let judged = holds("stuck-claim");
    says(&judged, &["charged 0 times", "two answers were `leased`", "charged once"]);
}

/// R110, R112, R113, R097: a row deleted by hand and a redrive charge twice; with the inbox as a guard, once.
#[test]
fn a_manual_fix_charges_twice_without_the_guard() {
    let judged = holds("manual-fix");
    let expected = ["charged 2 times", "without a reason is refused", "tombstone and an audit row"];
    says(&judged, &expected);
}

/// R110: within half a minute.
#[test]
fn a_lost_answer_is_sent_again_and_absorbed() {
    says(&holds("lost-ack"), &["charged 2 times", "each customer was charged once"]);
}

/// R110, R113: what is marked as sent before it is sent is lost; here it arrives after all.
#[test]
fn a_premature_mark_loses_what_was_never_sent() {
    says(
        &holds("premature-mark"),
        &["it is lost", "nothing says that it was", "arrived after all"],
    );
}

/// R110, R113, R086: an id that is minted at each try passes every inbox; ours is minted once.
#[test]
fn a_regenerated_key_passes_the_inbox() {
    says(&holds("regenerated-key"), &["two ids: 2 charges", "one id", "charged once"]);
}

/// R110, R113, R088, R089: an effect before its record is made twice; a step asks with the same key.
#[test]
fn an_effect_before_the_inbox_happens_twice() {
    let judged = holds("effect-before-inbox");
    says(&judged, &["charged 2 times", "with the same key", "one row, with its marker"]);
}

/// R110, R113: a trimmed stream has a gap that nobody sees; an outbox keeps what somebody still needs.
#[test]
fn a_trimmed_stream_has_a_gap() {
    let judged = holds("stream-gap");
    says(&judged, &["nobody noticed", "still needs was deleted", "every change arrived"]);
}

/// R110: within half a minute.
#[test]
fn a_poison_message_holds_up_its_own_key_alone() {
    says(&holds("poison"), &["nothing else ever will", "one dead letter", "in their order"]);
}

/// R110: within half a minute.
#[test]
fn two_relays_do_not_send_twice() {
    says(&holds("two-relays"), &["each went out twice", "the other took over", "went out once"]);
}

/// R110: within half a minute.
#[test]
fn a_broker_that_is_down_loses_nothing() {
    says(&holds("broker-down"), &["told to the world", "no attempt was counted", "was told"]);
}

/// The negative control: a scenario that cannot fail proves nothing.
#[test]
fn every_scenario_is_seen_to_fail_without_its_guard() {
    let names = listed();
    assert_eq!(names.len(), 10, "{names:?}");
    for (name, _) in names {
        let (code, report) = play(&name, &["--sabotage"]);
        assert_eq!((code, &report["holds"]), (1, &Value::Bool(false)), "{report:#}");
        let lines = report["story"].as_array().unwrap();
        let broken: Vec<&Value> = lines.iter().filter(|line| line["holds"] == false).collect();
        assert!(!broken.is_empty() && broken.iter().all(|line| line["half"] == "right"), "{name}");
    }
}

/// Each has a page, which is there; each file of the scenario list is on the guide's page.
#[test]
fn every_scenario_names_a_page_that_is_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_to_string(root.join("docs/guide/chaos.md")).unwrap();
    let shop = Shop::bare();
    let list = shop.run(&["chaos", "list", "--json"]);
    for line in out(&list).lines() {
        let scenario: Value = serde_json::from_str(line).unwrap();
        let (name, page) = (scenario["name"].as_str().unwrap(), scenario["page"].as_str().unwrap());
        assert!(root.join(page).is_file(), "{name}: {page}");
        assert!(guide.contains(&format!("### `{name}`")), "{name} is not in the guide");
    }
}

#[test]
fn people_read_a_story_with_times() {
    let shop = Shop::bare();
    let run = shop.run(&["chaos", "run", "regenerated-key"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    let text = out(&run);
    for expected in
        ["the wrong way:", "with Postrider:", " s  ✓ damage:", " s  ✓ held:", "read docs/"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b'), "colours without a terminal");
}

#[test]
fn what_cannot_be_played_is_said() {
    let shop = Shop::bare();
    for (args, exit, expected) in [
        (&["stuck-clam"][..], 2, "did you mean `stuck-claim`?"),
        (&["poison", "--store", "sqlite://a.db"], 78, "an address of PostgreSQL or DynamoDB"),
        (&["poison", "--store", "postgres://h/d?schema=mine"], 78, "a schema of its own"),
        (&["manual-fix", "--store", "postgres://h/d"], 2, "is not played on this kind of store"),
        (&["poison", "--broker", "kafka://k:9092"], 78, "chaos takes an address of SQS"),
        #[cfg(not(feature = "aws"))]
        (&["poison", "--broker", "sqs://eu-west-1"], 78, "built without AWS"),
        #[cfg(feature = "aws")]
        (&["poison", "--broker", "sqs://eu-west-1/mine"], 78, "queues of its own"),
        #[cfg(feature = "aws")]
        (&["two-relays", "--broker", "sqs://eu-west-1"], 2, "is not played by queues of a service"),
    ] {
        let run = shop.run(&[&["chaos", "run"], args].concat());
        assert_eq!(code(&run), exit, "{args:?}: {}", err(&run));
        assert!(said(&run).contains(expected), "{args:?}: {}", err(&run));
    }
}

/// Plays all that a kind of store can have on a server.
#[allow(clippy::print_stdout, reason = "a skipped test says why")]
fn play_on(kind: &str, test: &str, address: Result<String, String>) {
    let address = match address {
        Ok(address) => address,
        Err(reason) => {
            println!("skipped: {test}: {reason}");
            return;
        }
    };
    let names = listed().into_iter().filter(|(_, stores)| stores.iter().any(|s| s == kind));
    let names: Vec<String> = names.map(|(name, _)| name).collect();
    assert!(!names.is_empty(), "{kind}");
    for name in names {
        let (code, report) = play(&name, &["--store", &address]);
        assert_eq!((code, &report["store"]), (0, &kind.into()), "{report:#}");
    }
}

/// R110, R111: the same on a real server, in a schema that is gone afterwards.
#[test]
fn every_scenario_that_can_be_is_played_on_postgresql() {
    let test = "every_scenario_that_can_be_is_played_on_postgresql";
    play_on("postgres", test, services::postgres());
}

/// R110, R111: the same with the inbox on DynamoDB, which has no clock.
#[cfg(feature = "dynamodb")]
#[test]
fn every_scenario_that_can_be_is_played_on_dynamodb() {
    let test = "every_scenario_that_can_be_is_played_on_dynamodb";
    let address = services::url("ddb").map(|url| format!("dynamodb://?endpoint={url}"));
    play_on("dynamodb", test, address);
}

/// `None`, with the reason printed, where there is no server.
#[cfg(feature = "dynamodb")]
#[allow(clippy::print_stdout, reason = "a skipped test says why")]
fn dynamodb(test: &str) -> Option<String> {
    let url = services::url("ddb");
    url.inspect_err(|reason| println!("skipped: {test}: {reason}")).ok()
}

/// Those that are played on DynamoDB alone in a way of its own are seen to fail there as well.
#[cfg(feature = "dynamodb")]
#[test]
fn what_is_played_on_dynamodb_is_seen_to_fail_without_its_guard() {
    let Some(url) = dynamodb("what_is_played_on_dynamodb_is_seen_to_fail_without_its_guard") else {
        return;
    };
    for name in ["stream-gap", "poison"] {
        let address = format!("dynamodb://?endpoint={url}");
        let (code, report) = play(name, &["--sabotage", "--store", &address]);
        assert_eq!((code, &report["store"]), (1, &"dynamodb".into()), "{report:#}");
    }
}

/// Plays by queues of SQS, and looks whether they are gone.
#[cfg(feature = "aws")]
fn play_by_sqs(name: &str, more: &[&str]) -> (i32, Value) {
    let Some(account) = crate::aws::Account::open() else { return (-1, Value::Null) };
    let url = services::url("aws").unwrap();
    let address = format!("sqs://us-east-1?endpoint={url}");
    let (code, report) = play_as(name, &[&["--broker", &address], more].concat(), &account.key);
    assert_eq!(report["broker"], "sqs", "{report:#}");
    let left = account.ask("ListQueues", &serde_json::json!({}));
    assert!(left["QueueUrls"].as_array().is_none_or(Vec::is_empty), "{name}: {left}");
    (code, report)
}

/// R110, R111, R112, R097: the same by queues of SQS, with its own visibility, redrive policy, and task that moves
/// dead letters; and each is seen to fail there without its guard.
#[cfg(feature = "aws")]
#[test]
fn every_scenario_whose_broker_matters_is_played_by_sqs() {
    let names = listed_by("brokers").into_iter();
    let names: Vec<String> =
        names.filter(|(_, by)| by.iter().any(|by| by == "sqs")).map(|(name, _)| name).collect();
    assert_eq!(names, ["stuck-claim", "manual-fix", "lost-ack", "poison"]);
    for name in names {
        for (more, exit) in [(&[][..], 0), (&["--sabotage"][..], 1)] {
            let (code, report) = play_by_sqs(&name, more);
            if code < 0 {
                return;
            }
            assert_eq!((code, &report["holds"]), (exit, &(exit == 0).into()), "{report:#}");
        }
    }
}

/// R110: from DynamoDB to SQS.
#[cfg(all(feature = "aws", feature = "dynamodb"))]
#[test]
fn a_lost_answer_is_absorbed_between_dynamodb_and_sqs() {
    let test = "a_lost_answer_is_absorbed_between_dynamodb_and_sqs";
    let Some(url) = dynamodb(test) else { return };
    let address = format!("dynamodb://?endpoint={url}");
    let (code, report) = play_by_sqs("lost-ack", &["--store", &address]);
    assert!(code < 0 || (code == 0 && report["store"] == "dynamodb"), "{report:#}");
}
