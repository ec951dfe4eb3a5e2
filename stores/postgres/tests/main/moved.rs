//! Another database takes the place of a running relay's: a copy, which has its leases, its cursors, and the token of its
//! server's life.

use postrider_core::operate::{Note, Operator as _};
use postrider_core::source::{OutboxSource, RenewRequest};
use postrider_core::waiting::{Settlement, SettlementPart};
use postrider_core::{Code, Cursor, Lease, Result};
use postrider_postgres::{Options, Pooler, PostgresStore, Setup};
use postrider_testkit::services;

use crate::database::Database;
use crate::fetch::{after, beginning};
use crate::support::{LONG, acquire, connect, destination, id};

/// A relay's handle, and what it has under way.
struct Relay {
    store: PostgresStore,
    lease: Lease,
    cursor: Cursor,
}

impl Relay {
    async fn start(url: &str, pooler: Pooler) -> Relay {
        let mut options = Options::default();
        options.pooler = pooler;
        let store = PostgresStore::with(url, options).expect("a store");
        store.open().await.expect("open");
        store.register(&[destination("a")]).await.expect("register");
        let lease = acquire(&store, LONG).await.expect("the lease is free").lease;
        store.load(&lease, &id("a")).await.expect("load");
        Relay { store, lease, cursor: beginning() }
    }

    async fn fetch(&self) -> Result<usize> {
        let mut request = after(&self.cursor, 10, 1 << 20);
        request.lease = self.lease.clone();
        self.store.fetch(&request).await.map(|page| page.rows.len())
    }

    async fn settle(&self) -> Result<()> {
        let parts = vec![SettlementPart::new(id("a"))];
        self.store.settle(&Settlement { lease: self.lease.clone(), parts }).await
    }

    async fn renew(&self) -> Result<usize> {
        let (owner, leases) = (self.lease.owner.clone(), vec![self.lease.clone()]);
        let renew = RenewRequest { owner, leases, lease_duration: LONG, current: true };
        self.store.renew(&renew).await.map(|renewed| renewed.kept.len())
    }

    /// Reads, writes, and holds its lease.
    async fn works(&self, events: usize) {
        // What was under way when its sessions ended has failed, and is asked for again.
        for _ in 0..6 {
            _ = (self.fetch().await, self.settle().await, self.renew().await);
        }
        assert_eq!(self.fetch().await.expect("it reads"), events);
        self.settle().await.expect("it saves");
        assert_eq!(self.renew().await.expect("it renews"), 1);
    }

    /// What it is told, whatever it asks for: always the same.
    async fn is_refused(&self) -> String {
        for _ in 0..6 {
            _ = (self.fetch().await, self.settle().await, self.renew().await);
        }
        let told = [
            self.fetch().await.map(drop).expect_err("a page of another database"),
            self.settle().await.expect_err("saved in another database"),
            self.renew().await.map(drop).expect_err("renewed in another database"),
        ];
        for error in &told {
            assert_eq!(error.operator_code(), Some(Code::StoreMoved), "{error}");
        }
        told[0].to_string()
    }
}

/// Gives databases other names, which takes that nobody is connected.
async fn rename(server: &str, names: &[(&str, &str)]) {
    let client = connect(server).await;
    for (from, to) in names {
        let end = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = $1";
        client.execute(end, &[from]).await.unwrap();
        client.batch_execute(&format!("alter database {from} rename to {to}")).await.unwrap();
    }
}

const EVENT: &str = "insert into postrider.outbox (aggregate_type, aggregate_id, event_type, payload) \
                     values ('order', '42', 'order.placed', '{}')";

/// A copy takes the database's place, is refused, and gives it back; then it does again, and is adopted.
async fn a_copy_takes_its_place(way: &str, pooler: Pooler) {
    let setup = Setup { partitions: Some(1), ..Setup::default() };
    let Some(database) = Database::new(&setup).await else { return };
    let (name, server) = (database.name.clone(), crate::support::url().expect("a server"));
    let (copy, aside) = (format!("{name}_copy"), format!("{name}_aside"));
    let relay = Relay::start(&format!("{}/{name}", way.rsplit_once('/').unwrap().0), pooler).await;
    database.run(EVENT).await;
    relay.works(1).await;

    let admin = connect(&server).await;
    rename(&server, &[(&name, &aside)]).await;
    admin.batch_execute(&format!("create database {copy} template {aside}")).await.unwrap();
    rename(&server, &[(&copy, &name)]).await;
    database.run(EVENT).await;
    let told = relay.is_refused().await;
    assert!(told.contains("a copy, or a restored dump"), "{told}");
    let operator = PostgresStore::new(&database.url).unwrap();
    assert!(operator.overview().await.expect("an overview").copy);

    rename(&server, &[(&name, &copy), (&aside, &name)]).await;
    relay.works(1).await;

    rename(&server, &[(&name, &aside), (&copy, &name)]).await;
    // As if the lease of the relay had run out.
    database.run("update postrider.outbox_lease set owner = null").await;
    let note = Note { who: "anna@db1".to_owned(), why: "a proof".to_owned() };
    operator.adopt(&note).await.expect("adopt");
    assert!(!operator.overview().await.expect("an overview").copy);
    let told = relay.is_refused().await;
    assert!(told.contains("start the relay anew"), "{told}");
    let anew = Relay::start(&database.url, Pooler::Auto).await;
    anew.works(2).await;

    drop((relay, anew, operator));
    admin.batch_execute(&format!("drop database {aside} with (force)")).await.unwrap();
    database.drop().await;
}

/// INV-1, INV-2: nothing is read from a copy, and nothing saved in it.
#[tokio::test]
async fn a_copy_in_the_databases_place_stops_a_running_relay() {
    let Some(url) = crate::support::url() else { return };
    a_copy_takes_its_place(&url, Pooler::Auto).await;
}

/// Behind the pooler, which leads to one of the servers.
mod pooled {
    use super::*;

    /// INV-1, INV-2: the same where the relay's connections outlive the change, since they are a pooler's.
    #[tokio::test]
    async fn a_copy_behind_a_pooler_stops_a_running_relay() {
        match services::url("pgbouncer") {
            Ok(url) => a_copy_takes_its_place(&url, Pooler::Transaction).await,
            Err(reason) => eprintln!("skipped: {reason}"),
        }
    }
}
