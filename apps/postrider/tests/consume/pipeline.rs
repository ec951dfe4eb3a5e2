//! The whole way: a transaction, the outbox, the relay, the broker, the sidecar, the endpoint.

use std::process::Stdio;
use std::sync::Mutex;

use postrider_core::Jitter;
use tokio::process::Command;

use crate::endpoint::{Endpoint, Plan};
use crate::history::assert_one_effect_each;
use crate::stage::{OUTLIVED, Stage, TOPIC};

/// Commits orders in the shop's database, every fourth of them rolled back.
fn place(stage: &Stage, orders: u32) {
    postrider_sqlite::init(stage.path("shop.db")).unwrap();
    let mut shop = postrider_sqlite::connect(stage.path("shop.db")).unwrap();
    for order in 1..=orders {
        let tx = shop.transaction().unwrap();
        tx.execute(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
             values ('order', ?1, ?2, '{\"cents\": 1250}')",
            ((order % 8).to_string(), TOPIC),
        )
        .unwrap();
        match order % 4 {
            0 => tx.rollback().unwrap(),
            _ => tx.commit().unwrap(),
        }
    }
    let mut committed = shop.prepare("select id, aggregate_id from outbox order by seq").unwrap();
    let rows = committed.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    for row in rows {
        let (id, order): (String, String) = row.unwrap();
        stage.was_placed(id.parse().unwrap(), format!("order/{order}"));
    }
}

/// INV-1, INV-2, INV-3, INV-4: what was committed is acted on once, in its key's order, and what was
/// rolled back is not, though the relay is killed, the sidecar is killed, and the endpoint fails.
#[tokio::test]
async fn what_was_committed_is_acted_on_once_in_order() {
    let stage = Stage::new();
    place(&stage, 120);
    let dice = Mutex::new(Jitter::seeded(20_265));
    let endpoint = Endpoint::start(move |_, _| match dice.lock().unwrap().bits() % 10 {
        0 => Plan::status(503),
        1 => Plan::ActThen(Box::new(Plan::Cut)),
        _ => Plan::done(),
    })
    .await;
    let relay = |more: &[&str]| {
        let mut relay = Command::new(env!("CARGO_BIN_EXE_postrider"));
        relay
            .args(["relay", "--store", "sqlite://shop.db", "--to", "local://queue.db"])
            .args(more)
            .current_dir(stage.folder.path())
            .env("TMPDIR", stage.folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        for name in postrider_testkit::services::variables() {
            relay.env_remove(name);
        }
        relay
    };
    let mut first = relay(&[]).spawn().unwrap();
    let sidecar =
        stage.sidecar(&endpoint, &[&["--concurrency", "3"], &OUTLIVED[..]].concat()).await;
    endpoint.called(20).await;
    first.kill().await.unwrap();
    sidecar.kill().await;
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    assert!(relay(&["--once"]).status().await.unwrap().success());
    stage.settled().await;
    sidecar.stop().await;
    assert_eq!(endpoint.effects().len(), 90);
    assert_one_effect_each(&stage, &endpoint).await;
}

/// What is logged as JSON names the event, its key, the handler, the attempt, and the status.
#[tokio::test]
async fn a_log_line_says_which_event_and_what_became_of_it() {
    let stage = Stage::new();
    let refused = stage.place("1").await;
    let endpoint = Endpoint::start(|_, _| Plan::status(422)).await;
    let sidecar = stage.sidecar(&endpoint, &["--log-format", "json"]).await;
    stage.settled().await;
    let ended = sidecar.stop().await;
    for (message, end) in [("not handled", ",\"status\":422"), ("dead letter", "}")] {
        let told = format!(
            "\"message\":\"{message}\",\"event\":\"{refused}\",\"key\":\"order/1\",\
             \"handler\":\"billing\",\"attempt\":1{end}"
        );
        assert!(ended.text.contains(&told), "{}", ended.text);
    }
    // A reader of JSON keeps the last of two fields with one name.
    let lines = ended.text.split("{\"timestamp\"").skip(1);
    assert!(lines.clone().count() >= 3, "{}", ended.text);
    for line in lines {
        assert_eq!(line.matches("\"message\":").count(), 1, "{line}");
    }
}
