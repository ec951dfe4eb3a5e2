//! Order within a key, isolation between keys, and the bound on calls at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use postrider_core::{Invariant, Jitter};

use crate::endpoint::{Endpoint, Plan};
use crate::history::{assert_one_effect_each, judge};
use crate::stage::Stage;

/// INV-3: an endpoint that fails at random, in every way there is, acts on each key's events in their
/// order. The seed decides when; a failure names it.
#[tokio::test]
async fn a_keys_order_holds_under_failures() {
    let seed = 20_264;
    let stage = Stage::new();
    for order in 0..60 {
        stage.place(&(order % 6).to_string()).await;
    }
    let dice = Mutex::new(Jitter::seeded(seed));
    let endpoint = Endpoint::start(move |_, _| {
        let mut dice = dice.lock().unwrap();
        match dice.bits() % 12 {
            0 => Plan::status(500),
            1 => Plan::Say(503, vec![("retry-after", "0".to_owned())], String::new()),
            2 => Plan::Cut,
            // It acted, and nobody heard of it.
            3 => Plan::ActThen(Box::new(Plan::Cut)),
            4 => Plan::After(Duration::from_millis(60), Box::new(Plan::done())),
            _ => Plan::done(),
        }
    })
    .await;
    // Two of them: order holds across the instances of a group.
    let first = stage.sidecar(&endpoint, &[]).await;
    let second = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    first.stop().await;
    second.stop().await;
    let verdict = judge(&stage, &endpoint.effects()).await;
    assert!(verdict.holds(), "seed {seed}: {verdict}");
    assert!(verdict.judged(Invariant::KeyOrder) > 0);
    assert!(endpoint.calls().len() > 60, "seed {seed}: nothing failed");
}

/// The negative control: effects in another order are seen.
#[tokio::test]
async fn disorder_would_be_seen() {
    let stage = Stage::new();
    let (first, second) = (stage.place("1").await, stage.place("1").await);
    assert!(judge(&stage, &[first, second]).await.holds());
    assert_eq!(judge(&stage, &[second, first]).await.broken(), [Invariant::KeyOrder]);
}

/// INV-5: a failed event holds its own key, and no other.
#[tokio::test]
async fn a_failed_event_blocks_its_key_and_others_flow() {
    let stage = Stage::new();
    let blocked = stage.place("blocked").await;
    let behind = stage.place("blocked").await;
    let mut others = Vec::new();
    for order in 0..40 {
        others.push(stage.place(&format!("free/{}", order % 4)).await);
    }
    let came = Mutex::new(BTreeSet::new());
    // It fails as long as not all others came, and once in any case: however slow they are, they do not come behind it by
    // chance; and if they waited for it, it would fail for ever.
    let endpoint = Endpoint::start(move |call, before| {
        let mut came = came.lock().unwrap();
        if ![blocked, behind].contains(&call.event.id) {
            came.insert(call.event.id);
        }
        match call.event.id == blocked && (before == 0 || came.len() < 40) {
            true => Plan::Say(503, vec![("retry-after", "3".to_owned())], String::new()),
            false => Plan::done(),
        }
    })
    .await;
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    sidecar.stop().await;
    let effects = endpoint.effects();
    assert_eq!(effects.get(40..), Some(&[blocked, behind][..]), "all others came before");
    assert_one_effect_each(&stage, &endpoint).await;
}

/// INV-6: so many calls at once and no more, one for each key.
#[tokio::test]
async fn calls_at_once_are_bounded() {
    let stage = Stage::new();
    for order in 0..60 {
        stage.place(&(order % 20).to_string()).await;
    }
    let slow = Duration::from_millis(40);
    let endpoint = Endpoint::start(move |_, _| Plan::After(slow, Box::new(Plan::done()))).await;
    let sidecar = stage.sidecar(&endpoint, &["--concurrency", "3", "--lease", "30s"]).await;
    stage.settled().await;
    sidecar.stop().await;
    assert_eq!(endpoint.at_work_max(), 3);
    let mut last: BTreeMap<String, std::time::Instant> = BTreeMap::new();
    for call in endpoint.calls() {
        if let Some(before) = last.insert(call.event.key(), call.at) {
            assert!(call.at - before >= slow, "one of a key at a time");
        }
    }
}
