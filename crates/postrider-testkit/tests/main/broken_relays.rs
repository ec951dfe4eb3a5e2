//! The checker against real implementations: a small sound relay passes, and for each invariant a
//! small broken one is caught with that invariant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::inbox::Accepted;
use postrider_core::source::FetchedRow;
use postrider_core::waiting::{Passed, Placement, Reason};
use postrider_core::{
    Broker, ErrorKind, Event, EventId, HandlerName, Invariant, KeyHash, Outcome, Subscription,
};
use postrider_testkit::fault::{BrokerAction, Gate};

use crate::world::{TOPIC, WINDOW_ROWS_MAX, World, dead, event, id_of, outgoing, waits};

/// A relay as it should be, in forty lines: in order, a refused event to the dead letters and its
/// key behind it, settled after the answer, within its window.
async fn sound_relay(world: &mut World) {
    let mut parked: BTreeSet<KeyHash> = BTreeSet::new();
    loop {
        let rows = world.page(WINDOW_ROWS_MAX).await;
        world.window(rows.len());
        if rows.is_empty() {
            return;
        }
        let before = world.backlog().await;
        let mut settled = Vec::new();
        let mut waiting = Vec::new();
        for row in rows {
            if parked.contains(&row.key_hash) {
                waiting.push(waits(&row, Placement::Behind(Reason::Behind)));
                settled.push((row, Passed::Waiting));
                continue;
            }
            let outcome = loop {
                // Unknown means not published: again, with the same id.
                if let Ok(outcome) = world.publish(&row).await {
                    break outcome;
                }
            };
            if outcome == Outcome::Acked {
                settled.push((row, Passed::Acked));
            } else {
                parked.insert(row.key_hash);
                waiting.push(waits(&row, dead()));
                settled.push((row, Passed::Waiting));
            }
        }
        world.settle(&settled, waiting).await;
        world.look(before, None).await;
    }
}

/// A consumer as it should be: marker and effect in one transaction, acknowledged afterwards.
async fn sound_consumer(world: &mut World) {
    let handler = HandlerName::new("billing").unwrap();
    let subscription = world.broker.subscribe(TOPIC, "billing", Duration::from_secs(30));
    for round in 0..2 {
        loop {
            let deliveries = subscription.poll(10);
            if deliveries.is_empty() {
                break;
            }
            for delivery in deliveries {
                let event = delivery.event.as_ref().unwrap();
                let mut transaction = world.store.begin();
                if transaction.accept(event, &handler).unwrap() == Accepted::FirstTime {
                    transaction.effect(event, &handler).unwrap();
                }
                transaction.commit().unwrap();
                // The first time round the acknowledgement is lost.
                if round == 1 {
                    subscription.ack(&delivery).await.unwrap();
                }
            }
        }
        world.clock.advance(Duration::from_secs(31));
    }
    for effect in world.store.effects() {
        let handler = effect.handler.as_str();
        world.history.effect(&effect.source, effect.event_id, handler);
    }
}

#[tokio::test]
async fn a_sound_relay_and_consumer_break_nothing() {
    let mut world = World::start().await;
    let poison = event(3, 1);
    world.faulty.refuse([poison.event().id]);
    world.afflicted.insert("order/3".to_owned());
    for n in 0..20 {
        world.commit([event(1, n), event(2, n)]);
        world.roll_back(event(1, 100 + n));
    }
    world.commit([poison, event(3, 2)]);
    let faults = [
        BrokerAction::Pass,
        BrokerAction::FailAfter(ErrorKind::Timeout),
        BrokerAction::FailBefore(ErrorKind::Unavailable),
        BrokerAction::StoreTwice,
    ];
    world.faulty.script.then(faults);
    sound_relay(&mut world).await;
    sound_consumer(&mut world).await;
    assert_eq!(world.faulty.script.left(), 0, "every planned fault happened");
    let (verdict, history) = world.judge().await;
    assert!(verdict.holds(), "{verdict}");
    for invariant in Invariant::ALL {
        assert!(verdict.judged(invariant) > 0, "{invariant} was not judged");
    }
    let ledger = history.ledger();
    assert_eq!((ledger.committed, ledger.delivered, ledger.effects), (42, 40, 40));
    assert_eq!((ledger.dead_lettered, ledger.lost), (1, 0));
    assert!(ledger.duplicates_absorbed >= 2, "{ledger:?}");
}

