//! Create: what an event takes along from the place where it is enqueued.

use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanKind, TraceContextExt as _, TraceFlags, TraceState, Tracer as _,
    TracerProvider as _,
};
use opentelemetry_sdk::trace::Sampler;
use postrider_core::{EventLimits, NewEvent};
use postrider_otel::{Traced as _, Tracing};

use crate::bench::{Bench, NOT_SAMPLED, SAMPLED, attribute};

fn order() -> NewEvent {
    NewEvent::new("order", "42", "order.placed")
}

/// In a span, the event has a span of its own below it, and carries its context.
#[test]
fn an_event_carries_the_context_of_its_creation() {
    let bench = Bench::new();
    let event = bench
        .provider
        .tracer("shop")
        .in_span("POST /orders", |_| order().traced_by(&bench.tracing()));
    let [create, request] = &bench.spans()[..] else { panic!("{:?}", bench.spans()) };
    let context = &create.span_context;
    let expected = format!("00-{}-{}-01", request.span_context.trace_id(), context.span_id());
    assert_eq!(event.event().headers["traceparent"], expected);
    assert!(!event.event().headers.contains_key("tracestate"));
    assert_eq!(create.parent_span_id, request.span_context.span_id());
    assert_eq!((&*create.name, &create.span_kind), ("create order.placed", &SpanKind::Producer));
    for (name, expected) in [
        ("messaging.system", "postrider".to_owned()),
        ("messaging.operation.name", "create".to_owned()),
        ("messaging.operation.type", "create".to_owned()),
        ("messaging.message.id", event.event().id.to_string()),
        ("cloudevents.event_type", "order.placed".to_owned()),
    ] {
        assert_eq!(attribute(create, name), Some(expected), "{name}");
    }
    let scope = &create.instrumentation_scope;
    assert_eq!(scope.schema_url(), Some("https://opentelemetry.io/schemas/1.43.0"));
    EventLimits::default().check(event.event()).unwrap();
}

/// Without a span around it, the event is the root of a trace, if the sampler wants that.
#[test]
fn an_event_may_begin_a_trace() {
    let bench = Bench::new();
    let event = order().traced_by(&bench.tracing());
    assert!(event.event().headers["traceparent"].ends_with("-01"));
    let bench = Bench::with_sampler(Sampler::AlwaysOff);
    let event = order().traced_by(&bench.tracing());
    assert!(event.event().headers["traceparent"].ends_with("-00"));
    assert_eq!(bench.spans().len(), 0);
}

#[test]
fn a_context_that_was_given_is_left_alone_and_one_that_is_none_is_replaced() {
    let bench = Bench::new();
    let event = order().header("traceparent", SAMPLED).traced_by(&bench.tracing());
    assert_eq!(event.event().headers["traceparent"], SAMPLED);
    assert_eq!(bench.spans().len(), 0);
    let event = order().header("traceparent", "mine").header("tracestate", "old=1");
    let event = event.traced_by(&bench.tracing());
    assert_eq!(event.event().headers["traceparent"].len(), SAMPLED.len());
    assert!(!event.event().headers.contains_key("tracestate"));
}

/// A program without an SDK still passes on what it got.
#[test]
fn without_a_tracer_the_current_context_is_passed_on() {
    let silent = Tracing::global();
    assert!(order().traced_by(&silent).event().headers.is_empty());
    assert!(order().traced().event().headers.is_empty());
    let state = TraceState::from_key_value([("vendor", "x")]).unwrap();
    let (trace, span) = (0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128, 0xb7ad_6b71_6920_3331_u64);
    for (flags, expected) in
        [(TraceFlags::SAMPLED, SAMPLED), (TraceFlags::NOT_SAMPLED, NOT_SAMPLED)]
    {
        let got = SpanContext::new(trace.into(), span.into(), flags, true, state.clone());
        let _current = Context::new().with_remote_span_context(got).attach();
        let event = order().traced_by(&silent);
        assert_eq!(event.event().headers["traceparent"], expected);
        assert_eq!(event.event().headers["tracestate"], "vendor=x");
    }
}

/// Keys may name a person: they are shown on request alone.
#[test]
fn keys_are_shown_on_request_alone() {
    let bench = Bench::new();
    let event = || order().ordered_by("ann@example.org");
    let _plain = event().traced_by(&bench.tracing());
    let _detailed = event().traced_by(&bench.tracing().detailed());
    let [plain, detailed] = &bench.spans()[..] else { panic!("{:?}", bench.spans()) };
    assert!(!format!("{plain:?}").contains("ann@example.org"), "{plain:?}");
    assert_eq!(attribute(detailed, "postrider.key").as_deref(), Some("ann@example.org"));
}
