//! Leases without a clock of the store.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_core::lease::AcquireRequest;
use postrider_core::source::RenewRequest;
use postrider_core::{ErrorKind, Lease, OutboxSource as _, RelayId};
use postrider_dynamodb::{Connection, DynamoStore, Options, Settings};
use postrider_testkit::suite::report;
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then, aside};
use crate::relay::LONG;

const SHORT: Duration = Duration::from_millis(300);

fn request(owner: &RelayId, lease: Duration) -> AcquireRequest {
    AcquireRequest {
        owner: owner.clone(),
        lease_duration: lease,
        wanted: u16::MAX,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    }
}

fn renewal(owner: &RelayId, leases: &[Lease]) -> RenewRequest {
    RenewRequest {
        owner: owner.clone(),
        leases: leases.to_vec(),
        lease_duration: SHORT,
        current: true,
    }
}

fn polling() -> Options {
    let mut options = Options::default();
    options.stream = false;
    options
}

async fn own(store: &DynamoStore, owner: &RelayId) -> Vec<Lease> {
    let granted = store.acquire(&request(owner, SHORT)).await.unwrap().granted;
    granted.into_iter().map(|granted| granted.lease).collect()
}

/// INV-8: see the suite.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_relay_says_of_itself_is_seen() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let store = DynamoStore::with(fresh.connection.clone(), polling());
    let granted = store.acquire(&request(&RelayId::mint(), LONG)).await.unwrap().granted;
    report::what_a_relay_says_of_itself_is_seen(&store, &granted[0].lease).await;
}

/// R115: who was silent for a whole lease, as another saw it, and beats again before that other's write
/// arrives, keeps what it has: the write holds only while the heart stands still.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_beats_at_the_last_moment_keeps_its_leases() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let holder = DynamoStore::with(fresh.connection.clone(), polling());
    let owner = RelayId::mint();
    let leases = own(&holder, &owner).await;
    let beats = Arc::new(AtomicBool::new(true));
    let (late, renews) = (Arc::clone(&beats), renewal(&owner, &leases));
    let settings = fresh.settings.clone();
    let rule = move |operation: &str, _: &mut Value| {
        if operation == "TransactWriteItems" && late.load(Ordering::SeqCst) {
            let (settings, renews) = (settings.clone(), renews.clone());
            aside(move || async move {
                let store = DynamoStore::with(Connection::new(settings).unwrap(), polling());
                store.renew(&renews).await.unwrap();
            });
        }
        Then::Forward
    };
    let upstream = fresh::url().unwrap();
    let between = proxy::start(&upstream, Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut through = Settings::at(between, fresh.settings.names.clone());
    through.call_time_max = fresh.settings.call_time_max;
    let taker = DynamoStore::with(Connection::new(through).unwrap(), polling());
    taker.open().await.unwrap();
    // waits: the lease has to pass on the taker's clock
    tokio::time::sleep(SHORT * 2).await;
    let other = RelayId::mint();
    let tried = taker.acquire(&request(&other, LONG)).await.unwrap();
    assert_eq!(tried.granted, [], "its heart beat before the write");
    assert_eq!(holder.renew(&renewal(&owner, &leases)).await.unwrap().kept, leases);
    beats.store(false, Ordering::SeqCst);
    taker.watch().await.unwrap();
    // waits: as before, and now it stays silent
    tokio::time::sleep(SHORT * 2).await;
    let taken = taker.acquire(&request(&other, LONG)).await.unwrap();
    assert_eq!(taken.granted.len(), 2);
    assert_eq!(holder.renew(&renewal(&owner, &leases)).await.unwrap().kept, [], "and hears of it");
}

