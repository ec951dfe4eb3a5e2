//! The contract suite that every broker passes, in both modes, against a server that verifies what
//! it gets. Its failures are real ones: a 422, and a connection closed in place of an answer.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Event, EventId, Format, Outcome, Outgoing, Result,
};
use postrider_testkit::suite::BrokerHarness;
use postrider_webhook::receive::Received;
use postrider_webhook::signature::TOLERANCE;
use postrider_webhook::{Endpoint, UrlTopics, WebhookBroker};

use crate::support::*;

#[derive(Clone, Default)]
struct Orders {
    refused: Arc<Mutex<HashSet<String>>>,
    lose_next: Arc<AtomicBool>,
}

impl Orders {
    async fn serve(&self) -> Server {
        let orders = self.clone();
        Server::start(Arc::new(move |got| {
            let id = got.header("webhook-id").unwrap();
            if orders.refused.lock().unwrap().contains(id) {
                return Some(status(422));
            }
            let lost = orders.lose_next.swap(false, Ordering::AcqRel);
            (!lost).then(|| status(204))
        }))
        .await
    }
}

/// What the server took and did not refuse, as a receiver reads it.
fn read(server: &Server, orders: &Orders, path: &str) -> Vec<Arc<Event>> {
    let refused = orders.refused.lock().unwrap();
    let read = |got: Got| {
        let received = Received::verify(&got.headers, got.body, &verifying(), TOLERANCE).unwrap();
        Arc::new(received.event().unwrap().0)
    };
    let got = server.got().into_iter().filter(|got| got.path == path);
    got.map(read).filter(|event| !refused.contains(&event.id.to_string())).collect()
}

mod structured {
    use super::*;

    struct Names {
        orders: Orders,
        server: Server,
    }

    impl BrokerHarness for Names {
        async fn start() -> Names {
            let orders = Orders::default();
            Names { server: orders.serve().await, orders }
        }

        fn broker(&self) -> Arc<dyn Broker> {
            let endpoint =
                |name: &str| Endpoint::new(self.server.url(&format!("/{name}"))).key(key());
            let settings = settings()
                .endpoint("orders", endpoint("orders"))
                .endpoint("refunds", endpoint("refunds"));
            Arc::new(WebhookBroker::new(&settings).unwrap())
        }

        fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
            Box::pin(async move { read(&self.server, &self.orders, &format!("/{topic}")) })
        }

        fn refuse(&self, id: EventId) -> bool {
            self.orders.refused.lock().unwrap().insert(id.to_string())
        }

        fn lose_next_answer(&self) -> bool {
            self.orders.lose_next.store(true, Ordering::Release);
            true
        }
    }

    postrider_testkit::broker_suite!(Names);
}

mod binary {
    use super::*;

    struct Urls {
        orders: Orders,
        server: Server,
    }

    /// Sends everything in binary mode.
    struct InBinary(WebhookBroker);

    impl Broker for InBinary {
        fn capabilities(&self) -> BrokerCapabilities {
            self.0.capabilities()
        }

        fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
            Box::pin(async move {
                let binary =
                    |outgoing: &Outgoing| Outgoing { format: Format::Binary, ..outgoing.clone() };
                let batch: Vec<_> = batch.iter().map(binary).collect();
                self.0.publish(&batch).await
            })
        }

        fn close(&self) -> BoxFuture<'_, Result<()>> {
            self.0.close()
        }
    }

    impl BrokerHarness for Urls {
        async fn start() -> Urls {
            let orders = Orders::default();
            Urls { server: orders.serve().await, orders }
        }

        fn broker(&self) -> Arc<dyn Broker> {
            let urls = Some(UrlTopics { keys: vec![key()], headers: Vec::new() });
            let settings = postrider_webhook::WebhookSettings { urls, ..settings() };
            Arc::new(InBinary(WebhookBroker::new(&settings).unwrap()))
        }

        fn topic(&self, name: &str) -> Arc<str> {
            Arc::from(self.server.url(&format!("/{name}")))
        }

        fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
            let path = &topic[self.server.url("").len()..];
            Box::pin(async move { read(&self.server, &self.orders, path) })
        }

        fn refuse(&self, id: EventId) -> bool {
            self.orders.refused.lock().unwrap().insert(id.to_string())
        }

        fn lose_next_answer(&self) -> bool {
            self.orders.lose_next.store(true, Ordering::Release);
            true
        }
    }

    postrider_testkit::broker_suite!(Urls);
}
