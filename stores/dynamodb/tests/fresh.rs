//! What the tests share: tables under a random prefix, dropped with the value.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType,
};
use postrider_dynamodb::{Connection, Names, Settings, Setup, init};
use uuid::Uuid;

/// Tables of a test's own.
pub(crate) struct Fresh {
    pub(crate) settings: Settings,
    pub(crate) connection: Connection,
}

/// The server's address, or the reason why there is none.
pub(crate) fn url() -> Result<String, String> {
    postrider_testkit::services::url("ddb")
}

impl Fresh {
    /// Names without tables; nothing, with the reason printed, where there is no server.
    pub(crate) fn empty() -> Option<Fresh> {
        let url = url().map_err(|reason| println!("skipped: {reason}")).ok()?;
        let prefix = format!("t{}-", &Uuid::now_v7().simple().to_string()[4..]);
        let mut settings = Settings::at(url, Names::with_prefix(&prefix));
        // Many tests share one emulator, on a machine that may be busy.
        settings.call_time_max = Duration::from_secs(30);
        Some(Fresh::named(settings))
    }

    /// A table of the application's that has everything which the recipe tells to give it, and for the events in it
    /// so many partitions.
    pub(crate) async fn among(partitions: u16) -> Option<Fresh> {
        let mut settings = Fresh::empty()?.settings.clone();
        let table = settings.names.outbox.replace("outbox", "shop");
        settings.names = settings.names.in_table(&table, "PK", "SK");
        let fresh = Fresh::named(settings);
        fresh.make_the_applications().await;
        let setup = Setup { partitions: Some(partitions), ..Setup::default() };
        init(&fresh.connection, &setup).await.expect("the other tables are made");
        Some(fresh)
    }

    async fn make_the_applications(&self) {
        let names = &self.settings.names;
        let attribute = |name: &str, kind| {
            let attribute = AttributeDefinition::builder().attribute_name(name);
            attribute.attribute_type(kind).build().unwrap()
        };
        let key = |name: &str, kind| {
            KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap()
        };
        let (text, number) = (ScalarAttributeType::S, ScalarAttributeType::N);
        let keys = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
        let index = GlobalSecondaryIndex::builder()
            .index_name(&names.index)
            .key_schema(key("pr_shard", KeyType::Hash))
            .key_schema(key("pr_at", KeyType::Range))
            .projection(keys);
        let stream = StreamSpecification::builder().stream_enabled(true);
        let create = self.connection.tables().await.create_table();
        let create = create
            .table_name(&names.outbox)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(attribute(&names.pk, text.clone()))
            .attribute_definitions(attribute(&names.sk, text.clone()))
            .attribute_definitions(attribute("pr_shard", text))
            .attribute_definitions(attribute("pr_at", number))
            .key_schema(key(&names.pk, KeyType::Hash))
            .key_schema(key(&names.sk, KeyType::Range))
            .global_secondary_indexes(index.build().unwrap())
            .stream_specification(
                stream.stream_view_type(StreamViewType::NewImage).build().unwrap(),
            );
        Box::pin(create.send()).await.expect("the application's table is made");
    }

    fn named(settings: Settings) -> Fresh {
        let connection = Connection::new(settings.clone()).expect("valid names");
        Fresh { settings, connection }
    }

    /// Tables for so many partitions.
    pub(crate) async fn new(partitions: u16) -> Option<Fresh> {
        let fresh = Fresh::empty()?;
        let setup = Setup { partitions: Some(partitions), ..Setup::default() };
        init(&fresh.connection, &setup).await.expect("the tables are made");
        Some(fresh)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let settings = self.settings.clone();
        let cleaned = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let names = settings.names.clone();
                let connection = Connection::new(settings).expect("valid names");
                let client = connection.tables().await;
                for table in [&names.outbox, &names.store, &names.inbox] {
                    _ = Box::pin(client.delete_table().table_name(table).send()).await;
                }
            });
        });
        _ = cleaned.join();
    }
}
