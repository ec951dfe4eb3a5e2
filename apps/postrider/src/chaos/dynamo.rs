//! A store on DynamoDB, in tables of a scene's own.
//!
//! Invariant: the names of the tables are made here, so that nobody's tables are touched or deleted.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{StreamSpecification, StreamViewType, TableStatus};
use postrider_core::{EventId, InboxStore, OutboxSource};
use postrider_dynamodb::{Connection, DynamoStore, Names, Options, Settings, Setup};

use crate::chaos::theatre;
use crate::failure::Failure;
use crate::store::Opened;

/// How often the index is read from its front: a scene ends within half a minute, whatever the stream tells.
const BACKSTOP: Duration = Duration::from_secs(2);

/// How long a change of a table may take: a scene ends within half a minute.
const CHANGE_MAX: Duration = Duration::from_secs(20);
/// How often a table that is being changed is looked at.
const CHANGE_LOOK: Duration = Duration::from_millis(250);

/// A few, so that several are there.
const PARTITIONS: u16 = 4;

/// Reads an address, if it is one of DynamoDB.
///
/// # Errors
/// A configuration failure: it is not well formed, or names tables that are somebody's.
pub(crate) fn read(address: &str) -> Result<Option<Settings>, Failure> {
    if !address.starts_with("dynamodb://") {
        return Ok(None);
    }
    if ["prefix=", "table="].iter().any(|name| address.contains(name)) {
        return Err(Failure::config("chaos makes tables of its own")
            .advice("Nothing was started. Leave `prefix=` and `table=` out of the address."));
    }
    Ok(Some(address.parse()?))
}

/// The tables of one scene.
pub(crate) struct Tables {
    connection: Connection,
}

impl Tables {
    /// Makes them, under a random name.
    ///
    /// # Errors
    /// What the service says.
    pub(crate) async fn make(settings: &Settings) -> Result<Tables, Failure> {
        let mut settings = settings.clone();
        settings.names = Names::with_prefix(&format!("postrider-chaos-{}-", EventId::mint()));
        // An emulator on a busy machine needs its time.
        settings.call_time_max = Duration::from_secs(15);
        let connection = Connection::new(settings)?;
        let setup = Setup { partitions: Some(PARTITIONS), source: Some("/shop".to_owned()) };
        let tables = Tables { connection };
        match postrider_dynamodb::init(&tables.connection, &setup).await {
            Ok(_) => Ok(tables),
            Err(error) => Err(theatre::joined(error.into(), tables.remove().await)),
        }
    }

    /// The store in them, by all its sides. The worker that dies in a scene dies in this process, which has seen
    /// its claim and goes on watching; a process that comes later begins to watch when it first looks.
    ///
    /// # Errors
    /// What the service says.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        let mut options = Options::default();
        options.stream = false;
        let store = Arc::new(DynamoStore::with(self.connection.clone(), options));
        store.open().await?;
        let source = Arc::<DynamoStore>::clone(&store) as Arc<dyn OutboxSource>;
        let inbox = Arc::<DynamoStore>::clone(&store) as Arc<dyn InboxStore>;
        Ok(Opened { source, operator: store, inbox, postgres: None })
    }

    /// A handle for a relay, which reads the stream and the index.
    pub(crate) fn source(&self) -> Arc<dyn OutboxSource> {
        let mut options = Options::default();
        options.backstop = BACKSTOP;
        Arc::new(DynamoStore::with(self.connection.clone(), options))
    }

    /// Switches the stream of the outbox off, or on as another one: what is written meanwhile is in neither.
    ///
    /// # Errors
    /// What the service says.
    pub(crate) async fn switch_stream(&self, on: bool) -> Result<(), Failure> {
        let fail = |e: &dyn std::fmt::Display| Failure::plain(format!("the table's stream: {e}"));
        let wanted = StreamSpecification::builder().stream_enabled(on);
        let wanted = if on { wanted.stream_view_type(StreamViewType::NewImage) } else { wanted };
        let wanted = wanted.build().map_err(|error| fail(&error))?;
        let update = self.connection.tables().await.update_table();
        let update = update.table_name(&self.connection.names().outbox);
        let sent = update.stream_specification(wanted).send().await;
        sent.map_err(|error| fail(&error.into_service_error()))?;
        // The service changes it after it has answered, and takes no other change meanwhile.
        let changed = async {
            loop {
                let asked = self.connection.tables().await.describe_table();
                let asked = asked.table_name(&self.connection.names().outbox).send().await;
                let told = asked.map_err(|error| fail(&error.into_service_error()))?;
                let status = told.table.and_then(|table| table.table_status);
                if status == Some(TableStatus::Active) {
                    return Ok(());
                }
                tokio::time::sleep(CHANGE_LOOK).await; // waits: the service gives no signal
            }
        };
        let changed = tokio::time::timeout(CHANGE_MAX, changed).await;
        changed.map_err(|_| fail(&"it is still being changed"))?
    }

    /// Deletes them.
    ///
    /// # Errors
    /// What the service says, and which tables are left.
    pub(crate) async fn remove(self) -> Result<(), Failure> {
        let left = format!("tables like {} were not deleted", self.connection.names().inbox);
        postrider_dynamodb::remove(&self.connection)
            .await
            .map_err(|error| Failure::from(error).within(&left))
    }
}
