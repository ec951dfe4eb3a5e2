//! Many writers at once, relays that take over from each other, and beside them readers with wrong rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::Invariant;
use tokio::sync::{Barrier, watch};
use uuid::Uuid;

use crate::cluster::{Cluster, connect};
use crate::dice::Dice;
use crate::place::{Fate, judge, read_late, repeats};
use crate::record::Record;
use crate::relay::Relay;
use crate::rule::{Reader, Rule};
use crate::shop::{Shop, events};
use crate::writers::{Deeds, Load};

const PARTITIONS: u16 = 8;

/// A wrong rule that has lost nothing after so many rounds is not refuted, and the test fails.
const ROUNDS_MAX: u64 = 5;

const LOAD: Load =
    Load { writers: 56, transactions: 40, long: 4, prepares: true, asynchronous: true };

/// Reads, settles, hands over, and dies, until the writers have ended.
pub(crate) async fn carry(mut relay: Relay, mut dice: Dice, ended: watch::Receiver<bool>) {
    while !*ended.borrow() {
        if relay.owns() < usize::from(PARTITIONS) / 2 || dice.one_in(30) {
            relay.acquire(1 + u16::try_from(dice.below(3)).unwrap()).await;
        }
        if dice.one_in(5) {
            relay.turn_until_now(dice.page()).await;
        } else {
            relay.turn(dice.page()).await;
        }
        if !relay.answered {
            // waits: the pause of a relay whose database is away
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        for partition in relay.partitions() {
            match dice.below(40) {
                0 => relay.hand_over(partition).await,
                1 => relay.die(),
                2..20 => _ = relay.settle(partition, 0).await,
                20..30 => {
                    let but = usize::try_from(dice.below(20)).unwrap();
                    relay.settle(partition, but).await;
                }
                _ => {}
            }
        }
        relay.wake_the_dead().await;
        // waits: the pause of a relay that polls
        tokio::time::sleep(Duration::from_millis(dice.below(5))).await;
    }
    relay.hand_all_over().await;
    relay.wake_the_dead().await;
}

/// Reads by a rule until the writers have ended, and everything then. Returns what it read. Nothing is written before
/// all readers have looked, as a relay that is there before a store's first event does.
async fn read_by(
    shop: Shop,
    rule: Rule,
    looked: Arc<Barrier>,
    ended: watch::Receiver<bool>,
) -> (Rule, Vec<Uuid>) {
    let mut reader = Reader::new(&shop, rule).await;
    reader.read().await;
    looked.wait().await;
    while !*ended.borrow() {
        reader.begin_tick().await;
        // waits: whatever lies between the two halves of a tick must not matter
        tokio::time::sleep(Duration::from_millis(5)).await;
        reader.end_tick().await;
        reader.fetch().await;
        // waits: the pause of a relay that polls
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    reader.read().await;
    reader.read().await;
    (rule, reader.read)
}

/// What one round showed.
struct Round {
    deeds: Deeds,
    record: Arc<Record>,
    /// How many each rule lost.
    lost: BTreeMap<Rule, usize>,
    shop: Shop,
    /// Read while a transaction with a number was open that had begun before all of them.
    beside_the_open_one: usize,
}

async fn play(cluster: &Cluster, seed: u64) -> Round {
    let admin = connect(&cluster.url()).await;
    let database = format!("round_{seed}");
    admin.batch_execute(&format!("create database {database}")).await.unwrap();
    let url = cluster.url();
    let url = format!("{}/{database}", url.rsplit_once('/').unwrap().0);
    let shop = Shop::open(&url, PARTITIONS).await;
    let record = Arc::new(Record::default());
    let (end, ended) = watch::channel(false);
    let mut relays = tokio::task::JoinSet::new();
    for name in ["north", "south"] {
        let relay = Relay::with(name, &shop, &record);
        let dice = Dice::new(seed ^ u64::from(name.as_bytes()[0]));
        relays.spawn(carry(relay, dice, ended.clone()));
    }
    let mut readers = tokio::task::JoinSet::new();
    let looked = Arc::new(Barrier::new(Rule::WRONG_UNDER_LOAD.len() + 2));
    for rule in Rule::WRONG_UNDER_LOAD.into_iter().chain([Rule::Right]) {
        readers.spawn(read_by(shop.clone(), rule, Arc::clone(&looked), ended.clone()));
    }
    looked.wait().await;
    // F16, F17: a stranger's transaction, with an event of its own, the first of all, stays open for as long as anybody
    // writes.
    let stranger = shop.connect().await;
    stranger.batch_execute(&shop.sql(&format!("begin; {}", events(1)))).await.unwrap();
    let mut deeds = LOAD.run(&shop, seed).await;
    let beside_the_open_one = record.reads().len();
    stranger.batch_execute("commit").await.unwrap();
    end.send(true).unwrap();
    while let Some(ended) = relays.join_next().await {
        ended.expect("a relay ends");
    }
    Relay::with("last", &shop, &record).drain().await;
    let committed: BTreeSet<Uuid> = shop.rows().await.iter().map(|row| row.id).collect();
    for id in &committed {
        deeds.fates.entry(*id).or_insert(Fate::Committed);
    }
    let mut lost = BTreeMap::new();
    while let Some(ended) = readers.join_next().await {
        let (rule, read) = ended.expect("a reader ends");
        let found: BTreeSet<Uuid> = read.iter().copied().collect();
        assert_eq!(found.len(), read.len(), "{rule:?} reads nothing twice");
        // The first fetch of a reader stands behind what was there before.
        lost.insert(rule, committed.difference(&found).count());
    }
    Round { deeds, record, lost, shop, beside_the_open_one }
}

/// What the round has to show of the product.
async fn examine(round: &Round) {
    let (rows, reads, facts) =
        (round.shop.rows().await, round.record.reads(), round.record.facts());
    let (deeds, inversions) = (&round.deeds, round.shop.inversions().await);
    let (late, repeated) = (read_late(&reads), repeats(&reads));
    eprintln!(
        "{} events committed, {} rolled back; {inversions} inversions of seq and xid; {} pages, \
         {late} read after a higher number, {} read again after a death; {} takeovers, {} handovers, \
         {} settlements, {} refused; lost by rule: {:?}; {:?}",
        rows.len(),
        deeds.count(Fate::RolledBack),
        facts.pages,
        repeated.len(),
        facts.takeovers,
        facts.handovers,
        facts.settlements,
        facts.fenced,
        round.lost,
        deeds.ways,
    );
    let verdict = judge(&rows, &deeds.fates, &reads);
    assert!(verdict.holds(), "{verdict}");
    for (id, times) in &repeated {
        assert!(
            facts.given_up.contains(id),
            "{id} was read {times} times more, and nobody had died"
        );
    }
    assert_eq!(deeds.count(Fate::Unknown), 0);
    assert_eq!(deeds.count(Fate::Committed), rows.len(), "the writers' own count");
    assert_eq!(round.lost[&Rule::Right], 0, "the small reader with the right rule loses nothing");
    // A proof in which nothing happened proves nothing.
    assert!(
        verdict.judged(Invariant::NoLoss) > 1_000 && verdict.judged(Invariant::KeyOrder) > 1_000
    );
    assert!(inversions > 0 && late > 0 && deeds.count(Fate::RolledBack) > 0);
    assert!(facts.takeovers > 0 && facts.handovers > 0 && facts.fenced > 0);
    assert!(round.beside_the_open_one > 0, "an open transaction stalls nobody");
    for way in ["number first", "key locked", "multi-row", "copy", "savepoint", "prepared", "long"]
    {
        assert!(deeds.ways.contains_key(way), "{way}");
    }
    let trouble = facts.trouble.keys().find(|trouble| !trouble.ends_with("Busy"));
    assert_eq!(trouble, None, "{:?}", facts.trouble);
}

/// R001, R010, R118, R030, F16, F17, INV-1, INV-3: with 56 writers, early transaction numbers, rollbacks,
/// long transactions, savepoints, prepared transactions, COPY, and relays that take over from each other
/// with pages of 1 to 1,000: none lost, none read twice but after a death, each key in order. Under the same
/// load every wrong rule of the floor loses events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_under_load_and_wrong_floors_lose() {
    let Some(cluster) = Cluster::start(&["fsync = off"]).await else { return };
    let mut refuted = BTreeSet::new();
    for seed in 1..=ROUNDS_MAX {
        refuted.extend(round(&cluster, seed).await);
        if refuted.len() == Rule::WRONG_UNDER_LOAD.len() {
            return;
        }
    }
    panic!("in {ROUNDS_MAX} rounds only these wrong rules lost something: {refuted:?}");
}

/// Which wrong rules lost something.
async fn round(cluster: &Cluster, seed: u64) -> BTreeSet<Rule> {
    let round = play(cluster, seed).await;
    examine(&round).await;
    round.lost.iter().filter(|(_, lost)| **lost > 0).map(|(rule, _)| *rule).collect()
}
