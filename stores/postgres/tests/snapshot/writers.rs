//! Applications that write events in every way a transaction can go.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::SinkExt as _;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::dice::Dice;
use crate::place::Fate;
use crate::shop::{ACCOUNTS, Shop};

type Sent<T> = Result<T, tokio_postgres::Error>;

/// What the applications do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) writers: u64,
    /// Of each writer.
    pub(crate) transactions: u64,
    /// So many of the writers have transactions of 2 to 5 seconds.
    pub(crate) long: u64,
    /// Whether some transactions are prepared. One that a crash leaves prepared would have no end.
    pub(crate) prepares: bool,
    /// Every second writer does not wait for the disk.
    pub(crate) asynchronous: bool,
}

/// What the applications did.
#[derive(Debug, Default)]
pub(crate) struct Deeds {
    pub(crate) fates: BTreeMap<Uuid, Fate>,
    /// By the way a transaction went.
    pub(crate) ways: BTreeMap<&'static str, usize>,
}

impl Deeds {
    pub(crate) fn count(&self, fate: Fate) -> usize {
        self.fates.values().filter(|one| **one == fate).count()
    }
}

impl Load {
    /// Runs all writers to their end.
    pub(crate) async fn run(self, shop: &Shop, seed: u64) -> Deeds {
        let deeds = Arc::new(Mutex::new(Deeds::default()));
        let mut writers = tokio::task::JoinSet::new();
        for number in 0..self.writers {
            let writer = Writer {
                shop: shop.clone(),
                load: self,
                number,
                dice: Dice::new(seed ^ (number << 32)),
                events: Vec::new(),
                deeds: Arc::clone(&deeds),
            };
            writers.spawn(writer.run());
        }
        while let Some(ended) = writers.join_next().await {
            ended.expect("a writer ends");
        }
        Arc::into_inner(deeds).expect("they ended").into_inner().expect("no panic")
    }
}

/// One application with one connection.
struct Writer {
    shop: Shop,
    load: Load,
    number: u64,
    dice: Dice,
    /// Of the transaction under way, with what becomes of each if it commits.
    events: Vec<(Uuid, Fate)>,
    deeds: Arc<Mutex<Deeds>>,
}

impl Writer {
    async fn run(mut self) {
        let mut client = self.connect().await;
        let many =
            if self.is_long() { self.load.transactions.min(3) } else { self.load.transactions };
        for turn in 0..many {
            self.events.clear();
            let ended = self.transaction(&client, turn).await;
            let fate = match ended {
                Ok(fate) => fate,
                Err(error) if error.as_db_error().is_some_and(|it| it.code().code() < "53") => {
                    panic!("a writer is refused: {error:?}")
                }
                Err(_) => Fate::Unknown,
            };
            self.note(fate);
            if fate == Fate::Unknown {
                client = self.connect().await;
            }
        }
    }

    /// Writes down what became of the transaction.
    fn note(&mut self, fate: Fate) {
        let mut deeds = self.deeds.lock().expect("no panic");
        for (id, inner) in self.events.drain(..) {
            deeds.fates.insert(id, if inner == Fate::RolledBack { inner } else { fate });
        }
    }

    async fn connect(&self) -> Client {
        loop {
            let client = self.shop.connect().await;
            let lazy = self.load.asynchronous && self.number.is_multiple_of(2);
            let setting = format!("set synchronous_commit = {}", if lazy { "off" } else { "on" });
            if client.batch_execute(&setting).await.is_ok() {
                return client;
            }
        }
    }

    fn is_long(&self) -> bool {
        self.number < self.load.long
    }

    fn count(&self, way: &'static str) {
        *self.deeds.lock().expect("no panic").ways.entry(way).or_default() += 1;
    }

    async fn pause(&mut self) {
        if self.dice.one_in(2) {
            // waits: transactions that overlap are what is tested
            tokio::time::sleep(Duration::from_millis(self.dice.below(20))).await;
        }
    }

    /// A transaction from its beginning to its end.
    async fn transaction(&mut self, client: &Client, turn: u64) -> Sent<Fate> {
        client.batch_execute("begin").await?;
        if self.dice.one_in(2) {
            self.count("number first");
            client.batch_execute("select pg_current_xact_id()").await?;
            self.pause().await;
        }
        let many = [1, 1, 1, 2, 5, 20][usize::try_from(self.dice.below(6)).expect("small")];
        let serialised = self.dice.one_in(2);
        let (key, first) = self.key(client, serialised, many).await?;
        self.pause().await;
        let rows: Vec<(Uuid, String, i32)> = (first..)
            .take(many)
            .map(|n| {
                let own = || format!("own-{}", Uuid::now_v7().simple());
                (Uuid::now_v7(), key.clone().unwrap_or_else(own), n)
            })
            .collect();
        self.insert(client, &rows).await?;
        if self.is_long() {
            self.count("long");
            // As if many events were written beside it: it is found by its number, and not by reading on from
            // its floor.
            let many = self
                .shop
                .sql("select max(nextval({text:outbox_seq})) from generate_series(1, 20000)");
            client.batch_execute(&many).await?;
            let long = Duration::from_millis(2_000 + self.dice.below(3_000));
            // waits: a long transaction is what is tested
            tokio::time::sleep(long).await;
        }
        self.pause().await;
        self.end(client, turn).await
    }

