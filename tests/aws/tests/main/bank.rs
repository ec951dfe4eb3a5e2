//! The tables: what was committed to the outbox, what was taken back, and the effects, each account's in order.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, ConditionCheck, KeySchemaElement, KeyType,
    ScalarAttributeType, TransactWriteItem,
};
use postrider_core::{ErrorKind, Event, EventId, NewEvent};
use postrider_dynamodb::{Connection, Names, Outbox, Settings, Setup, init, remove};
use tokio::task::JoinHandle;

/// Accounts, whose events are in order.
const KEYS: u32 = 10;
/// Events of one transaction: with the heads of their keys below the 100 actions of the service.
const TOGETHER: u32 = 10;

pub(crate) struct Bank {
    connection: Connection,
    outbox: Outbox,
    pub(crate) prefix: String,
    accounts: String,
    pub(crate) committed: Vec<Event>,
    pub(crate) rolled_back: Vec<EventId>,
}

impl Bank {
    pub(crate) async fn make(server: &str) -> Bank {
        let id = EventId::mint().to_string().replace('-', "");
        let prefix = format!("way{}-", &id[12..]);
        let mut settings = Settings::at(server, Names::with_prefix(&prefix));
        // Many tests share one emulator, on a machine that may be busy.
        settings.call_time_max = Duration::from_secs(60);
        let connection = Connection::new(settings).unwrap();
        init(&connection, &Setup { partitions: Some(4), ..Setup::default() }).await.unwrap();
        let accounts = format!("{prefix}accounts");
        let (name, kind) = ("pk", ScalarAttributeType::S);
        let text = AttributeDefinition::builder().attribute_name(name).attribute_type(kind);
        let key = KeySchemaElement::builder().attribute_name(name).key_type(KeyType::Hash);
        let create = connection.tables().await.create_table().table_name(&accounts);
        create
            .attribute_definitions(text.build().unwrap())
            .key_schema(key.build().unwrap())
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await
            .unwrap();
        let outbox = Outbox::open(&connection).await.unwrap();
        let (committed, rolled_back) = (Vec::new(), Vec::new());
        Bank { connection, outbox, prefix, accounts, committed, rolled_back }
    }

    fn events(&self, count: u32) -> Vec<NewEvent> {
        let first = u32::try_from(self.committed.len()).unwrap();
        let event = |n: u32| {
            let key = (n % KEYS).to_string();
            NewEvent::new("account", key, "account.moved").source("/bank").json(&n).unwrap()
        };
        (first..first + count).map(event).collect()
    }

    /// Begins to commit so many events, each account's next ones, and has as many refused with their transaction.
    pub(crate) fn write(&mut self, count: u32) -> JoinHandle<()> {
        let (events, refused) = (self.events(count), self.events(TOGETHER));
        self.committed.extend(events.iter().map(|event| event.event().clone()));
        self.rolled_back.extend(refused.iter().map(|event| event.event().id));
        let never = ConditionCheck::builder()
            .table_name(&self.accounts)
            .key("pk", AttributeValue::S("nobody".to_owned()))
            .condition_expression("attribute_exists(pk)")
            .build()
            .unwrap();
        let never = TransactWriteItem::builder().condition_check(never).build();
        let outbox = self.outbox.clone();
        tokio::spawn(async move {
            for together in events.chunks(TOGETHER as usize) {
                outbox.write(&[], together).await.unwrap();
            }
            let refused = outbox.write(&[never], &refused).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        })
    }

    /// What had its effect, each account's in order.
    pub(crate) async fn effects(&self) -> Vec<EventId> {
        let client = self.connection.tables().await;
        let mut all = Vec::new();
        for key in 0..KEYS {
            let get = client.get_item().table_name(&self.accounts).consistent_read(true);
            let get = get.key("pk", AttributeValue::S(key.to_string()));
            let item = get.send().await.unwrap().item.unwrap_or_default();
            let applied = item.get("applied").and_then(|list| list.as_l().ok());
            for id in applied.into_iter().flatten() {
                all.push(id.as_s().unwrap().parse().unwrap());
            }
        }
        all
    }

    pub(crate) async fn remove(&self) {
        remove(&self.connection).await.unwrap();
        let client = self.connection.tables().await;
        client.delete_table().table_name(&self.accounts).send().await.unwrap();
    }
}