/// INV-1: after three attempts it lets the event go, and says so nowhere.
#[tokio::test]
async fn a_relay_that_drops_what_it_cannot_send_is_caught() {
    let mut world = World::start().await;
    let poison = event(1, 1);
    world.faulty.refuse([poison.event().id]);
    world.commit([poison, event(2, 1)]);
    let rows = world.page(10).await;
    let mut settled = Vec::new();
    for row in rows {
        let mut passed = Passed::Dropped;
        for _ in 0..3 {
            if world.publish(&row).await.unwrap() == Outcome::Acked {
                passed = Passed::Acked;
                break;
            }
        }
        settled.push((row, passed));
    }
    world.settle(&settled, Vec::new()).await;
    let (verdict, history) = world.judge().await;
    assert_eq!(verdict.broken(), [Invariant::NoLoss], "{verdict}");
    assert_eq!(history.ledger().lost, 1);
}

/// INV-1 and INV-7, R032: it marks, then publishes, and crashes in between.
#[tokio::test]
async fn a_relay_that_marks_before_it_publishes_is_caught() {
    let mut world = World::start().await;
    world.commit([event(1, 1), event(2, 1)]);
    let rows = world.page(10).await;
    let marked: Vec<_> = rows.iter().map(|row| (row.clone(), Passed::Acked)).collect();
    world.settle(&marked, Vec::new()).await;
    world.publish(&rows[0]).await.unwrap();
    // The crash: whoever starts again finds nothing to send.
    assert_eq!(world.page(10).await, []);
    let (verdict, _) = world.judge().await;
    let broken = [Invariant::NoLoss, Invariant::Truth];
    assert_eq!(verdict.broken(), broken, "{verdict}");
}

/// INV-2: the application publishes inside its transaction, which then fails.
#[tokio::test]
async fn an_application_that_publishes_before_it_commits_is_caught() {
    let mut world = World::start().await;
    let event = event(1, 1);
    world.broker.publish(&[outgoing(&Arc::new(event.event().clone()))]).await.unwrap();
    world.roll_back(event);
    let (verdict, history) = world.judge().await;
    assert_eq!(verdict.broken(), [Invariant::NoGhost], "{verdict}");
    assert_eq!(history.ledger().ghosts, 1);
}

/// INV-3, R071: two workers each lock the next free row; the one with the earlier row is slower.
#[tokio::test]
async fn two_workers_that_skip_locked_rows_are_caught() {
    let mut world = World::start().await;
    world.commit([event(1, 1), event(1, 2)]);
    let rows = world.page(10).await;
    let gate = Gate::new();
    world.faulty.script.then([BrokerAction::Hold(gate.clone())]);
    let arrived = gate.arrived.wait();
    let (faulty, first) = (Arc::clone(&world.faulty), outgoing(rows[0].event.as_ref().unwrap()));
    let slow = tokio::spawn(async move { faulty.publish(&[first]).await });
    arrived.once().await;
    world.publish(&rows[1]).await.unwrap();
    gate.open();
    slow.await.unwrap().unwrap();
    let settled: Vec<_> = rows.into_iter().map(|row| (row, Passed::Acked)).collect();
    world.note();
    world.settle(&settled, Vec::new()).await;
    let (verdict, _) = world.judge().await;
    assert_eq!(verdict.broken(), [Invariant::KeyOrder], "{verdict}");
}

/// INV-3, R122: a dead letter holds its key, and the relay sends the next one all the same.
#[tokio::test]
async fn a_relay_that_passes_a_parked_key_is_caught() {
    let mut world = World::start().await;
    let poison = event(1, 1);
    world.faulty.refuse([poison.event().id]);
    world.commit([poison, event(1, 2)]);
    let rows = world.page(10).await;
    assert_ne!(world.publish(&rows[0]).await.unwrap(), Outcome::Acked);
    assert_eq!(world.publish(&rows[1]).await.unwrap(), Outcome::Acked);
    let waiting = vec![waits(&rows[0], dead())];
    let settled = [(rows[0].clone(), Passed::Waiting), (rows[1].clone(), Passed::Acked)];
    world.settle(&settled, waiting).await;
    let (verdict, _) = world.judge().await;
    assert_eq!(verdict.broken(), [Invariant::KeyOrder], "{verdict}");
}

/// An inbox that looks, acts, and then inserts its marker.
#[derive(Default)]
struct CheckThenInsert {
    markers: Mutex<BTreeSet<EventId>>,
    effects: Mutex<Vec<(String, EventId)>>,
}

impl CheckThenInsert {
    async fn receive(&self, event: &Event, between: &tokio::sync::Barrier) {
        let known = self.markers.lock().unwrap().contains(&event.id);
        between.wait().await;
        if !known {
            let effect = (event.source.to_string(), event.id);
            self.effects.lock().unwrap().push(effect);
            self.markers.lock().unwrap().insert(event.id);
        }
    }
}

