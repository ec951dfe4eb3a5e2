//! SIGKILL of each side: the relay at its points and at random, the partner before and after he
//! recorded, the producer anywhere. What was committed arrives, per endpoint and in the order of its
//! key, and what comes twice is bounded by the window and by what was under way.

use postrider_core::Jitter;
use postrider_relay::Point;

use crate::evidence::{OF_A_RELAY, assert_holds, placed};
use crate::process::Ended;
use crate::stage::number;
use crate::webhook::evidence::Witness;
use crate::webhook::town::Town;

const EVENTS: u32 = 160;

/// Events that the relay reads ahead of its cursor: what a kill may double at most.
const WINDOW: u64 = 64;
const WINDOW_ARGS: [&str; 2] = ["--window", "64"];

/// Requests under way at most.
const UNDER_WAY: u64 = 32;
const UNDER_WAY_ARGS: [&str; 2] = ["--connections", "32"];

/// Events that were recorded though the cursor has not passed them.
fn recorded_ahead(town: &Town) -> u64 {
    let shop = town.stage.shop();
    let position = town.position();
    let mut statement = shop.prepare("select seq from outbox where id = ?1").expect("a statement");
    let ahead = town.times().into_keys().filter(|id| {
        let seq = statement.query_row([id.to_string()], |row| row.get::<_, i64>(0));
        seq.expect("its row").cast_unsigned() > position
    });
    ahead.count() as u64
}

/// Kills a relay at a point, when so many events are recorded, lets another finish, judges, and says
/// how many events came twice.
async fn kill_at(point: Point, nth: u32, recorded: usize) -> u64 {
    let town = Town::new();
    let mut witness = Witness::default();
    witness.hear(&town.produce(EVENTS, &[]).await);
    let partner = town.receiver(&[]).await;
    let place = format!("{point}:{nth}");
    let mut relay = town.relay(&[&["--halt", place.as_str()], &WINDOW_ARGS[..]].concat()).await;
    assert_eq!(relay.reached().await, format!("reached {point}"));
    let so_many = || town.records().len() >= recorded;
    town.stage.until(&mut relay, "what was under way is recorded", so_many).await;
    relay.kill().await;
    // What the dead relay had sent may still be recorded, until nobody listens.
    assert_eq!(partner.finish().await.code, Some(0));
    witness.look(&town);
    let ahead = recorded_ahead(&town);
    assert!(ahead <= WINDOW, "{ahead} events were recorded and not saved");

    let partner = town.receiver(&[]).await;
    town.drain().await;
    let ended = partner.finish().await;
    assert!(ended.all("unverified").is_empty(), "{:?}", ended.heard);
    assert_eq!(town.duplicates(), ahead, "what was recorded and not saved comes again, no more");
    assert_eq!(town.position(), u64::from(EVENTS));
    let (history, verdict) = witness.judge(&town);
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, u64::from(EVENTS));
    ahead
}

/// F1, R001: killed with requests that it was about to send.
#[tokio::test]
async fn killed_before_publish_nothing_is_lost() {
    kill_at(Point::BeforePublish, 1, 0).await;
    kill_at(Point::BeforePublish, 90, 50).await;
}

/// F1, R005: killed with an answer in its hand: that request was not recorded as delivered, so it is
/// sent again, with the same id.
#[tokio::test]
async fn killed_after_publish_the_event_comes_again() {
    assert!(kill_at(Point::AfterPublish, 1, 1).await >= 1);
    assert!(kill_at(Point::AfterPublish, 90, 90).await >= 1);
}

/// F1: killed when it was about to record what was acknowledged: all of its window comes again, and no
/// more.
#[tokio::test]
async fn killed_before_settle_what_was_not_saved_comes_again() {
    // Nothing is saved any more, and the window is delivered as far as it goes.
    assert_eq!(kill_at(Point::BeforeSettle, 1, 64).await, WINDOW);
}

/// Kills the partner at a place while the relay goes on, and starts him again. Says how many events
/// came twice.
async fn kill_partner_at(place: &str) -> u64 {
    let town = Town::new();
    let mut witness = Witness::default();
    let mut partner = town.receiver(&["--halt", place]).await;
    let mut relay = town.relay(&UNDER_WAY_ARGS).await;
    witness.hear(&town.produce(EVENTS, &[]).await);
    partner.reached().await;
    partner.kill().await;
    relay.hear("that an endpoint is away", |line| line.contains("endpoint tenant-")).await;
    let partner = town.receiver(&[]).await;
    town.until_passed(&mut relay, u64::from(EVENTS)).await;
    town.stage.until(&mut relay, "nothing waits", || town.waiting("true") == 0).await;
    assert_eq!(relay.finish().await.code, Some(0));
    partner.finish().await;
    let duplicates = town.duplicates();
    assert!(duplicates <= UNDER_WAY, "{duplicates} came twice");
    let (history, verdict) = witness.judge(&town);
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, u64::from(EVENTS));
    duplicates
}

