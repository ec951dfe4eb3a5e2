//! The tables: the outbox and the inbox of DynamoDB, and the effects, each account's in order.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use postrider_core::EventId;
use postrider_dynamodb::{Connection, Names, Settings, Setup, init};

pub(crate) struct Bank {
    pub(crate) connection: Connection,
    pub(crate) prefix: String,
    pub(crate) accounts: String,
}

impl Bank {
    pub(crate) async fn make(server: &str) -> Bank {
        let id = EventId::mint().to_string().replace('-', "");
        let prefix = format!("way{}-", &id[12..]);
        let mut settings = Settings::at(server, Names::with_prefix(&prefix));
        // The emulator may be on a machine that is busy.
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
        Bank { connection, prefix, accounts }
    }

    /// What had its effect, each account's in order. One question for all accounts: it is asked again and again, beside
    /// those who work.
    pub(crate) async fn effects(&self) -> Vec<EventId> {
        let client = self.connection.tables().await;
        let scan = client.scan().table_name(&self.accounts).consistent_read(true);
        let items = scan.into_paginator().items().send().collect::<Result<Vec<_>, _>>().await;
        let mut all = Vec::new();
        for item in items.unwrap() {
            let applied = item.get("applied").and_then(|list| list.as_l().ok());
            for id in applied.into_iter().flatten() {
                all.push(id.as_s().unwrap().parse().unwrap());
            }
        }
        all
    }
}
