//! A reader of a few lines with the rule of the floor as its only variable: the right one, and the wrong
//! ones that a proof has to exclude. It has one cursor for all partitions, and no pages.

use postrider_core::snapshot::{Drawn, Snapshot, SnapshotCursor};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::shop::Shop;

/// What is taken for the floor of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// A tick that was acknowledged before the fetch was sent.
    Right,
    /// The sequence's last value, read by the fetch itself.
    AtTheFetch,
    /// A tick's two statements, and the fetch, in one transaction.
    TickInTheFetch,
    /// A tick whose reading is in a transaction that has a number already.
    NumberFirst,
    /// A right tick, but a fresh sequence's last value is taken for one that it has given.
    FreshOneGiven,
}

impl Rule {
    pub(crate) const WRONG_UNDER_LOAD: [Rule; 4] =
        [Rule::AtTheFetch, Rule::TickInTheFetch, Rule::NumberFirst, Rule::FreshOneGiven];
}

/// The reader, with everything that it has read.
pub(crate) struct Reader {
    client: Client,
    shop: Shop,
    pub(crate) rule: Rule,
    pub(crate) cursor: SnapshotCursor,
    pub(crate) read: Vec<Uuid>,
    /// What the last tick read, and took.
    tick: Option<(u64, u64)>,
}

impl Reader {
    /// A reader that stands behind everything that is there.
    pub(crate) async fn new(shop: &Shop, rule: Rule) -> Reader {
        let client = shop.connect().await;
        let now = client.query_one("select pg_current_snapshot()::text", &[]).await.expect("one");
        let now: Snapshot = now.get::<_, &str>(0).parse().expect("a snapshot");
        let cursor = SnapshotCursor::at(&now, 0, 0);
        Reader { client, shop: shop.clone(), rule, cursor, read: Vec::new(), tick: None }
    }

    /// The same memory on a new connection, as a pooler would do it.
    pub(crate) async fn reconnect(&mut self) {
        self.client = self.shop.connect().await;
    }

    /// A tick and a fetch.
    pub(crate) async fn read(&mut self) {
        self.begin_tick().await;
        self.end_tick().await;
        self.fetch().await;
    }

    /// The first half of a tick, in the order of the rule.
    pub(crate) async fn begin_tick(&mut self) {
        match self.rule {
            Rule::Right | Rule::FreshOneGiven => {
                let given = self.given().await;
                self.tick = Some((given, u64::MAX));
            }
            Rule::NumberFirst => {
                self.run("begin").await;
                let xid = self.take().await;
                self.tick = Some((0, xid));
            }
            Rule::AtTheFetch | Rule::TickInTheFetch => {}
        }
    }

    /// The second half.
    pub(crate) async fn end_tick(&mut self) {
        let Some((given, xid)) = self.tick else { return };
        match self.rule {
            Rule::Right | Rule::FreshOneGiven => self.tick = Some((given, self.take().await)),
            Rule::NumberFirst => {
                self.tick = Some((self.given().await, xid));
                self.run("commit").await;
            }
            Rule::AtTheFetch | Rule::TickInTheFetch => {}
        }
    }

    /// Reads the difference of the snapshot now and the cursor, all of it.
    pub(crate) async fn fetch(&mut self) {
        self.run("begin isolation level repeatable read").await;
        if self.rule == Rule::TickInTheFetch {
            let given = self.given().await;
            _ = self.take().await;
            self.tick = Some((given, 0));
        }
        let seen = self.one("select pg_current_snapshot()::text").await;
        let seen: Snapshot = seen.get::<_, &str>(0).parse().expect("a snapshot");
        if self.rule == Rule::AtTheFetch {
            self.tick = Some((self.given().await, 0));
        }
        let floor = self.tick.filter(|(_, xid)| *xid < seen.xmax()).map(|(floor, _)| floor);
        let lo = i64::try_from(self.cursor.lo(&seen)).expect("a number");
        let rows = self.shop.sql("select xid, seq, id from {outbox} where seq > $1 order by seq");
        let rows = self.client.query(&rows, &[&lo]).await.expect("rows");
        self.run("commit").await;
        let next = self.cursor.toward(seen, floor).expect("numbers ascend");
        for row in &rows {
            let number = |column| row.get::<_, i64>(column).cast_unsigned();
            if next.is_next(Drawn { xid: number(0), seq: number(1) }) {
                self.read.push(row.get(2));
            }
        }
        self.cursor = next.drained();
    }

    async fn given(&self) -> u64 {
        // The sequence's own row says 1 before the first number, and is right in this afterwards.
        let given = match self.rule {
            Rule::FreshOneGiven => "select greatest({outbox_given}(), 1)",
            _ => "select {outbox_given}()",
        };
        let row = self.one(&self.shop.sql(given)).await;
        row.get::<_, i64>(0).cast_unsigned()
    }

    async fn take(&self) -> u64 {
        let row = self.one("select pg_current_xact_id()::text::bigint").await;
        row.get::<_, i64>(0).cast_unsigned()
    }

    async fn one(&self, statement: &str) -> tokio_postgres::Row {
        self.client.query_one(statement, &[]).await.expect("one row")
    }

    async fn run(&self, statement: &str) {
        self.client.batch_execute(statement).await.expect("it runs");
    }
}
