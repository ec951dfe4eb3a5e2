//! The whole way: a transaction in PostgreSQL, the relay, NATS, a consumer with its inbox, and the effect.

use std::process::Stdio;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use postrider_core::{EventId, Invariant};
use postrider_history::{History, Verdict, check};
use postrider_postgres::{Setup, init};
use postrider_testkit::cluster::Cluster;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls};

use crate::nats::Nats;
use crate::stage::{LEASE, PATIENCE, signal};

/// Keys of the events.
const KEYS: u32 = 10;

struct WholeWay {
    cluster: Cluster,
    nats: Nats,
    folder: TempDir,
    shop: Client,
    written: u32,
    rolled_back: Vec<EventId>,
}

impl WholeWay {
    async fn open() -> Option<WholeWay> {
        let nats = Nats::start().await?;
        let cluster = Cluster::start(&["fsync = off"]).await?;
        let setup = Setup { partitions: Some(4), ..Setup::default() };
        init(&cluster.url(), &setup).await.unwrap();
        let (shop, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        // No constraint keeps a second effect out: that is the inbox's work.
        let table = "create table effects (n bigserial, event_id text not null)";
        shop.batch_execute(table).await.unwrap();
        let folder = TempDir::with_prefix("postrider-way-").unwrap();
        Some(WholeWay { cluster, nats, folder, shop, written: 0, rolled_back: Vec::new() })
    }

    fn process(&self, program: &str, args: &[&str]) -> Child {
        let log = self.folder.path().join("log");
        let log = std::fs::File::options().append(true).create(true).open(log).unwrap();
        Command::new(program)
            .args([&*self.cluster.url(), &self.nats.server.address()])
            .args(args)
            // Proofs of life are of this test alone.
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn relay(&self) -> Child {
        self.process(env!("CARGO_BIN_EXE_broker-relay"), &[&LEASE.as_millis().to_string()])
    }

    fn consumer(&self, more: &[&str]) -> Child {
        self.process(env!("CARGO_BIN_EXE_broker-consumer"), more)
    }

    /// Commits so many events, each key's next ones, and takes back as many.
    async fn write(&mut self, count: u32) {
        for commits in [false, true] {
            self.shop.batch_execute("begin").await.unwrap();
            let insert = format!(
                "insert into postrider.outbox (aggregate_type, aggregate_id, event_type, event_version, payload)
                 select 'account', (n % {KEYS})::text, 'account.moved', n + 1, n::text
                 from generate_series({}, {}) n returning id::text",
                self.written,
                self.written + count - 1
            );
            let rows = self.shop.query(&insert, &[]).await.unwrap();
            if commits {
                self.shop.batch_execute("commit").await.unwrap();
            } else {
                let ids =
                    rows.iter().map(|row| row.get::<_, String>(0).parse::<EventId>().unwrap());
                self.rolled_back.extend(ids);
                self.shop.batch_execute("rollback").await.unwrap();
            }
        }
        self.written += count;
    }

    async fn ids(&self, statement: &str) -> Vec<EventId> {
        let rows = self.shop.query(statement, &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0).parse().unwrap()).collect()
    }

    async fn effects(&self) -> Vec<EventId> {
        self.ids("select event_id from effects order by n").await
    }

    /// Waits until so many different events had their effect.
    async fn acted(&self, least: usize) {
        let begun = Instant::now();
        loop {
            let mut effects = self.effects().await;
            effects.sort_unstable();
            effects.dedup();
            if effects.len() >= least {
                return;
            }
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "{} of {least} effects\n{log}", effects.len());
            // waits: another process acts
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Puts copies of the first messages into the stream, as a relay does that does not know what became of them.
    async fn copy(&self, count: u64) {
        for sequence in 1..=count {
            let message = self.nats.stream.get_raw_message(sequence).await.unwrap();
            let mut headers: HeaderMap = message.headers;
            headers.insert("Nats-Msg-Id", format!("copy-{sequence}"));
            let jetstream = self.nats.jetstream().await;
            let sent = jetstream.publish_with_headers("orders", headers, message.payload).await;
            sent.unwrap().await.unwrap();
        }
    }

    /// Waits until the group has nothing left.
    async fn settled(&self) {
        let begun = Instant::now();
        loop {
            if let Ok(group) = self.nats.stream.consumer_info("ledger").await
                && (group.num_pending, group.num_ack_pending) == (0, 0)
            {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the group does not come to rest");
            // waits: the server tells nobody what is settled
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What was committed against what had its effect.
    async fn judge(&self) -> Verdict {
        let mut history = History::new();
        let all = "select id::text, aggregate_id, event_version from postrider.outbox \
                   order by event_version";
        for row in self.shop.query(all, &[]).await.unwrap() {
            let id: String = row.get(0);
            history.commit_for(id.parse().unwrap(), row.get(1), &["ledger"]);
        }
        for id in &self.rolled_back {
            history.roll_back(*id);
        }
        for id in self.effects().await {
            history.deliver("ledger", id);
            history.effect("", id, "ledger");
        }
        check(&history)
    }
}

/// Everything that the promise is about, judged on something.
const PROMISE: [Invariant; 4] =
    [Invariant::NoLoss, Invariant::NoGhost, Invariant::KeyOrder, Invariant::OneEffect];

/// F1, F2, F5, F6, F10, F11, INV-1 to INV-4: relays, consumers, and the server are killed and stopped in turn, and
/// messages are there twice; what was committed has its effect once, in its key's order, and nothing else has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_committed_has_one_effect_whatever_is_killed() {
    let Some(mut way) = WholeWay::open().await else { return };
    let mut relays = vec![way.relay(), way.relay()];
    let mut consumers = vec![way.consumer(&[]), way.consumer(&[])];
    let mut acted = 0;
    for round in 0..6 {
        way.write(100).await;
        // In the middle, unless they are very fast.
        way.acted(acted + 20).await;
        match round {
            0 => {
                relays.remove(0).kill().await.unwrap();
                relays.push(way.relay());
            }
            1 => {
                consumers.remove(0).kill().await.unwrap();
                consumers.push(way.consumer(&[]));
            }
            2 | 5 => {
                way.nats.server.kill();
                way.nats.server.run().unwrap();
            }
            _ => {
                let stopped = if round == 3 { &relays[0] } else { &consumers[0] };
                signal(stopped, "-STOP");
                // waits: for longer than a lease, and than a delivery is hidden
                tokio::time::sleep(LEASE + LEASE / 2).await;
                signal(stopped, "-CONT");
            }
        }
        acted += 100;
    }
    way.acted(acted).await;
    way.copy(20).await;
    way.settled().await;
    let verdict = way.judge().await;
    assert!(verdict.holds(), "{verdict}");
    for invariant in PROMISE {
        assert!(verdict.judged(invariant) > 0, "{invariant} was judged on nothing");
    }
    assert_eq!(way.effects().await.len(), 600);
}

/// The negative control: without an inbox the copies have their effects too, and the checker says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_inbox_a_second_effect_is_found() {
    let Some(mut way) = WholeWay::open().await else { return };
    let (_relay, _consumer) = (way.relay(), way.consumer(&["careless"]));
    way.write(50).await;
    way.acted(50).await;
    way.copy(5).await;
    way.settled().await;
    let verdict = way.judge().await;
    assert_eq!(verdict.broken(), [Invariant::OneEffect], "{verdict}");
}