/// F9, R005, R063: the partner dies between his record and his answer: what he has comes again under
/// the same id, and the relay that never heard an answer lives on.
#[tokio::test]
async fn a_partner_killed_before_his_answer_is_told_again() {
    assert!(kill_partner_at("after_record:40").await >= 1);
}

/// F5: the partner dies before he recorded: nothing was acknowledged, so nothing is lost.
#[tokio::test]
async fn a_partner_killed_before_his_record_misses_nothing() {
    kill_partner_at("before_record:40").await;
}

/// Who is killed in a round.
#[derive(Clone, Copy, Debug)]
enum Strike {
    Relay,
    Partner,
    Both,
}

/// Plays a round of orders, in which somebody is killed after so many of them. Returns what the
/// producer said.
async fn round(town: &Town, strike: Strike, after: u64, seed: u64) -> Ended {
    let (mut relay, mut partner) =
        (town.relay(&[WINDOW_ARGS, UNDER_WAY_ARGS].concat()).await, town.receiver(&[]).await);
    let seed = seed.to_string();
    let args = ["--count", "5000", "--tenants", "4", "--keys", "40", "--rollback-every", "4"];
    let mut producer = town.stage.start("producer", &[&args[..], &["--seed", &seed]].concat());
    for _ in 0..after {
        producer.hear_word("committed").await;
    }
    match strike {
        Strike::Relay => {
            relay.kill().await;
            relay = town.relay(&[WINDOW_ARGS, UNDER_WAY_ARGS].concat()).await;
        }
        Strike::Partner => {
            partner.kill().await;
            partner = town.receiver(&[]).await;
        }
        Strike::Both => {
            partner.kill().await;
            relay.kill().await;
            partner = town.receiver(&[]).await;
            relay = town.relay(&[WINDOW_ARGS, UNDER_WAY_ARGS].concat()).await;
        }
    }
    for _ in 0..10 {
        producer.hear_word("committed").await;
    }
    // On a fast disk all its orders are committed before anybody has started again.
    let producer = producer.kill_or_ended().await;
    relay.kill().await;
    partner.kill().await;
    producer
}

/// F1, F5, R001, R002, R068: relay, partner, and producer are killed at moments that nobody chose:
/// everything that was committed arrives at its endpoint, in the order of its key, nothing that was
/// rolled back does, and the store never claims what the partner has not.
#[tokio::test]
async fn whoever_is_killed_every_endpoint_gets_its_events() {
    let seed = 40_961;
    let mut dice = Jitter::seeded(seed);
    let town = Town::new();
    let mut witness = Witness::default();
    for number in 0..9 {
        let strike = [Strike::Relay, Strike::Partner, Strike::Both][number as usize % 3];
        let after = 20 + dice.bits() % 60;
        witness.hear(&round(&town, strike, after, number + 1).await);
        witness.look(&town);
    }
    // What failed while the partner died waits for its next try, so this one goes on until all is done.
    let partner = town.receiver(&[]).await;
    let mut relay = town.relay(&[]).await;
    let last = number(&town.stage.shop(), "select max(seq) from outbox").cast_unsigned();
    town.until_passed(&mut relay, last).await;
    town.stage.until(&mut relay, "nothing waits", || town.waiting("true") == 0).await;
    assert_eq!(relay.finish().await.code, Some(0));
    assert!(partner.finish().await.all("unverified").is_empty(), "seed {seed}");
    // A relay was killed in 6 rounds while it worked, and in each of the 9 at the end; so was the
    // partner.
    let bound = 15 * WINDOW + 15 * UNDER_WAY;
    assert!(town.duplicates() <= bound, "seed {seed}: {} came twice", town.duplicates());
    let (history, verdict) = witness.judge(&town);
    assert_holds(&verdict, &OF_A_RELAY);
    let placed = placed(&town.stage).len() as u64;
    assert!(placed >= 270, "seed {seed}: {placed} orders");
    assert_eq!(history.ledger().delivered, placed, "seed {seed}");
}
