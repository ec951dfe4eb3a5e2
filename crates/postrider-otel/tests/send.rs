//! Send: a span per event and attempt, which says what the broker answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::trace::Sampler;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, DestinationId, Error, ErrorKind, Event, Fault, Format,
    Marks, Outcome, Outgoing, Result,
};
use postrider_otel::{TracedBroker, Tracing};

use crate::bench::{Bench, NOT_SAMPLED, SAMPLED, SPAN, TRACE, attribute, event, failed, outcome};

/// Answers with what it was given, then never.
struct Scripted(Mutex<VecDeque<Result<Vec<Outcome>>>>);

impl Broker for Scripted {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut capabilities = BrokerCapabilities::least();
        capabilities.batch_rows_max = 17;
        capabilities
    }

    fn publish<'a>(&'a self, _: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        let answer = self.0.lock().unwrap().pop_front();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }
}

fn broker(
    tracing: &Tracing,
    answers: impl IntoIterator<Item = Result<Vec<Outcome>>>,
) -> TracedBroker {
    let scripted = Scripted(Mutex::new(answers.into_iter().collect()));
    tracing.broker(&DestinationId::new("partners").unwrap(), Arc::new(scripted))
}

fn outgoing(event: Event, topic: &str) -> Outgoing {
    Outgoing {
        event: Arc::new(event),
        topic: Arc::from(topic),
        format: Format::default(),
        layout: None,
        marks: Marks { late: true, replay: false },
        attempt: 3,
    }
}

fn fault() -> Fault {
    Fault::new(ErrorKind::Rejected, "no such customer: ann@example.org")
}

/// Each outcome stands on its span; failures are errors, and their words are shown on request alone.
#[tokio::test]
async fn every_outcome_is_on_its_span() {
    let cases = [
        (Outcome::Acked, "acked", false),
        (Outcome::Skipped, "skipped", false),
        (Outcome::Retry { fault: fault(), after: None }, "retry", true),
        (Outcome::Rejected(fault()), "rejected", true),
        (Outcome::Unroutable(fault()), "unroutable", true),
        (Outcome::Hindered(fault()), "hindered", true),
        (Outcome::Gone(fault()), "gone", true),
    ];
    for detailed in [false, true] {
        let bench = Bench::new();
        let tracing = if detailed { bench.tracing().detailed() } else { bench.tracing() };
        let answer: Vec<Outcome> = cases.iter().map(|(outcome, ..)| outcome.clone()).collect();
        let broker = broker(&tracing, [Ok(answer.clone())]);
        let batch = vec![outgoing(event(Some(SAMPLED)), "orders"); cases.len()];
        assert_eq!(broker.publish(&batch).await.unwrap(), answer);
        assert_eq!(broker.capabilities().batch_rows_max, 17);
        broker.close().await.unwrap();
        let spans = bench.spans();
        assert_eq!(spans.len(), cases.len());
        for (span, (_, expected, fails)) in spans.iter().zip(&cases) {
            assert_eq!((outcome(span).as_str(), failed(span)), (*expected, *fails));
            let kind = attribute(span, "error.type");
            assert_eq!(kind.as_deref(), fails.then_some("rejected"), "{expected}");
            assert_eq!(format!("{span:?}").contains("ann@"), detailed && *fails, "{expected}");
        }
    }
}

#[tokio::test]
async fn a_span_says_what_was_sent_where() {
    let bench = Bench::new();
    let broker = broker(&bench.tracing(), [Ok(vec![Outcome::Acked])]);
    broker.publish(&[outgoing(event(Some(SAMPLED)), "orders")]).await.unwrap();
    let [span] = &bench.spans()[..] else { panic!("{:?}", bench.spans()) };
    assert_eq!((&*span.name, &span.span_kind), ("send partners", &SpanKind::Client));
    assert_eq!(span.span_context.trace_id().to_string(), TRACE);
    assert_eq!(span.parent_span_id.to_string(), SPAN);
    assert!(span.parent_span_is_remote);
    assert_eq!(span.links[0].span_context.span_id().to_string(), SPAN);
    for (name, expected) in [
        ("messaging.system", Some("postrider")),
        ("messaging.operation.type", Some("send")),
        ("messaging.destination.name", Some("orders")),
        ("cloudevents.event_source", Some("/shop")),
        ("postrider.destination", Some("partners")),
        ("postrider.attempt", Some("3")),
        ("postrider.late", Some("true")),
        ("postrider.replay", None),
        ("postrider.key", None),
    ] {
        assert_eq!(attribute(span, name).as_deref(), expected, "{name}");
    }
}

/// An address may be a secret, and a topic may hold the key.
#[tokio::test]
async fn topics_are_shown_without_secrets_and_keys() {
    let bench = Bench::new();
    let answers = vec![Outcome::Acked; 2];
    let batch = [
        outgoing(event(Some(SAMPLED)), "https://hooks.example/hunter2"),
        outgoing(event(Some(SAMPLED)), "orders.42"),
    ];
    broker(&bench.tracing(), [Ok(answers)]).publish(&batch).await.unwrap();
    let topics: Vec<Option<String>> =
        bench.spans().iter().map(|span| attribute(span, "messaging.destination.name")).collect();
    assert_eq!(topics, [Some("https://hooks.example".to_owned()), None]);
}

/// What names no event is unknown for all of them, and so is a call that is dropped.
#[tokio::test]
async fn failures_that_name_no_event_and_dropped_calls_are_unknown() {
    let bench = Bench::new();
    let error = Error::new(ErrorKind::Timeout, "publish").message("no answer in time");
    let broker = broker(&bench.tracing(), [Err(error)]);
    let batch = vec![outgoing(event(Some(SAMPLED)), "orders"); 2];
    assert_eq!(broker.publish(&batch).await.unwrap_err().kind(), ErrorKind::Timeout);
    let mut never = broker.publish(&batch);
    assert!(poll_once(&mut never).await.is_none());
    assert_eq!(bench.spans().len(), 2, "those under way have not ended");
    drop(never);
    let spans = bench.spans();
    let said = |span| (outcome(span), attribute(span, "error.type").unwrap(), failed(span));
    let unknown = |kind: &str| ("unknown".to_owned(), kind.to_owned(), true);
    assert_eq!(spans[..2].iter().map(said).collect::<Vec<_>>(), vec![unknown("timeout"); 2]);
    assert_eq!(spans[2..].iter().map(said).collect::<Vec<_>>(), vec![unknown("dropped"); 2]);
}

async fn poll_once<T>(future: &mut BoxFuture<'_, T>) -> Option<T> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// Events without a valid, sampled context flow without a span, whatever the sampler wants.
#[tokio::test]
async fn events_that_are_not_sampled_flow_without_a_span() {
    let bench = Bench::with_sampler(Sampler::AlwaysOn);
    let contexts = [None, Some(NOT_SAMPLED), Some("no context"), Some(SAMPLED)];
    let batch = contexts.map(|context| outgoing(event(context), "orders"));
    let answer = vec![Outcome::Acked; batch.len()];
    let broker = broker(&bench.tracing(), [Ok(answer.clone())]);
    assert_eq!(broker.publish(&batch).await.unwrap(), answer);
    // The control: the sampled one has one.
    assert_eq!(bench.spans().len(), 1);
}
