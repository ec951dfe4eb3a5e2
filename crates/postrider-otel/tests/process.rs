//! Process: a span per delivery, which says what the receiver answered, and is current meanwhile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{SpanId, SpanKind, TraceContextExt as _};
use opentelemetry_sdk::trace::Sampler;
use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{
    BoxFuture, Delivery, Error, ErrorKind, Event, Fault, HandlerName, NewEvent, Result,
};
use postrider_otel::{Traced as _, current_headers, resume};
use postrider_sqlite::Transactional;

use crate::bench::{
    Bench, NOT_SAMPLED, SAMPLED, SPAN, TRACE, attribute, delivery, event, failed, follows, outcome,
};

/// Answers with what it is given, and remembers in which span it ran.
struct Given {
    name: HandlerName,
    answer: fn() -> Result<Verdict>,
    span: Mutex<Option<(SpanId, bool)>>,
}

impl Given {
    fn new(answer: fn() -> Result<Verdict>) -> Arc<Given> {
        let name = HandlerName::new("billing").unwrap();
        Arc::new(Given { name, answer, span: Mutex::default() })
    }
}

impl Receiver for Given {
    fn handler(&self) -> &HandlerName {
        &self.name
    }

    fn receive<'a>(&'a self, _: &'a Arc<Event>, _: &'a Delivery) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            let context = Context::current();
            let span = context.span().span_context().clone();
            *self.span.lock().unwrap() = Some((span.span_id(), span.is_sampled()));
            (self.answer)()
        })
    }
}

fn fault() -> Fault {
    Fault::new(ErrorKind::Unavailable, "payment of ann@example.org failed")
}

