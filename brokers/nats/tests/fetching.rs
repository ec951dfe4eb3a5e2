//! What came before the server had to break off.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::Subscription;
use postrider_nats::{NatsBroker, NatsSubscription, SubscriptionSettings};
use postrider_testkit::carry::until_acked;
use tokio::time::timeout;

use crate::publishing::event;
use crate::raw::Raw;
use crate::server::{Server, received};

const PATIENCE: Duration = Duration::from_secs(20);

/// INV-1, INV-3: deliveries that came before the consumer's leader changed are handed out, and are not kept from everybody until
/// they come again behind later ones of their keys. That it changed is told next.
#[tokio::test]
async fn what_came_before_an_error_is_handed_out() {
    let Some(server) = Server::start() else { return };
    server.stream("orders", "orders").await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    for number in 1..=2 {
        until_acked(&broker, "orders", &event("1", number, 10)).await;
    }
    let open = async || {
        let mut settings = SubscriptionSettings::new("orders", "billing");
        settings.unsettled_max = 2;
        NatsSubscription::open(server.settings(), settings).await.unwrap()
    };
    // While one is in work elsewhere, the server gives one of the two that it is asked for, and holds its answer open.
    let (holding, subscription) = (open().await, open().await);
    assert_eq!(received(&holding, 1).await.len(), 1);
    let mut raw = Raw::connect(&server, None);
    raw.say(b"SUB $JS.API.CONSUMER.MSG.NEXT.orders.billing 1\r\nSUB raw 2\r\n");
    raw.heard();
    let breaking_off = std::thread::spawn(move || {
        let asked = raw.line();
        assert!(raw.line().contains("batch"));
        let inbox = asked.split(' ').nth(3).unwrap();
        let mut info = String::new();
        while !info.contains(r#""num_ack_pending":2"#) {
            raw.say(b"PUB $JS.API.CONSUMER.INFO.orders.billing raw 0\r\n\r\n");
            assert!(raw.line().starts_with("MSG raw"));
            info = raw.line();
        }
        raw.publish(inbox.as_bytes(), b" 409 Leadership Change", "");
    });
    let came = received(&subscription, 8).await;
    let came: Vec<u64> = came.iter().map(|delivery| delivery.receipt.message).collect();
    assert_eq!(came, [2]);
    let told = timeout(PATIENCE, subscription.receive(8)).await.unwrap().unwrap_err();
    assert!(told.to_string().contains("Leadership Change"), "{told}");
    breaking_off.join().unwrap();
}

/// INV-3: a process that stood still while its answer came hands out what came, when it is woken, and does not leave it to come again
/// behind later ones of its keys. Its clocks went on meanwhile, so by then every time that it waits is over.
#[tokio::test]
async fn what_came_while_the_process_stood_still_is_handed_out() {
    let Some(server) = Server::start() else { return };
    server.stream("orders", "orders").await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let mut settings = server.settings();
    settings.deadline = Duration::from_secs(1);
    let named = SubscriptionSettings::new("orders", "billing");
    let subscription = Arc::new(NatsSubscription::open(settings, named).await.unwrap());
    for number in 1..=3 {
        until_acked(&broker, "orders", &event("1", number, 10)).await;
    }
    assert!(server.signal("-STOP"));
    let receiving = tokio::spawn({
        let subscription = Arc::clone(&subscription);
        async move { subscription.receive(8).await }
    });
    // waits: until it has asked, which the server cannot tell
    tokio::time::sleep(Duration::from_millis(300)).await;
    // waits: so that all tasks of this process stand still
    std::thread::sleep(Duration::from_secs(2));
    let woken = std::thread::spawn(move || {
        // waits: what came meanwhile is to be read a moment after the clocks of the tasks have run out
        std::thread::sleep(Duration::from_millis(20));
        assert!(server.signal("-CONT"));
        server
    });
    let came = timeout(PATIENCE, receiving).await.unwrap().unwrap().unwrap();
    woken.join().unwrap();
    let came: Vec<u64> = came.iter().map(|delivery| delivery.receipt.message).collect();
    assert_eq!(came, [1, 2, 3]);
}
