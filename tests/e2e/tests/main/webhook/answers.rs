//! Partners who are away, silent, slow, or hang up.

use crate::evidence::{OF_A_RELAY, assert_holds};
use crate::webhook::evidence::Witness;
use crate::webhook::town::Town;

const EVENTS: u32 = 60;

/// Of a relay whose requests all end in time and which keeps its lease, on whatever machine.
const LASTING: [&str; 4] = ["--lease-ms", "30000", "--deadline-ms", "10000"];

/// F5: nobody listens: the relay names an endpoint, no attempt is counted, nothing is dead, and as soon
/// as the partner is there he gets everything, once.
#[tokio::test]
async fn a_partner_who_is_away_is_waited_for() {
    let town = Town::new();
    let mut witness = Witness::default();
    witness.hear(&town.produce(EVENTS, &[]).await);
    let mut relay = town.relay(&LASTING).await;
    let said = relay.hear("who is away", |line| line.contains("endpoint tenant-")).await;
    assert!(said.contains("delivered=0") && said.contains("dead=0"), "{said}");
    assert_eq!(town.position(), 0, "the cursor of a destination that is down stands");
    assert_eq!(town.waiting("attempts > 0"), 0);
    let partner = town.receiver(&[]).await;
    town.until_passed(&mut relay, u64::from(EVENTS)).await;
    assert_eq!(relay.finish().await.code, Some(0));
    partner.finish().await;
    assert_eq!(town.duplicates(), 0);
    assert!(town.records().iter().all(|record| record.attempt == 1), "an outage counts nothing");
    assert_holds(&witness.judge(&town).1, &OF_A_RELAY);
}

/// F6: the partner's machine takes what is sent and answers nothing: requests end at their deadline,
/// the lease is kept, and when he wakes up nothing is missing.
#[tokio::test]
async fn a_partner_who_is_frozen_is_not_waited_for_beyond_the_deadline() {
    let town = Town::new();
    let mut witness = Witness::default();
    let partner = town.receiver(&[]).await;
    let mut relay = town.relay(&["--lease-ms", "15000", "--deadline-ms", "200"]).await;
    witness.hear(&town.produce(20, &[]).await);
    town.until_passed(&mut relay, 20).await;
    partner.pause();
    witness.hear(&town.produce(EVENTS, &["--seed", "2"]).await);
    relay.hear("who is silent", |line| line.contains("endpoint tenant-")).await;
    partner.resume();
    town.until_passed(&mut relay, 20 + u64::from(EVENTS)).await;
    town.stage.until(&mut relay, "nothing waits", || town.waiting("true") == 0).await;
    let ended = relay.finish().await;
    assert_eq!(ended.code, Some(0));
    let last = ended.heard.iter().rfind(|line| line.starts_with("health")).expect("its health");
    assert!(last.contains("dead=0 lost=0 fenced=0"), "{last}");
    partner.finish().await;
    let (history, verdict) = witness.judge(&town);
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, 20 + u64::from(EVENTS));
}

/// F8: every answer takes its time: no more is under way than there may be, no lease is lost, and
/// nothing comes twice.
#[tokio::test]
async fn slow_partners_are_not_flooded() {
    let town = Town::new();
    let mut witness = Witness::default();
    let partner = town.receiver(&["--slow-ms", "250"]).await;
    witness.hear(&town.produce(EVENTS, &[]).await);
    let args = ["--connections", "10", "--per-endpoint", "4"];
    let mut relay = town.relay(&[&args[..], &LASTING[..]].concat()).await;
    town.until_passed(&mut relay, u64::from(EVENTS)).await;
    let ended = relay.finish().await;
    let last = ended.heard.iter().rfind(|line| line.starts_with("health")).expect("its health");
    assert!(last.contains("dead=0 lost=0 fenced=0"), "{last}");
    let most: u64 = partner.finish().await.all("most-under-way").join("").parse().expect("a count");
    assert!((5..=10).contains(&most), "{most} were under way");
    assert_eq!(town.duplicates(), 0);
    assert_holds(&witness.judge(&town).1, &OF_A_RELAY);
}

/// F9, R005, R063: the partner records and hangs up: what he did not acknowledge was not delivered, and
/// comes again with the same id.
#[tokio::test]
async fn an_answer_that_is_lost_is_no_answer() {
    let town = Town::new();
    let mut witness = Witness::default();
    witness.hear(&town.produce(EVENTS, &[]).await);
    let partner = town.receiver(&["--mute", "20"]).await;
    let mut relay = town.relay(&LASTING).await;
    town.until_passed(&mut relay, u64::from(EVENTS)).await;
    town.stage.until(&mut relay, "nothing waits", || town.waiting("true") == 0).await;
    assert_eq!(relay.finish().await.code, Some(0));
    partner.finish().await;
    assert_eq!(town.times().len(), EVENTS as usize);
    assert_eq!(town.duplicates(), 20, "each lost answer is one more request");
    assert_holds(&witness.judge(&town).1, &OF_A_RELAY);
}
