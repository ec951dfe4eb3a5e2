//! Scripted faults do what they say: before, after, held, and gone when the script is over.

use std::sync::Arc;

use postrider_core::waiting::{Passed, Settlement, SettlementPart};
use postrider_core::{Broker, ErrorKind, OutboxSource, Outcome};
use postrider_testkit::fault::{
    BrokerAction, FaultyBroker, FaultySource, Gate, Operation, SourceAction, TestSignal,
};
use postrider_testkit::memory::{MemoryBroker, MemoryClock};

use crate::world::{TOPIC, World, destination, event, outgoing};

/// R005: the write that was made and the answer that was lost, and the same write again.
#[tokio::test]
async fn a_settlement_can_fail_before_and_after() {
    let world = World::start().await;
    world.commit([event(1, 1)]);
    let source = FaultySource::new(Arc::new(world.store.clone()));
    let row = world.page(10).await.remove(0);
    let loaded = source.load(world.lease(), &destination()).await.unwrap();
    let mut part = SettlementPart::new(destination());
    part.cursor = Some((loaded.cursor, row.cursor.clone()));
    part.passed = vec![(row.row, Passed::Acked)];
    let settlement = Settlement { lease: world.lease().clone(), parts: vec![part] };
    let script = source.script(Operation::Settle);
    script.then([SourceAction::busy(), SourceAction::FailAfter(ErrorKind::Timeout)]);
    let refused = source.settle(&settlement).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert_eq!(world.backlog().await, 1, "nothing was written");
    let lost = source.settle(&settlement).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Timeout);
    assert_eq!(world.backlog().await, 0, "it was written");
    source.settle(&settlement).await.unwrap();
    assert_eq!(world.store.settled(&destination()).len(), 1, "counted once");
    assert_eq!(script.left(), 0);
    assert_eq!(source.answered(Operation::Settle).count(), 3);
}

#[tokio::test]
async fn a_call_can_be_held_before_and_after() {
    let world = World::start().await;
    let source = Arc::new(FaultySource::new(Arc::new(world.store.clone())));
    for after in [false, true] {
        let gate = Gate::new();
        let action = if after {
            SourceAction::HoldAnswer(gate.clone())
        } else {
            SourceAction::Hold(gate.clone())
        };
        source.script(Operation::Release).then([action]);
        let arrived = gate.arrived.wait();
        let held = Arc::clone(&source);
        let lease = world.lease().clone();
        let call = tokio::spawn(async move { held.release(&[lease]).await });
        arrived.once().await;
        assert!(!call.is_finished());
        gate.open();
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_broker_plays_its_script_and_then_works() {
    let clock = MemoryClock::new();
    let memory = MemoryBroker::new(clock);
    let broker = FaultyBroker::new(Arc::new(memory.clone()));
    let events: Vec<_> = (0..3).map(|n| event(n, 1)).collect();
    let batch: Vec<_> =
        events.iter().map(|event| outgoing(&Arc::new(event.event().clone()))).collect();
    broker.script.then([
        BrokerAction::Reject,
        BrokerAction::RetryNamed { after: None },
        BrokerAction::Unroutable,
        BrokerAction::FailBefore(ErrorKind::Unavailable),
        BrokerAction::FailAfterFirst(2, ErrorKind::Timeout),
        BrokerAction::StoreTwice,
    ]);
    let rejected = broker.publish(&batch).await.unwrap();
    assert!(rejected.iter().all(|o| matches!(o, Outcome::Rejected(_))));
    let retry = broker.publish(&batch).await.unwrap();
    assert!(retry.iter().all(|o| matches!(o, Outcome::Retry { .. })));
    let unroutable = broker.publish(&batch).await.unwrap();
    assert!(unroutable.iter().all(|o| matches!(o, Outcome::Unroutable(_))));
    assert!(broker.publish(&batch).await.is_err());
    assert_eq!(memory.received(TOPIC).len(), 0, "nothing so far");
    assert!(broker.publish(&batch).await.is_err());
    assert_eq!(memory.received(TOPIC).len(), 2, "the first two, unknown to the sender");
    broker.publish(&batch).await.unwrap();
    assert_eq!(memory.received(TOPIC).len(), 8);
    broker.set_down(TOPIC, true);
    assert!(broker.publish(&batch).await.is_err());
    broker.set_down(TOPIC, false);
    assert_eq!(broker.publish(&batch).await.unwrap(), vec![Outcome::Acked; 3]);
    assert_eq!(broker.batches().len(), 8);
    assert_eq!(broker.answered.count(), 8);
}

#[tokio::test]
async fn a_wait_that_is_made_before_the_cause_misses_nothing() {
    let signal = TestSignal::default();
    let wait = signal.wait();
    signal.happened();
    signal.happened();
    wait.times(2).await;
    let next = signal.wait();
    let other = signal.clone();
    let waiting = tokio::spawn(next.once());
    other.happened();
    waiting.await.unwrap();
    assert_eq!(signal.count(), 3);
}