/// INV-4, R078: two consumers get copies of one event at the same time.
#[tokio::test]
async fn an_inbox_that_checks_then_inserts_is_caught() {
    let mut world = World::start().await;
    world.faulty.script.then([BrokerAction::StoreTwice]);
    world.commit([event(1, 1)]);
    sound_relay(&mut world).await;
    let copies = world.broker.received(TOPIC);
    assert_eq!(copies.len(), 2);
    let inbox = CheckThenInsert::default();
    let between = tokio::sync::Barrier::new(2);
    tokio::join!(inbox.receive(&copies[0], &between), inbox.receive(&copies[1], &between),);
    for (source, id) in inbox.effects.into_inner().unwrap() {
        world.history.effect(&source, id, "billing");
    }
    let (verdict, history) = world.judge().await;
    assert_eq!(verdict.broken(), [Invariant::OneEffect], "{verdict}");
    assert_eq!(history.ledger().duplicates_absorbed, 0);
}

/// INV-5, R094: it waits for the poison event before it goes on to other keys.
#[tokio::test]
async fn a_relay_that_stops_at_the_head_of_the_line_is_caught() {
    let mut world = World::start().await;
    let poison = event(1, 1);
    world.faulty.refuse([poison.event().id]);
    world.afflicted.insert("order/1".to_owned());
    world.commit([poison, event(2, 1), event(3, 1)]);
    let rows = world.page(10).await;
    let mut settled = Vec::new();
    let mut waiting = Vec::new();
    for row in rows {
        let mut attempts = 0;
        while attempts < 5 && world.publish(&row).await.unwrap() != Outcome::Acked {
            attempts += 1;
            world.clock.advance(Duration::from_secs(1));
        }
        if attempts == 5 {
            waiting.push(waits(&row, dead()));
            settled.push((row, Passed::Waiting));
        } else {
            settled.push((row, Passed::Acked));
        }
    }
    world.settle(&settled, waiting).await;
    let (verdict, _) = world.judge().await;
    assert_eq!(verdict.broken(), [Invariant::Isolation], "{verdict}");
    assert_eq!(verdict.violations.len(), 2, "both of the other keys were late");
}

/// INV-6: it reads the whole backlog before it sends anything.
#[tokio::test]
async fn a_relay_that_reads_without_a_limit_is_caught() {
    let mut world = World::start().await;
    world.commit((0..100).map(|n| event(n, 1)));
    let mut window: BTreeMap<u64, FetchedRow> = BTreeMap::new();
    for row in world.page(1_000).await {
        window.insert(row.row.seq, row);
    }
    world.window(window.len());
    let mut settled = Vec::new();
    for row in window.into_values() {
        world.publish(&row).await.unwrap();
        settled.push((row, Passed::Acked));
    }
    world.settle(&settled, Vec::new()).await;
    let (verdict, _) = world.judge().await;
    assert_eq!(verdict.broken(), [Invariant::Bounded], "{verdict}");
}

/// INV-7, R031: it records first, then sends; nothing is lost this time, and it was a lie.
#[tokio::test]
async fn a_relay_that_settles_before_the_acknowledgement_is_caught() {
    let mut world = World::start().await;
    world.commit([event(1, 1)]);
    let rows = world.page(10).await;
    world.settle(&[(rows[0].clone(), Passed::Acked)], Vec::new()).await;
    world.publish(&rows[0]).await.unwrap();
    let (verdict, _) = world.judge().await;
    assert_eq!(verdict.broken(), [Invariant::Truth], "{verdict}");
}

/// INV-8, R118: it waits for a number that was rolled back, and says nothing.
#[tokio::test]
async fn a_relay_that_waits_for_a_gap_is_caught() {
    let mut world = World::start().await;
    world.commit([event(1, 1)]);
    world.roll_back(event(1, 2));
    world.commit([event(1, 3), event(2, 1)]);
    let mut expected = 1;
    for _ in 0..5 {
        let rows = world.page(10).await;
        let backlog = rows.len() as u64;
        let next = rows.iter().take_while(|row| {
            let contiguous = row.row.seq == expected;
            expected += u64::from(contiguous);
            contiguous
        });
        let mut settled = Vec::new();
        for row in next.cloned().collect::<Vec<_>>() {
            world.publish(&row).await.unwrap();
            settled.push((row, Passed::Acked));
        }
        world.settle(&settled, Vec::new()).await;
        world.clock.advance(Duration::from_secs(1));
        world.look(backlog, None).await;
    }
    let left: Vec<EventId> = world.page(10).await.iter().map(id_of).collect();
    assert_eq!(left.len(), 2, "it never moves again");
    let (verdict, history) = world.judge().await;
    assert_eq!(verdict.broken(), [Invariant::Progress], "{verdict}");
    assert_eq!(history.ledger().lost, 0, "a stall is not a loss");
}
