//! What is counted of a broker, a subscription, and a receiver, each of which answers as it is told.

use std::sync::Mutex;

use postrider_core::subscription::{Origin, Receipt};
use postrider_core::{DestinationId, Error, ErrorKind, EventId, Route};

use super::*;

/// Answers as it was told; not at all, if it was told nothing.
struct Told(Mutex<Vec<Result<Vec<Outcome>>>>);

impl Broker for Told {
    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities::least()
    }

    fn system(&self) -> &'static str {
        "kafka"
    }

    fn publish<'a>(&'a self, _: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        let answer = self.0.lock().unwrap().pop();
        Box::pin(async {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }
}

fn event(number: u128) -> Arc<Event> {
    Arc::new(Event::new(EventId::from_u128(number), "order", "1", "order.placed"))
}

fn batch(topic: &str, count: u128) -> Vec<Outgoing> {
    (0..count).map(|number| Outgoing::new(event(number), topic)).collect()
}

/// A destination with two routes: to a topic by its name, and to one that the event decides.
fn destination() -> Destination {
    let route = |topic: &str| Route::all(topic.parse().unwrap());
    let routes = vec![route("orders"), route("shop.{key}"), route("https://hooks.example/secret")];
    Destination::new(DestinationId::new("queue").unwrap(), "kafka", routes)
}

fn metered(answers: Vec<Result<Vec<Outcome>>>) -> (Arc<Metrics>, Arc<dyn Broker>) {
    let metrics = Arc::new(Metrics::of(catalog::of_relay()));
    let broker: Arc<dyn Broker> = Arc::new(Told(Mutex::new(answers)));
    let mut destinations = [(destination(), broker)];
    wrap(&metrics, &mut destinations);
    let [(_, broker)] = destinations;
    (metrics, broker)
}

fn assert_told(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.text();
    for line in lines {
        assert!(text.lines().any(|told| told == *line), "{line} is not in\n{text}");
    }
}

/// Each attempt of each event is counted by how it ended, with the labels that the conventions require.
#[tokio::test]
async fn what_is_sent_is_counted_by_the_conventions() {
    let fault = |kind| Fault::new(kind, "no");
    let mixed = vec![
        Outcome::Acked,
        Outcome::Rejected(fault(ErrorKind::TooLarge)),
        Outcome::Retry { fault: fault(ErrorKind::Timeout), after: None },
        Outcome::Skipped,
    ];
    let lost = Err(Error::new(ErrorKind::Unavailable, "publish"));
    let (metrics, broker) = metered(vec![lost, Ok(mixed), Ok(vec![Outcome::Acked; 3])]);
    broker.publish(&batch("orders", 3)).await.unwrap();
    broker.publish(&batch("shop.ann@example.org", 4)).await.unwrap();
    broker.publish(&batch("orders", 2)).await.unwrap_err();
    let send = "messaging_client_sent_messages_total{messaging_operation_name=\"send\",messaging_system=\"kafka\"";
    let orders = ",messaging_destination_name=\"orders\"";
    let duration = "messaging_client_operation_duration_seconds_count{messaging_operation_name=\"send\",\
                    messaging_operation_type=\"send\",messaging_system=\"kafka\"";
    assert_told(
        &metrics,
        &[
            "# TYPE messaging_client_sent_messages counter",
            "# TYPE messaging_client_operation_duration_seconds histogram",
            &format!("{send}{orders}}} 3"),
            &format!("{send}}} 1"),
            &format!("{send},error_type=\"too_large\"}} 1"),
            &format!("{send},error_type=\"timeout\"}} 1"),
            &format!("{send}{orders},error_type=\"unavailable\"}} 2"),
            &format!("{duration}{orders}}} 3"),
            &format!("{duration}{orders},error_type=\"unavailable\"}} 2"),
        ],
    );
    assert!(!metrics.text().contains("ann@example.org"), "{}", metrics.text());
}

/// The engine drops a call at its deadline: that is an attempt as well, of which nobody knows how it ended.
#[tokio::test]
async fn a_call_that_is_dropped_is_counted() {
    let (metrics, broker) = metered(Vec::new());
    let events = batch("https://hooks.example/secret", 2);
    let call = broker.publish(&events);
    tokio::time::timeout(Duration::ZERO, call).await.unwrap_err();
    let send = "messaging_client_sent_messages_total{messaging_operation_name=\"send\",messaging_system=\"kafka\"";
    assert_told(&metrics, &[&format!("{send},error_type=\"dropped\"}} 2")]);
    assert!(!metrics.text().contains("secret"), "{}", metrics.text());
}

