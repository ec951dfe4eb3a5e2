//! The flow: enqueue, relay, broker, consumer, with both engines, as one trace.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{SpanId, Tracer as _, TracerProvider as _};
use postrider_core::inbox::Receiver;
use postrider_core::{
    Broker, Destination, DestinationId, ErrorKind, Event, HandlerName, InboxStore, NewEvent,
    OutboxSource, Result, Route,
};
use postrider_inbox::{Consumer, Context, Leased, Outcome};
use postrider_otel::{Traced as _, Tracing};
use postrider_relay::{Ending, Relay, Target};
use postrider_testkit::fault::{BrokerAction, FaultyBroker};
use postrider_testkit::memory::{MemoryBroker, MemoryClock, MemoryStore};

use crate::bench::{Bench, attribute, follows, outcome};

const TOPIC: &str = "orders";

struct World {
    store: MemoryStore,
    broker: MemoryBroker,
    faults: Arc<FaultyBroker>,
}

impl World {
    fn new() -> World {
        let clock = MemoryClock::running();
        let broker = MemoryBroker::new(clock.clone());
        let faults = Arc::new(FaultyBroker::new(Arc::new(broker.clone())));
        World { store: MemoryStore::new(1, clock), broker, faults }
    }

    /// Delivers what is committed.
    async fn relay(&self, tracing: &Tracing) {
        let route = Route::all(TOPIC.parse().unwrap());
        let definition =
            Destination::new(DestinationId::new("queue").unwrap(), "memory", vec![route]);
        let faults = Arc::<FaultyBroker>::clone(&self.faults);
        let broker: Arc<dyn Broker> = Arc::new(tracing.broker(&definition.id, faults));
        let source: Arc<dyn OutboxSource> = Arc::new(self.store.clone());
        let relay = Relay::builder(source).destination(definition, broker).target(Target::Once);
        let report = relay.start().await.unwrap().stopped().await;
        assert_eq!(report.ending, Some(Ending::Done), "{report:?}");
    }

    /// Hands so many deliveries to a handler that enqueues in its turn.
    async fn consume(&self, tracing: &Tracing, deliveries: u64) {
        let (store, outer) = (self.store.clone(), tracing.clone());
        let act = move |event: Arc<Event>, _: Context| {
            let (store, tracing) = (store.clone(), outer.clone());
            async move {
                let invoice = NewEvent::new("invoice", &*event.aggregate_id, "invoice.issued");
                store.commit(vec![invoice.traced_by(&tracing)])?;
                Result::Ok(Outcome::done())
            }
        };
        let name = HandlerName::new("billing").unwrap();
        let inbox: Arc<dyn InboxStore> = Arc::new(self.store.clone());
        let leased = Leased::builder(name, inbox, act).build().unwrap();
        let receiver: Arc<dyn Receiver> = Arc::new(tracing.receiver(Arc::new(leased)));
        let subscription = self.broker.subscribe(TOPIC, "billing", Duration::from_secs(30));
        let consumer =
            Consumer::builder(Arc::new(subscription)).receiver(receiver).start().unwrap();
        let stats = consumer.reached(|stats, _| stats.done + stats.duplicates == deliveries).await;
        assert_eq!(stats.done + stats.duplicates, deliveries, "{stats:?}");
        consumer.drain(Duration::from_secs(5));
        consumer.stopped().await;
    }
}

/// One trace over enqueue, relay, and handler, with what the handler enqueues below it. A publish whose
/// answer is lost is another `send`, and the duplicate it makes another `process`, of the same trace.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_one_trace_however_often_it_is_tried() {
    let (bench, world) = (Bench::new(), World::new());
    let tracing = bench.tracing();
    bench.provider.tracer("shop").in_span("POST /orders", |_| {
        let event = NewEvent::new("order", "1", "order.placed").traced_by(&tracing);
        world.store.commit(vec![event]).unwrap();
    });
    world.faults.script.then([BrokerAction::FailAfter(ErrorKind::Timeout)]);
    world.relay(&tracing).await;
    world.consume(&tracing, 2).await;

    let request = &bench.named("POST")[0];
    let creates = bench.named("create");
    let (order, invoice) = (&creates[0], &creates[1]);
    assert_eq!(order.parent_span_id, request.span_context.span_id());
    let creation: SpanId = order.span_context.span_id();
    let (sends, processes) = (bench.named("send queue"), bench.named("process billing"));
    assert_eq!(sends.iter().map(outcome).collect::<Vec<_>>(), ["unknown", "acked"]);
    assert_eq!(processes.iter().map(outcome).collect::<Vec<_>>(), ["done", "duplicate"]);
    assert!(sends.iter().chain(&processes).all(|span| follows(span, creation)));
    assert_eq!(invoice.parent_span_id, processes[0].span_context.span_id());
    let traces = bench
        .spans()
        .iter()
        .all(|span| span.span_context.trace_id() == request.span_context.trace_id());
    assert!(traces, "{:?}", bench.spans());
    let ids: Vec<_> = sends
        .iter()
        .chain(&processes)
        .map(|span| attribute(span, "messaging.message.id"))
        .collect();
    assert!(ids.iter().all(|id| *id == attribute(order, "messaging.message.id")));
}

/// A header that is no context costs nobody anything: the event arrives, as it was.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_context_is_ignored_and_the_event_flows() {
    let (bench, world) = (Bench::new(), World::new());
    let tracing = bench.tracing();
    let wrong = "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01";
    let event = NewEvent::new("order", "1", "order.placed").header("traceparent", wrong);
    world.store.commit(vec![event]).unwrap();
    world.relay(&tracing).await;
    world.consume(&tracing, 1).await;
    let arrived = world.broker.received(TOPIC);
    assert_eq!(arrived[0].headers["traceparent"], wrong);
    assert_eq!(bench.named("send").len(), 0);
    let [process] = &bench.named("process")[..] else { panic!("{:?}", bench.spans()) };
    assert_eq!((process.parent_span_id, process.links.len()), (SpanId::INVALID, 0));
}
