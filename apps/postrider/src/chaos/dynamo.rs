//! An inbox on DynamoDB, in tables of a scene's own.
//!
//! Invariant: the names of the tables are made here, so that nobody's tables are touched or deleted.

use std::sync::Arc;

use postrider_core::{EventId, InboxStore};
use postrider_dynamodb::{Connection, Inbox, InboxOptions, Names, Settings, Setup};

use crate::failure::Failure;

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
        let connection = Connection::new(settings)?;
        let setup = Setup { source: Some("/shop".to_owned()), ..Setup::default() };
        postrider_dynamodb::init(&connection, &setup).await?;
        Ok(Tables { connection })
    }

    /// The inbox in them. The worker that dies in a scene dies in this process, which has seen its claim and
    /// goes on watching; a process that comes later begins to watch when it first looks.
    ///
    /// # Errors
    /// Never, as far as is known.
    pub(crate) fn inbox(&self) -> Result<Arc<dyn InboxStore>, Failure> {
        Ok(Arc::new(Inbox::new(self.connection.clone(), InboxOptions::default())?))
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