/// The conventions recommend these bounds, and say so of both histograms.
#[test]
fn durations_have_the_buckets_of_the_conventions() {
    let metrics = Metrics::of(catalog::of_sidecar());
    let work = Duration::from_millis(60);
    metrics.observe_all(catalog::PROCESS, &["process", "kafka", "", "", ""], work, 1);
    let text = metrics.text();
    let bounds: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("messaging_process_duration_seconds_bucket{le=\""))
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert_eq!(
        bounds,
        [
            "0.005", "0.01", "0.025", "0.05", "0.075", "0.1", "0.25", "0.5", "0.75", "1.0", "2.5",
            "5.0", "7.5", "10.0", "+Inf"
        ]
    );
}

/// A subscription with one delivery, and a receiver, which answer as they were told.
struct Door {
    delivery: Delivery,
    name: HandlerName,
    verdicts: Mutex<Vec<Result<Verdict>>>,
}

impl Subscription for Door {
    fn capabilities(&self) -> SubscriptionCapabilities {
        SubscriptionCapabilities::least(Duration::from_secs(30))
    }

    fn receive(&self, _: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async { Ok(vec![self.delivery.clone(); 2]) })
    }

    fn ack<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn nack<'a>(&'a self, _: &'a Delivery, _: Duration, _: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(Error::new(ErrorKind::Fenced, "nack")) })
    }

    fn reject<'a>(&'a self, _: &'a Delivery, _: &'a Fault) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn extend<'a>(&'a self, _: &'a Delivery, _: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

impl Receiver for Door {
    fn handler(&self) -> &HandlerName {
        &self.name
    }

    fn receive<'a>(&'a self, _: &'a Arc<Event>, _: &'a Delivery) -> BoxFuture<'a, Result<Verdict>> {
        let verdict = self.verdicts.lock().unwrap().pop().unwrap();
        Box::pin(async { verdict })
    }
}

/// Deliveries are counted once, answers and work by how they ended; waiting is no work.
#[tokio::test]
async fn what_a_sidecar_does_is_counted_by_the_conventions() {
    let receipt = Receipt { message: 1, token: 1 };
    let mut delivery = Delivery::new(Ok(event(1)), Arc::from("orders"), receipt);
    let mut origin = Origin::new("kafka");
    origin.group = Some("billing".into());
    delivery.origin = Some(origin);
    let fault = Fault::new(ErrorKind::Rejected, "no");
    let verdicts = vec![
        Ok(Verdict::Done),
        Ok(Verdict::Reject(fault.clone())),
        Ok(Verdict::Busy { retry_in: Duration::ZERO }),
        Err(Error::new(ErrorKind::Unavailable, "claim")),
    ];
    let calls = verdicts.len();
    let name = HandlerName::new("billing").unwrap();
    let door = Arc::new(Door { delivery: delivery.clone(), name, verdicts: Mutex::new(verdicts) });
    let metrics = Arc::new(Metrics::of(catalog::of_sidecar()));
    let names = Names::of(["orders".to_owned()]);
    let subscription = MeteredSubscription {
        metrics: Arc::clone(&metrics),
        names: names.clone(),
        subscription: Arc::<Door>::clone(&door),
    };
    let receiver = MeteredReceiver { metrics: Arc::clone(&metrics), names, receiver: door };
    subscription.receive(2).await.unwrap();
    for _ in 0..calls {
        // The verdicts are looked at in the figures.
        let _ = receiver.receive(&event(1), &delivery).await;
    }
    subscription.ack(&delivery).await.unwrap();
    subscription.nack(&delivery, Duration::ZERO, true).await.unwrap_err();
    subscription.reject(&delivery, &fault).await.unwrap();
    let of = "messaging_system=\"kafka\",messaging_consumer_group_name=\"billing\",\
              messaging_destination_name=\"orders\"";
    let settle = |name: &str| {
        format!(
            "messaging_client_operation_duration_seconds_count{{messaging_operation_name=\"{name}\",\
             messaging_operation_type=\"settle\",{of}"
        )
    };
    let process = format!(
        "messaging_process_duration_seconds_count{{messaging_operation_name=\"process\",{of}"
    );
    assert_told(
        &metrics,
        &[
            &format!(
                "messaging_client_consumed_messages_total{{messaging_operation_name=\"receive\",{of}}} 2"
            ),
            &format!("{process}}} 1"),
            &format!("{process},error_type=\"rejected\"}} 1"),
            &format!("{process},error_type=\"unavailable\"}} 1"),
            &format!("{}}} 1", settle("ack")),
            &format!("{},error_type=\"fenced\"}} 1", settle("nack")),
            &format!("{}}} 1", settle("reject")),
        ],
    );
    assert_eq!(metrics.text().matches("messaging_process_duration_seconds_count{").count(), 3);
}

/// However many topics a configuration names, so many stand in labels, and none by accident.
#[test]
fn names_are_bounded() {
    let names = Names::of((0..1_000).map(|number| format!("topic-{number:04}")));
    assert_eq!(names.0.len(), NAMES_MAX);
    assert_eq!((names.label("topic-0007"), names.label("topic-0999")), ("topic-0007", ""));
}
