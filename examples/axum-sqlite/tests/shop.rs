//! The service, over a real socket.

#![expect(clippy::unwrap_used, reason = "a test says by failing what is wrong")]

use example_axum_sqlite::{Shop, router};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn post(address: std::net::SocketAddr, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /orders HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// R002, R023, R024: an order and its event, both or neither; the request sends nothing itself.
#[tokio::test]
async fn an_order_and_its_event_commit_together() {
    let folder = tempfile::tempdir().unwrap();
    let (shop, relay) = Shop::open(folder.path()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, router(shop)).await });

    let placed = post(address, r#"{"id": 42, "total_cents": 1250}"#).await;
    assert!(placed.starts_with("HTTP/1.1 201"), "{placed}");
    // The same order again is refused, and tells nobody anything.
    let refused = post(address, r#"{"id": 42, "total_cents": 1}"#).await;
    assert!(refused.starts_with("HTTP/1.1 409"), "{refused}");
    let placed = post(address, r#"{"id": 43, "total_cents": 990}"#).await;
    assert!(placed.starts_with("HTTP/1.1 201"), "{placed}");

    let mut health = relay.health();
    health.wait_for(|health| health.delivered == 2).await.unwrap();
    relay.drain();
    relay.stopped().await;
    serving.abort();
    let lines = std::fs::read_to_string(folder.path().join("events.ndjson")).unwrap();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.contains(r#""data":{"order_id":42,"total_cents":1250}"#), "{lines}");
}
