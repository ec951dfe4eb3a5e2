//! Sidecars that do what is there and end, and what machines see of one that goes on.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::endpoint::{Endpoint, Plan};
use crate::history::assert_one_effect_each;
use crate::sidecar::Sidecar;
use crate::stage::Stage;

/// One request, and the whole answer.
async fn get(address: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// R038: with `--once` a sidecar does what is there, and ends with 0; what became a dead letter ends it with 3.
#[tokio::test]
async fn once_does_what_is_there_and_ends() {
    let stage = Stage::new();
    // One is tried again before it is over.
    let endpoint = Endpoint::start(|call, before| match (&*call.event.aggregate_id, before) {
        ("2", 0) => Plan::status(503),
        _ => Plan::done(),
    })
    .await;
    for key in ["1", "2", "3"] {
        stage.place(key).await;
    }
    let once = ["--once", "--idle", "1s", "--lease", "1s"];
    let ended = Sidecar::start(stage.command(&endpoint.url(), &once)).ended().await;
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert_one_effect_each(&stage, &endpoint).await;
    // With nothing there it ends as well.
    let ended = Sidecar::start(stage.command(&endpoint.url(), &once)).ended().await;
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let refusing = Endpoint::start(|_, _| Plan::status(422)).await;
    stage.place("4").await;
    let ended = Sidecar::start(stage.command(&refusing.url(), &once)).ended().await;
    assert_eq!(ended.code, Some(3), "{}", ended.text);
    assert_eq!(stage.dead().await.len(), 1);
}

/// What a sidecar did and what it holds is served, with a token if there is one; and who holds it up.
#[tokio::test]
async fn metrics_and_health_are_served() {
    let stage = Stage::new();
    let endpoint = Endpoint::willing().await;
    std::fs::write(stage.path("token"), "hunter2").unwrap();
    std::fs::write(stage.path("postrider.toml"), "[observe]\ntoken = \"file:token\"\n").unwrap();
    let more = ["--config", "postrider.toml", "--listen", "127.0.0.1:0", "--lease", "1s"];
    let mut sidecar = Sidecar::start(stage.command(&endpoint.url(), &more));
    let line = sidecar.hear("metrics and health on http://").await;
    let address = line.rsplit("http://").next().unwrap().trim().to_owned();
    stage.place("1").await;
    endpoint.called(1).await;
    stage.settled().await;
    assert!(get(&address, "/metrics", "wrong").await.starts_with("HTTP/1.1 401"));
    let text = get(&address, "/metrics", "hunter2").await;
    for words in [
        "postrider_handled_events_total{handler=\"billing\",outcome=\"done\"} 1",
        "postrider_received_events_total{handler=\"billing\"} 1",
        "postrider_sidecar_state{handler=\"billing\",state=\"receiving\"} 1",
        "postrider_held_events{handler=\"billing\",state=\"working\"} 0",
        "messaging_client_consumed_messages_total{messaging_operation_name=\"receive\",messaging_system=\"",
        "messaging_process_duration_seconds_count{messaging_operation_name=\"process\",messaging_system=\"",
        "messaging_client_operation_duration_seconds_count{messaging_operation_name=\"ack\",\
         messaging_operation_type=\"settle\",messaging_system=\"",
    ] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    assert!(!text.contains("postrider_relay_state"), "{text}");
    assert!(get(&address, "/readyz", "hunter2").await.starts_with("HTTP/1.1 200"));
    let ended = sidecar.stop().await;
    assert!(!ended.text.contains("hunter2"), "{}", ended.text);
    // Nobody listens there.
    let more = ["--listen", "127.0.0.1:0", "--lease", "1s"];
    let mut sidecar = Sidecar::start(stage.command("http://127.0.0.1:9/events", &more));
    let line = sidecar.hear("metrics and health on http://").await;
    let address = line.rsplit("http://").next().unwrap().trim().to_owned();
    stage.place("2").await;
    let begun = Instant::now();
    let text = loop {
        let text = get(&address, "/readyz", "").await;
        if text.starts_with("HTTP/1.1 503") {
            break text;
        }
        assert!(begun.elapsed() < Duration::from_secs(40), "{text}");
        // waits: another process tells nobody that its endpoint is away
        tokio::time::sleep(Duration::from_millis(25)).await;
    };
    assert!(text.contains("\"blocked\"") && text.contains("endpoint http://127.0.0.1:9"), "{text}");
    sidecar.stop().await;
}
