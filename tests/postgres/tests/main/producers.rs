//! The application killed before, within, and after COMMIT, and transactions that are rolled back.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use uuid::Uuid;

use crate::stage::{PATIENCE, Stage, connect};

/// How often it is killed at any moment.
const KILLS: u32 = 12;

/// A producer's process, which is killed when the value is dropped, and what it says.
struct Producer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: Vec<(String, String)>,
}

impl Producer {
    fn start(stage: &Stage, words: &[&str]) -> Producer {
        let mut child = Command::new(env!("CARGO_BIN_EXE_postgres-producer"))
            .args([&format!("{}?application_name=producer", stage.cluster.url()), "100000"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a producer starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Producer { child, lines, said: Vec::new() }
    }

    /// Hears one line; `None` if there are no more.
    async fn hear(&mut self) -> Option<()> {
        let heard = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let line = heard.expect("it says something").expect("a line")?;
        let (word, rest) = line.split_once(' ').expect("a word and more");
        self.said.push((word.to_owned(), rest.to_owned()));
        Some(())
    }

    /// Waits until it has said a word so often.
    async fn said(&mut self, word: &str, times: usize) {
        while self.said.iter().filter(|(said, _)| said == word).count() < times {
            self.hear().await.expect("it goes on until it is killed");
        }
    }

    /// SIGKILL, and everything that it said before.
    async fn kill(mut self, stage: &Stage) -> Told {
        self.child.kill().await.expect("it runs until it is killed");
        while self.hear().await.is_some() {}
        let of = |word: &str| {
            let ids = self.said.iter().filter(|(said, _)| said == word);
            ids.map(|(_, id)| id.parse().expect("an id")).collect::<BTreeSet<Uuid>>()
        };
        let told = Told {
            tried: of("trying"),
            committed: of("committed"),
            rolled_back: of("rolled-back"),
        };
        assert!(!told.tried.is_empty(), "{:?}", self.said);
        has_ended(stage).await;
        told
    }
}

/// Waits until the server has noticed that its client is no more.
async fn has_ended(stage: &Stage) {
    let open = "select count(*) from pg_stat_activity where application_name = 'producer'";
    let began = Instant::now();
    while stage.number(open).await > 0 {
        assert!(began.elapsed() < PATIENCE, "the server keeps the session");
        // waits: the server tells nobody that it has ended a session
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a producer said of its transactions.
struct Told {
    tried: BTreeSet<Uuid>,
    committed: BTreeSet<Uuid>,
    rolled_back: BTreeSet<Uuid>,
}

impl Told {
    /// Of what it could not say how it ended.
    fn unknown(&self) -> BTreeSet<Uuid> {
        let known: BTreeSet<Uuid> = &self.committed | &self.rolled_back;
        &self.tried - &known
    }
}

impl Stage {
    /// The events of the orders that are there, by the application's own table.
    async fn orders(&self) -> BTreeSet<Uuid> {
        let client = connect(&self.cluster.url()).await;
        let rows = client.query("select event_id from orders", &[]).await.expect("orders");
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn events(&self) -> BTreeSet<Uuid> {
        self.rows().await.iter().map(|row| row.id).collect()
    }

    /// A relay that ends when nothing is left, and what arrived by then.
    async fn delivered(&self) -> BTreeSet<Uuid> {
        let ended = self.relay(&self.cluster.url(), &["once"]).wait().await.expect("it ends");
        assert!(ended.success(), "{ended}");
        self.arrived().into_iter().collect()
    }
}

async fn with_orders() -> Option<Stage> {
    let stage = Stage::open(&["fsync = off"]).await?;
    drop(stage.session("create table orders (event_id uuid primary key)").await);
    Some(stage)
}

/// Kills a producer at a point of its 20th transaction that does not end before.
async fn kill_at(stage: &Stage, point: &str, words: &[&str]) -> Told {
    let place = format!("{point}:20");
    let mut producer = Producer::start(stage, &[words, &[&place]].concat());
    producer.said("reached", 1).await;
    producer.kill(stage).await
}

/// F2, R002: killed before COMMIT: the order never was, and its event neither.
#[tokio::test]
async fn killed_before_commit_neither_order_nor_event_exist() {
    let Some(stage) = with_orders().await else { return };
    let told = kill_at(&stage, "before_commit", &[]).await;
    let orders = stage.orders().await;
    assert_eq!((told.unknown().len(), orders.len()), (1, told.committed.len()));
    assert!(orders.is_disjoint(&told.unknown()), "the database knows the outcome: rolled back");
    assert!(!told.rolled_back.is_empty() && orders.is_disjoint(&told.rolled_back));
    assert_eq!(orders, told.committed);
    assert_eq!(stage.events().await, orders);
    assert_eq!(stage.delivered().await, orders);
}

/// F2, R001: killed after COMMIT and before anybody was told: the order is there, and so is its event.
#[tokio::test]
async fn killed_after_commit_the_event_is_delivered() {
    let Some(stage) = with_orders().await else { return };
    let told = kill_at(&stage, "after_commit", &[]).await;
    let orders = stage.orders().await;
    assert_eq!((told.unknown().len(), orders.len()), (1, told.committed.len() + 1));
    assert!(told.unknown().is_subset(&orders), "the database knows the outcome: committed");
    assert_eq!(stage.events().await, orders);
    assert_eq!(stage.delivered().await, orders);
}

/// F2, R001: killed when the server has done its COMMIT and the answer was not heard: the database knows the outcome,
/// and the event is delivered.
#[tokio::test]
async fn killed_before_the_answer_to_commit_the_event_is_delivered() {
    let Some(stage) = with_orders().await else { return };
    let mut producer = Producer::start(&stage, &["during_commit:20"]);
    producer.said("reached", 1).await;
    let (_, last) = producer.said.iter().rfind(|(word, _)| word == "trying").expect("it tried");
    let (last, began) = (last.parse().expect("an id"), Instant::now());
    while !stage.orders().await.contains(&last) {
        assert!(began.elapsed() < PATIENCE, "the COMMIT was sent");
        // waits: the server tells nobody but the producer, which does not listen
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let told = producer.kill(&stage).await;
    assert_eq!(told.unknown(), BTreeSet::from([last]));
    let orders = stage.orders().await;
    assert_eq!(orders, &told.committed | &told.unknown());
    assert_eq!(stage.events().await, orders);
    assert_eq!(stage.delivered().await, orders);
}

/// F2, R001, R002: an application is killed again and again at any moment while a relay is at work, and a third of its
/// transactions is rolled back. What arrives is what is committed.
#[tokio::test]
async fn killed_at_any_moment_it_leaves_both_or_neither() {
    let Some(stage) = with_orders().await else { return };
    let relay = stage.relay(&stage.cluster.url(), &[]);
    let (mut committed, mut rolled_back) = (BTreeSet::new(), BTreeSet::new());
    let mut unknown = BTreeSet::new();
    for round in 0..KILLS {
        let mut producer = Producer::start(&stage, &[]);
        producer.said("committed", 10).await;
        // waits: the kill is to come at another moment of a transaction each time
        tokio::time::sleep(Duration::from_micros(u64::from(round) * 700)).await;
        let told = producer.kill(&stage).await;
        unknown.extend(told.unknown());
        committed.extend(told.committed);
        rolled_back.extend(told.rolled_back);
    }
    let orders = stage.orders().await;
    assert_eq!(stage.events().await, orders);
    assert!(committed.is_subset(&orders), "what it was told is there");
    assert!(!rolled_back.is_empty() && rolled_back.is_disjoint(&orders));
    stage.all_arrive().await;
    drop(relay);
    let arrived: BTreeSet<Uuid> = stage.arrived().into_iter().collect();
    assert_eq!(arrived, orders);
    let there = unknown.intersection(&orders).count();
    eprintln!(
        "{KILLS} kills: {} told, {} unknown, {there} of them there",
        committed.len(),
        unknown.len()
    );
}

/// The control: an application that commits its order and its event apart is seen to leave one without the other.
#[tokio::test]
async fn an_application_that_commits_them_apart_is_seen() {
    let Some(stage) = with_orders().await else { return };
    let told = kill_at(&stage, "between", &["apart"]).await;
    let (orders, events) = (stage.orders().await, stage.events().await);
    assert_eq!(told.unknown(), &orders - &events, "an order without its event");
    assert_eq!((told.unknown().len(), stage.delivered().await), (1, told.committed));
}
