//! The whole way, round after round with a fault in the middle of each.
//!
//! `POSTRIDER_TEST_MINUTES=10` goes on for so long, and `POSTRIDER_TEST_SEED` repeats the order of the faults. Each
//! run prints its seed and its ledger.

use std::collections::BTreeMap;
use std::time::Instant;

use postrider_core::Invariant;
use postrider_history::Verdict;
use postrider_testkit::dice::{Dice, seconds_to_go_on};
use tokio::task::JoinHandle;

use crate::fault::Fault;
use crate::queue::Road;
use crate::whole_way::{Course, Store, WholeWay};

/// Events of one round.
const ROUND: u32 = 40;
/// Events of the largest one, where smaller ones were done before anybody looked.
const ROUND_MAX: u32 = 32 * ROUND;
/// Events of a round that had their effect when the fault strikes.
const BEFORE: usize = 10;

/// What is promised on every way, judged on something.
const PROMISE: [Invariant; 3] = [Invariant::NoLoss, Invariant::NoGhost, Invariant::OneEffect];

/// Whether everything that a road promises was judged, and holds. A bus and a standard queue promise no order.
pub(crate) fn assert_kept(verdict: &Verdict, road: Road) {
    let mut promised = PROMISE.to_vec();
    if road == Road::Queue {
        promised.push(Invariant::KeyOrder);
    }
    let broken = verdict.broken();
    let unexpected =
        broken.iter().filter(|one| road == Road::Queue || **one != Invariant::KeyOrder);
    assert_eq!(unexpected.count(), 0, "{verdict}");
    // What nothing happened to proves nothing.
    for invariant in promised {
        assert!(verdict.judged(invariant) > 0, "{invariant} was judged on nothing");
    }
}

/// Commits events until a look finds that some had their effect and others did not: what a fault has to hit. How fast
/// everybody is does not decide it, since more and more are committed until it is so. Gives what is still being
/// written, and how often all were done too soon.
async fn under_way(way: &mut WholeWay, fault: Fault) -> (Option<JoinHandle<()>>, u32) {
    let (mut count, mut too_soon) = (ROUND, 0);
    loop {
        let before = way.outbox.committed.len();
        let mut writing = Some(way.outbox.write(count));
        if fault.hits_writers() {
            writing.take().expect("it began").await.unwrap();
        }
        if way.just_acted(before + BEFORE).await < way.outbox.committed.len() {
            return (writing, too_soon);
        }
        if let Some(writing) = writing {
            writing.await.unwrap();
        }
        assert!(
            count < ROUND_MAX,
            "{fault:?} finds nothing under way: {count} events are done at once"
        );
        (count, too_soon) = (2 * count, too_soon + 1);
    }
}

/// Two relays and two consumers carry events, round after round with a fault in the middle, until each fault was
/// struck and the time is over.
async fn survive(course: &Course) {
    let Some(mut way) = WholeWay::open(course).await else { return };
    let (mut dice, seed) = Dice::from_environment();
    let (store, road) = (course.store, course.road);
    eprintln!("{store:?} by {road:?}: POSTRIDER_TEST_SEED={seed}");
    way.relays = vec![way.relay(0), way.relay(1)];
    way.consumers = vec![way.consumer(&[]), way.consumer(&[])];
    let (begun, mut plan) = (Instant::now(), dice.plan(course.faults));
    let going_on = seconds_to_go_on();
    let mut struck: BTreeMap<Fault, u32> = BTreeMap::new();
    let mut too_soon = 0;
    while !plan.is_empty() || begun.elapsed().as_secs_f64() < going_on {
        let any = || course.faults[dice.below(course.faults.len())];
        let fault = plan.pop().unwrap_or_else(any);
        let (writing, again) = under_way(&mut way, fault).await;
        too_soon += again;
        way.strike(fault, dice.below(2)).await;
        if let Some(writing) = writing {
            writing.await.unwrap();
        }
        eprintln!("{store:?} by {road:?}: {:>4} s  {fault:?}", begun.elapsed().as_secs());
        *struck.entry(fault).or_default() += 1;
    }
    way.acted(way.outbox.committed.len()).await;
    way.copy().await;
    way.settled().await;
    let (rounds, effects) = (struck.values().sum::<u32>(), way.bank.effects().await.len());
    eprintln!(
        "{{\"outbox\":\"{store:?}\",\"road\":\"{road:?}\",\"seed\":{seed},\"seconds\":{},\"rounds\":{rounds},\
         \"too_soon\":{too_soon},\"faults\":\"{struck:?}\",\"committed\":{},\
         \"rolled_back\":{},\"copied\":{},\"effects\":{effects},\"fallen\":{}}}",
        begun.elapsed().as_secs(),
        way.outbox.committed.len(),
        way.outbox.rolled_back.len(),
        way.copied,
        way.fallen
    );
    let verdict = way.judge().await;
    assert_kept(&verdict, road);
    assert_eq!(struck.len(), course.faults.len(), "{struck:?}");
    assert_eq!(effects, way.outbox.committed.len());
    way.close().await;
}

/// F1, F3, F5, F6, F10, F11, INV-1 to INV-4, R043, R044: relays, consumers, and the tables' server are killed,
/// processes are stopped, both services and the stream are cut off, and messages are there twice; what was committed
/// has its effect once, in its key's order, and nothing else has. One relay reads the stream and the index, the other
/// one the index alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_dynamodb_to_sqs_and_back_whatever_is_killed() {
    let faults = &[
        Fault::RelayKilled,
        Fault::RelayStopped,
        Fault::ConsumerKilled,
        Fault::ConsumerStopped,
        Fault::TablesCut,
        Fault::TablesKilled,
        Fault::StreamCut,
        Fault::QueueCut,
        Fault::Copied,
    ];
    survive(&Course { store: Store::Dynamo, road: Road::Queue, faults }).await;
}

/// F1, F5, F11, INV-1, INV-2, INV-4, R056: the same by a bus of EventBridge, whose rule fills a standard queue. Order is
/// not promised there, and not judged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_dynamodb_by_eventbridge_to_sqs_whatever_is_killed() {
    let faults = &[Fault::RelayKilled, Fault::ConsumerKilled, Fault::QueueCut, Fault::Copied];
    survive(&Course { store: Store::Dynamo, road: Road::Bus, faults }).await;
}

/// F1, F5, F10, F11, INV-1 to INV-4: the same from PostgreSQL, whose server is killed as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_postgres_to_sqs_whatever_is_killed() {
    let faults = &[
        Fault::RelayKilled,
        Fault::ConsumerKilled,
        Fault::DatabaseKilled,
        Fault::QueueCut,
        Fault::Copied,
    ];
    survive(&Course { store: Store::Postgres, road: Road::Queue, faults }).await;
}

/// The negative control: without an inbox the copies have their effects too, and the checker says so.
async fn careless(store: Store, road: Road) {
    let Some(mut way) = WholeWay::open(&Course { store, road, faults: &[] }).await else { return };
    let (_relay, _consumer) = (way.relay(0), way.consumer(&["careless"]));
    way.outbox.write(40).await.unwrap();
    way.acted(40).await;
    way.copy().await;
    way.settled().await;
    let broken = way.judge().await.broken();
    let found = broken.iter().filter(|one| road == Road::Queue || **one != Invariant::KeyOrder);
    assert_eq!(found.collect::<Vec<_>>(), [&Invariant::OneEffect], "{road:?}");
    way.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_inbox_a_second_effect_is_found() {
    careless(Store::Dynamo, Road::Queue).await;
    careless(Store::Postgres, Road::Bus).await;
}
