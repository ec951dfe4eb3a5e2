//! The beginning of the way: what was committed to an outbox, and what was taken back.

use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, TransactWriteItem};
use postrider_core::{ErrorKind, Event, EventId, NewEvent};
use postrider_dynamodb::Connection;
use postrider_testkit::cluster::Cluster;
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;

/// Accounts, whose events are in order.
const KEYS: u32 = 10;
/// Events of one transaction: with the heads of their keys below the 100 actions of DynamoDB.
const TOGETHER: u32 = 10;

/// See the module.
pub(crate) struct Outbox {
    place: Place,
    pub(crate) committed: Vec<Event>,
    pub(crate) rolled_back: Vec<EventId>,
}

enum Place {
    Dynamo {
        outbox: postrider_dynamodb::Outbox,
        /// A table in which there is nobody.
        accounts: String,
    },
    Postgres(Cluster),
}

impl Outbox {
    /// In tables that are there.
    pub(crate) async fn in_tables(connection: &Connection, accounts: &str) -> Outbox {
        let outbox = postrider_dynamodb::Outbox::open(connection).await.unwrap();
        Outbox::at(Place::Dynamo { outbox, accounts: accounts.to_owned() })
    }

    /// In a database that is made for it; none where there are no programs for it, and the reason is printed.
    pub(crate) async fn in_database() -> Option<Outbox> {
        let cluster = Cluster::start(&["fsync = off"]).await?;
        let setup = postrider_postgres::Setup { partitions: Some(4), ..Default::default() };
        postrider_postgres::init(&cluster.url(), &setup).await.unwrap();
        Some(Outbox::at(Place::Postgres(cluster)))
    }

    fn at(place: Place) -> Outbox {
        Outbox { place, committed: Vec::new(), rolled_back: Vec::new() }
    }

    /// The address of the database, if it is one.
    pub(crate) fn database(&self) -> Option<String> {
        match &self.place {
            Place::Dynamo { .. } => None,
            Place::Postgres(cluster) => Some(cluster.url()),
        }
    }

    /// Kills the database, and starts it again.
    pub(crate) async fn crash(&mut self) {
        let Place::Postgres(cluster) = &mut self.place else { panic!("it has no database") };
        cluster.crash().await;
    }

    fn events(&self, count: u32) -> Vec<NewEvent> {
        let first = u32::try_from(self.committed.len()).unwrap();
        let event = |n: u32| {
            let key = (n % KEYS).to_string();
            NewEvent::new("account", key, "account.moved").source("/bank").json(&n).unwrap()
        };
        (first..first + count).map(event).collect()
    }

    /// Begins to commit so many events, each account's next ones, and has some refused with their transaction.
    pub(crate) fn write(&mut self, count: u32) -> JoinHandle<()> {
        let (events, refused) = (self.events(count), self.events(TOGETHER));
        self.committed.extend(events.iter().map(|event| event.event().clone()));
        self.rolled_back.extend(refused.iter().map(|event| event.event().id));
        match &self.place {
            Place::Dynamo { outbox, accounts } => {
                tokio::spawn(in_tables(outbox.clone(), accounts.clone(), events, refused))
            }
            Place::Postgres(cluster) => tokio::spawn(in_database(cluster.url(), events, refused)),
        }
    }
}

async fn in_tables(
    outbox: postrider_dynamodb::Outbox,
    accounts: String,
    events: Vec<NewEvent>,
    refused: Vec<NewEvent>,
) {
    let never = ConditionCheck::builder()
        .table_name(accounts)
        .key("pk", AttributeValue::S("nobody".to_owned()))
        .condition_expression("attribute_exists(pk)")
        .build()
        .unwrap();
    let never = TransactWriteItem::builder().condition_check(never).build();
    for together in events.chunks(TOGETHER as usize) {
        outbox.write(&[], together).await.unwrap();
    }
    let refused = outbox.write(&[never], &refused).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
}

async fn in_database(url: String, events: Vec<NewEvent>, refused: Vec<NewEvent>) {
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let outbox = postrider_postgres::Outbox::new();
    for together in events.chunks(TOGETHER as usize) {
        let tx = client.transaction().await.unwrap();
        outbox.enqueue_many(&tx, together).await.unwrap();
        tx.commit().await.unwrap();
    }
    let tx = client.transaction().await.unwrap();
    outbox.enqueue_many(&tx, &refused).await.unwrap();
    tx.rollback().await.unwrap();
}
