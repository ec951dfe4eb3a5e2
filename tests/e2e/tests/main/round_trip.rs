//! Everything at once: orders, relay, broker, and handlers, killed at random for some rounds, then
//! left alone until all is at rest.
//!
//! The seed decides where and when; a failure names it.

use std::collections::BTreeSet;

use postrider_core::{Invariant, Jitter};
use postrider_e2e::PLACED;

use tokio::task::JoinSet;

use crate::evidence::{OF_A_RELAY, Witness, assert_holds, effects, ids, placed, received};
use crate::stage::Stage;

/// What each round of the round trip kills.
const ROUNDS: u64 = 5;

/// Dice that fall as the seed says.
struct Dice(Jitter);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.bits() % bound
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[usize::try_from(self.below(of.len() as u64)).expect("small")]
    }
}

/// R001, R002: 2,000 transactions, while application and relay are killed at moments that
/// nobody chose: everything that was committed arrives, in the order of its key.
#[tokio::test]
async fn whatever_is_killed_everything_committed_arrives() {
    let seed = 20_261;
    let mut dice = Dice(Jitter::seeded(seed));
    let stage = Stage::new();
    let mut witness = Witness::default();
    let (mut told, mut tried, mut killed) = (BTreeSet::new(), 0, 0);
    while tried < 2_000 {
        let relay = stage.play("relay", &[]).await;
        let round = killed.to_string();
        let args = ["--count", "5000", "--seed", &round, "--rollback-every", "4", "--keys", "40"];
        let mut producer = stage.start("producer", &args);
        // The moment to strike: when this many were heard, wherever the two are by then.
        let strike = 60 + dice.below(120);
        let relay_first = dice.below(2) == 0;
        for _ in 0..strike {
            producer.hear_word("committed").await;
        }
        let producer = match relay_first {
            true => {
                relay.kill().await;
                producer.kill().await
            }
            false => {
                let producer = producer.kill().await;
                relay.kill().await;
                producer
            }
        };
        killed += 2;
        tried += producer.all("trying").len();
        told.extend(ids(&producer.all("committed")));
        witness.hear(&producer);
        witness.look(&stage).await;
    }
    stage.drain().await;
    assert!(killed >= 16, "seed {seed}: only {killed} were killed");
    let (placed, received) = (placed(&stage), received(&stage).await);
    assert!(told.is_subset(&placed), "seed {seed}: what was said to be committed is");
    assert!(placed.len() >= 1_400, "seed {seed}: {} orders", placed.len());
    assert_eq!(placed, received, "seed {seed}");
    let (history, verdict) = witness.judge(&stage).await;
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, placed.len() as u64, "seed {seed}");
}

/// The points at which a relay that has something to send is sure to pass.
const RELAY: [&str; 6] = [
    "after_acquire:1",
    "after_fetch:1",
    "before_publish:1",
    "after_publish:1",
    "before_settle:1",
    "after_settle:1",
];

/// One process of a round: its role, and what it is told.
type Part = (&'static str, Vec<String>);

/// Who plays in a round, each with the place at which it will be killed.
fn plan(dice: &mut Dice, round: u64) -> Vec<Part> {
    const TRANSACTION: [&str; 2] = ["before_commit", "after_commit"];
    const CLAIM: [&str; 4] = ["holding", "after_effect", "after_step", "after_commit"];
    let words = |text: String| text.split(' ').map(str::to_owned).collect();
    let (point, nth) = (dice.pick(&TRANSACTION), 21 + dice.below(30));
    let producer =
        format!("--count 90 --keys 12 --rollback-every 5 --seed {round} --halt {point}:{nth}");
    let relay = format!("--halt {}", dice.pick(&RELAY));
    let mut parts = vec![("producer", words(producer)), ("relay", words(relay))];
    for (kind, points) in
        [("billing", &TRANSACTION[..]), ("mail", &CLAIM[..]), ("shipping", &TRANSACTION[..])]
    {
        let (point, nth) = (dice.pick(points), 1 + dice.below(4));
        parts.push(("consumer", words(format!("--kind {kind} --halt {point}:{nth}"))));
    }
    parts
}

/// Plays a round: all at once, each killed as soon as it stands still, since one that holds a lock
/// holds up the others. Returns where each was killed.
async fn strike(stage: &Stage, parts: &[Part], witness: &mut Witness) -> Vec<String> {
    let mut ends = JoinSet::new();
    for (role, told) in parts {
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        let mut process = stage.start(role, &told);
        ends.spawn(async move {
            let place = process.reached().await;
            (place, process.kill().await)
        });
    }
    let mut struck = Vec::new();
    while let Some(end) = ends.join_next().await {
        let (place, killed) = end.expect("a kill");
        witness.hear(&killed);
        struck.push(place);
    }
    struck
}

/// R001, R004, R007, R009: the whole way, with a relay, a producer, and three handlers killed in
/// each round. INV-1, 2, 3, 4, and 7 hold at the end, each judged on what happened.
#[tokio::test]
async fn the_whole_way_holds_whatever_is_killed() {
    let seed = 7_919;
    let mut dice = Dice(Jitter::seeded(seed));
    let stage = Stage::new();
    let mut witness = Witness::default();
    let mut struck = Vec::new();
    // The handlers of a round act on what was delivered before it, so that each is sure to be hit.
    witness.hear(&stage.produce(40, &["--seed", "999"]).await);
    stage.drain().await;
    for round in 0..ROUNDS {
        struck.extend(strike(&stage, &plan(&mut dice, round), &mut witness).await);
        witness.look(&stage).await;
        stage.drain().await;
        witness.look(&stage).await;
    }
    assert_eq!(struck.len() as u64, ROUNDS * 5, "every planned kill struck: {struck:?}");
    for kind in ["billing", "mail", "shipping"] {
        stage.consume(kind).await;
    }
    stage.drain().await;
    let placed = placed(&stage);
    for (kind, acted) in effects(&stage) {
        let distinct: BTreeSet<_> = acted.iter().copied().collect();
        assert_eq!(distinct, placed, "seed {seed}: {kind} acted on every {PLACED}");
    }
    let (history, verdict) = witness.judge(&stage).await;
    assert_holds(&verdict, &[&OF_A_RELAY[..], &[Invariant::OneEffect]].concat());
    let ledger = history.ledger();
    assert!(ledger.is_clean(), "seed {seed}: {ledger:?}");
    assert_eq!(ledger.dead_lettered, 0, "seed {seed}");
    assert_eq!(ledger.effects, 3 * placed.len() as u64, "seed {seed}");
    assert!(ledger.duplicates_absorbed > 0, "seed {seed}: no kill doubled anything");
}
