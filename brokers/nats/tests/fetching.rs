//! What came before the server had to break off.

use std::time::Duration;

use postrider_core::Subscription;
use postrider_nats::{NatsBroker, NatsSubscription, SubscriptionSettings};
use postrider_testkit::carry::until_acked;
use tokio::time::timeout;

use crate::publishing::event;
use crate::raw::Raw;
use crate::server::Server;

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
    assert_eq!(timeout(PATIENCE, holding.receive(1)).await.unwrap().unwrap().len(), 1);
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
    let came = timeout(PATIENCE, subscription.receive(8)).await.unwrap().unwrap();
    let came: Vec<u64> = came.iter().map(|delivery| delivery.receipt.message).collect();
    assert_eq!(came, [2]);
    let told = timeout(PATIENCE, subscription.receive(8)).await.unwrap().unwrap_err();
    assert!(told.to_string().contains("Leadership Change"), "{told}");
    breaking_off.join().unwrap();
}