/// A heartbeat is one write and one read, whatever the number of partitions; standing by is the same.
/// Nothing is refused when nothing changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_is_one_write_and_one_read() {
    let Some(fresh) = Fresh::new(64).await else { return };
    let calls = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&calls);
    let rule = move |operation: &str, _: &mut Value| {
        noted.lock().unwrap().push(operation.to_owned());
        Then::Forward
    };
    let upstream = fresh::url().unwrap();
    let between = proxy::start(&upstream, Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(between, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let through = Connection::new(settings).unwrap();
    let (store, owner) = (DynamoStore::with(through, polling()), RelayId::mint());
    let granted = store.acquire(&request(&owner, LONG)).await.unwrap().granted;
    let leases: Vec<Lease> = granted.into_iter().map(|granted| granted.lease).collect();
    assert_eq!(leases.len(), 64);
    calls.lock().unwrap().clear();
    let all = RenewRequest { lease_duration: LONG, ..renewal(&owner, &leases) };
    assert_eq!(store.renew(&all).await.unwrap().kept.len(), 64);
    assert_eq!(*calls.lock().unwrap(), ["UpdateItem", "Query"]);
    calls.lock().unwrap().clear();
    let standby = store.acquire(&request(&RelayId::mint(), LONG)).await.unwrap();
    assert_eq!(standby.held.len(), 64);
    assert_eq!(*calls.lock().unwrap(), ["UpdateItem", "Query"], "no write that could be refused");
}

/// R115: a heartbeat that somebody deleted counts as silence from when that was first seen, and for as long as
/// the owner asked, which its lease says: whoever has known the lease for long does not take it at once.
#[tokio::test]
async fn an_owner_whose_heartbeat_was_deleted_has_its_whole_lease() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let holder = DynamoStore::with(fresh.connection.clone(), polling());
    let (owner, other) = (RelayId::mint(), RelayId::mint());
    let long = SHORT * 10;
    let leases = holder.acquire(&request(&owner, long)).await.unwrap().granted;
    assert_eq!(leases.len(), 1);
    let taker = DynamoStore::with(fresh.connection.clone(), polling());
    taker.watch().await.unwrap();
    // waits: the taker has known the lease for longer than its own lasts
    tokio::time::sleep(SHORT * 2).await;
    let client = fresh.connection.tables().await;
    let text = |text: String| aws_sdk_dynamodb::types::AttributeValue::S(text);
    let delete = client
        .delete_item()
        .table_name(&fresh.settings.names.store)
        .key("pk", text("control".to_owned()))
        .key("sk", text(format!("relay#{owner}")));
    let gone = Instant::now();
    Box::pin(delete.send()).await.unwrap();
    loop {
        let granted = taker.acquire(&request(&other, SHORT)).await.unwrap().granted;
        if !granted.is_empty() {
            break;
        }
        assert!(gone.elapsed() < LONG, "it is never free");
        // waits: the owner's lease has to pass
        tokio::time::sleep(SHORT / 2).await;
    }
    assert!(gone.elapsed() >= long, "too early: {:?}", gone.elapsed());
}

/// A lease that its owner does not name any more, because its release failed or the answer that granted it was
/// lost, ends though the owner's heart beats for the others: it is let go after its duration.
#[tokio::test]
async fn a_lease_that_is_not_named_ends_though_its_owner_lives() {
    let Some(fresh) = Fresh::new(2).await else { return };
    let holder = DynamoStore::with(fresh.connection.clone(), polling());
    let (owner, other) = (RelayId::mint(), RelayId::mint());
    let lease = SHORT * 6;
    let granted = holder.acquire(&request(&owner, lease)).await.unwrap().granted;
    let leases: Vec<Lease> = granted.into_iter().map(|granted| granted.lease).collect();
    assert_eq!(leases.len(), 2);
    let taker = DynamoStore::with(fresh.connection.clone(), polling());
    let (start, mut taken) = (Instant::now(), Vec::new());
    while taken.is_empty() {
        let one = RenewRequest { lease_duration: lease, ..renewal(&owner, &leases[..1]) };
        let kept = holder.renew(&one).await.unwrap().kept;
        assert_eq!(kept, leases[..1], "what is named is kept");
        // waits: beats come while the lease runs out
        tokio::time::sleep(SHORT / 2).await;
        taken.extend(taker.acquire(&request(&other, LONG)).await.unwrap().granted);
        assert!(start.elapsed() < lease * 20, "it never ends");
    }
    let partitions: Vec<_> = taken.iter().map(|granted| granted.lease.partition).collect();
    assert_eq!(partitions, [leases[1].partition]);
}

/// An acquisition that fails after its first grant names what it was granted: it is served, and the rest is asked for
/// again. A grant that nobody hears of would be served by nobody.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_that_breaks_off_names_what_it_has() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let left = Arc::new(AtomicI64::new(0));
    let passes = Arc::clone(&left);
    let rule = move |operation: &str, _: &mut Value| {
        let kind = "ProvisionedThroughputExceededException";
        match operation {
            "TransactWriteItems" if passes.fetch_sub(1, Ordering::SeqCst) <= 0 => {
                Then::Answer(400, json!({"__type": kind, "message": "slow down"}))
            }
            _ => Then::Forward,
        }
    };
    let upstream = fresh::url().unwrap();
    let between = proxy::start(&upstream, Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(between, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let store = DynamoStore::with(Connection::new(settings).unwrap(), polling());
    let owner = RelayId::mint();
    let error = store.acquire(&request(&owner, LONG)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "nothing was granted: {error}");
    left.store(2, Ordering::SeqCst);
    let first = store.acquire(&request(&owner, LONG)).await.unwrap().granted;
    assert_eq!(first.len(), 2, "what it got before the service refused");
    left.store(i64::MAX, Ordering::SeqCst);
    let rest = store.acquire(&request(&owner, LONG)).await.unwrap();
    let mine: BTreeSet<_> =
        first.iter().chain(&rest.granted).map(|it| it.lease.partition).collect();
    assert_eq!((rest.granted.len(), mine.len()), (2, 4));
    let leases: Vec<Lease> = first.into_iter().chain(rest.granted).map(|it| it.lease).collect();
    let all = RenewRequest { lease_duration: LONG, ..renewal(&owner, &leases) };
    assert_eq!(store.renew(&all).await.unwrap().kept.len(), 4, "and all of it stands");
}