    /// Half of the events belong to a key whose row is locked before they are written, as an application has
    /// to do it that wants them in order.
    async fn key(
        &mut self,
        client: &Client,
        serialised: bool,
        many: usize,
    ) -> Sent<(Option<String>, i32)> {
        if !serialised {
            return Ok((None, 1));
        }
        self.count("key locked");
        let account = self.dice.below(ACCOUNTS).to_string();
        let many = i32::try_from(many).expect("small");
        let lock = "update account set n = n + $2 where id = $1 returning n";
        let last: i32 = client.query_one(lock, &[&account, &many]).await?.get(0);
        Ok((Some(account), last - many + 1))
    }

    async fn insert(&mut self, client: &Client, rows: &[(Uuid, String, i32)]) -> Sent<()> {
        for (id, ..) in rows {
            self.events.push((*id, Fate::Committed));
        }
        match self.dice.below(4) {
            0 => {
                self.count("one by one");
                for row in rows {
                    client.batch_execute(&self.values(std::slice::from_ref(row))).await?;
                }
                Ok(())
            }
            1 => {
                self.count("multi-row");
                client.batch_execute(&self.values(rows)).await
            }
            2 => {
                self.count("copy");
                self.copy(client, rows).await
            }
            _ => {
                self.count("savepoint");
                self.within_savepoints(client, rows).await
            }
        }
    }

    fn values(&self, rows: &[(Uuid, String, i32)]) -> String {
        let mut text = self.shop.sql(
            "insert into {outbox} (id, aggregate_type, aggregate_id, event_type, event_version, payload)
             values ",
        );
        for (index, (id, key, n)) in rows.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(text, "{comma}('{id}', 'account', '{key}', 'account.moved', {n}, '{{}}')")
                .expect("memory");
        }
        text
    }

    async fn copy(&self, client: &Client, rows: &[(Uuid, String, i32)]) -> Sent<()> {
        let copy = self.shop.sql(
            "copy {outbox} (id, aggregate_type, aggregate_id, event_type, event_version, payload)
             from stdin",
        );
        let mut text = String::new();
        for (id, key, n) in rows {
            writeln!(text, "{id}\taccount\t{key}\taccount.moved\t{n}\t{{}}").expect("memory");
        }
        let sink = client.copy_in::<_, bytes::Bytes>(&copy).await?;
        futures_util::pin_mut!(sink);
        sink.send(text.into()).await?;
        sink.finish().await.map(drop)
    }

    /// The middle third is rolled back to a savepoint.
    async fn within_savepoints(
        &mut self,
        client: &Client,
        rows: &[(Uuid, String, i32)],
    ) -> Sent<()> {
        let (from, to) = (rows.len() / 3, 2 * rows.len() / 3);
        if from > 0 {
            client.batch_execute(&self.values(&rows[..from])).await?;
        }
        client.batch_execute("savepoint part").await?;
        if to > from {
            client.batch_execute(&self.values(&rows[from..to])).await?;
            client.batch_execute("rollback to part; savepoint again").await?;
            let begun = self.events.len() - rows.len();
            for event in &mut self.events[begun + from..begun + to] {
                event.1 = Fate::RolledBack;
            }
        }
        client.batch_execute(&self.values(&rows[to..])).await?;
        client.batch_execute("release part").await
    }

    async fn end(&mut self, client: &Client, turn: u64) -> Sent<Fate> {
        let rolls_back = self.dice.one_in(6);
        let fate = if rolls_back { Fate::RolledBack } else { Fate::Committed };
        if self.load.prepares && self.dice.one_in(6) {
            self.count("prepared");
            let name = format!("'proof-{}-{turn}'", self.number);
            client.batch_execute(&format!("prepare transaction {name}")).await?;
            self.pause().await;
            let verb = if rolls_back { "rollback" } else { "commit" };
            client.batch_execute(&format!("{verb} prepared {name}")).await?;
            return Ok(fate);
        }
        if rolls_back {
            self.count("rolled back");
            client.batch_execute("rollback").await?;
        } else {
            self.count("committed");
            client.batch_execute("commit").await?;
        }
        Ok(fate)
    }
}