#[tokio::test]
async fn every_verdict_is_on_its_span() {
    type Case = (fn() -> Result<Verdict>, &'static str, bool);
    let cases: [Case; 6] = [
        (|| Ok(Verdict::Done), "done", false),
        (|| Ok(Verdict::Duplicate), "duplicate", false),
        (|| Ok(Verdict::Busy { retry_in: Duration::ZERO }), "busy", false),
        (|| Ok(Verdict::Retry { after: None, fault: fault(), tries: None }), "retry", true),
        (|| Ok(Verdict::Reject(fault())), "rejected", true),
        (|| Err(Error::new(ErrorKind::Unavailable, "claim")), "failed", true),
    ];
    for (answer, expected, fails) in cases {
        let bench = Bench::new();
        let given = Given::new(answer);
        let receiver = bench.tracing().receiver(Arc::<Given>::clone(&given));
        let event = Arc::new(event(Some(SAMPLED)));
        let answered = receiver.receive(&event, &delivery(&event, 2)).await;
        assert_eq!(answered.ok(), answer().ok(), "{expected}");
        let [span] = &bench.spans()[..] else { panic!("{:?}", bench.spans()) };
        assert_eq!((&*span.name, &span.span_kind), ("process billing", &SpanKind::Consumer));
        assert_eq!((outcome(span).as_str(), failed(span)), (expected, fails));
        assert_eq!(attribute(span, "error.type").as_deref(), fails.then_some("unavailable"));
        assert_eq!(span.span_context.trace_id().to_string(), TRACE);
        assert!(follows(span, SpanId::from_hex(SPAN).unwrap()));
        assert_eq!(attribute(span, "postrider.attempt").as_deref(), Some("2"));
        assert_eq!(attribute(span, "messaging.destination.name").as_deref(), Some("orders"));
        assert!(!format!("{span:?}").contains("ann@example.org"), "{span:?}");
        let current = given.span.lock().unwrap().unwrap();
        assert_eq!(current, (span.span_context.span_id(), true), "the receiver ran in it");
    }
}

/// What is not sampled has no span and stays so; what is no context is as good as none.
#[tokio::test]
async fn a_context_that_is_not_sampled_or_none_is_no_hindrance() {
    let bench = Bench::with_sampler(Sampler::AlwaysOn);
    let given = Given::new(|| Ok(Verdict::Done));
    let receiver = bench.tracing().receiver(Arc::<Given>::clone(&given));
    let unsampled = Arc::new(event(Some(NOT_SAMPLED)));
    receiver.receive(&unsampled, &delivery(&unsampled, 1)).await.unwrap();
    assert_eq!(bench.spans().len(), 0);
    let current = given.span.lock().unwrap().unwrap();
    assert_eq!(current, (SpanId::from_hex(SPAN).unwrap(), false));
    for parent in [None, Some("00-no-context-01")] {
        let event = Arc::new(event(parent));
        assert_eq!(receiver.receive(&event, &delivery(&event, 1)).await.unwrap(), Verdict::Done);
    }
    let spans = bench.spans();
    assert_eq!(spans.len(), 2);
    assert!(spans.iter().all(|span| span.parent_span_id == SpanId::INVALID));
}

/// A handler that is stopped or panics leaves a span that ended.
#[tokio::test]
async fn a_handler_that_does_not_answer_leaves_a_span_that_ended() {
    let bench = Bench::new();
    let event = Arc::new(event(Some(SAMPLED)));
    let receiver = bench.tracing().receiver(Given::new(|| Ok(Verdict::Done)));
    let delivery = delivery(&event, 1);
    let mut stopped = receiver.receive(&event, &delivery);
    std::future::poll_fn(|context| {
        assert!(stopped.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    drop(stopped);
    let panics = bench.tracing().receiver(Given::new(|| panic!("as a handler may")));
    let (event, delivery) = (Arc::clone(&event), delivery.clone());
    let task = tokio::spawn(async move { panics.receive(&event, &delivery).await });
    assert!(task.await.unwrap_err().is_panic());
    let kinds: Vec<(String, Option<String>)> =
        bench.spans().iter().map(|span| (outcome(span), attribute(span, "error.type"))).collect();
    let unknown = |kind: &str| ("unknown".to_owned(), Some(kind.to_owned()));
    assert_eq!(kinds, [unknown("dropped"), unknown("panic")]);
}

/// A transactional handler runs in a thread of its store: what it enqueues is a child of its span.
#[tokio::test]
async fn a_handler_in_a_thread_of_its_own_resumes_its_span() {
    let bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("billing.db");
    postrider_sqlite::init(&path).unwrap();
    let (made, tracing) = (Arc::new(Mutex::new(Vec::new())), bench.tracing());
    let keep = Arc::clone(&made);
    let name = HandlerName::new("billing").unwrap();
    let billing = Transactional::new(&path, name, move |_, event| {
        let _span = resume(event);
        let invoice = NewEvent::new("invoice", "7", "invoice.issued").traced_by(&tracing);
        keep.lock().unwrap().push(invoice.event().clone());
        Ok(Verdict::Done)
    });
    let receiver = bench.tracing().receiver(Arc::new(billing.unwrap()));
    let event = Arc::new(event(Some(SAMPLED)));
    assert_eq!(receiver.receive(&event, &delivery(&event, 1)).await.unwrap(), Verdict::Done);
    let [create, process] = &bench.spans()[..] else { panic!("{:?}", bench.spans()) };
    assert_eq!(create.parent_span_id, process.span_context.span_id());
    assert_eq!(create.span_context.trace_id().to_string(), TRACE);
    let made = made.lock().unwrap();
    assert!(made[0].headers["traceparent"].contains(&create.span_context.span_id().to_string()));
}

/// Outside of a delivery, the event's own context takes the place of its span; without one, nothing
/// changes.
#[test]
fn outside_of_a_delivery_the_creation_is_resumed() {
    let current = || Context::map_current(|context| context.span().span_context().span_id());
    let event = event(Some(SAMPLED));
    {
        let _span = resume(&event);
        assert_eq!(current().to_string(), SPAN);
        // What a request from here takes along.
        assert_eq!(current_headers(), event.headers);
        let _none = resume(&crate::bench::event(None));
        assert_eq!(current().to_string(), SPAN);
    }
    assert_eq!(current(), SpanId::INVALID);
    assert!(current_headers().is_empty());
}
