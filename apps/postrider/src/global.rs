//! What every operator's command takes: which store, and how the answer is written.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use postrider_config::{Environment, Needs};
use postrider_core::{Operator, OutboxSource};
use postrider_sqlite::SqliteStore;

use crate::config;
use crate::failure::Failure;
use crate::output::{Format, Out};
use crate::store;

/// Where the store's address stands if no flag names it.
const STORE_VARIABLE: &str = "POSTRIDER_STORE";

/// The options of every operator's command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Store and answer")]
pub(crate) struct Global {
    /// The database, like sqlite://shop.db; else $POSTRIDER_STORE
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The configuration that names the store; else $POSTRIDER_CONFIG
    #[arg(long, value_name = "FILE", env = "POSTRIDER_CONFIG", hide_env = true)]
    pub(crate) config: Option<PathBuf>,
    /// How to write the answer: table, json, or ndjson
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) output: Format,
}

/// An open store.
#[derive(Clone)]
pub(crate) struct Store {
    /// What operators do.
    pub(crate) operator: Arc<dyn Operator>,
    /// The relay's side, for the definitions.
    pub(crate) source: Arc<dyn OutboxSource>,
}

impl Global {
    /// Opens the store, and says at once what is wrong with it.
    ///
    /// # Errors
    /// If no store is named, and what the store says.
    pub(crate) async fn open(&self) -> Result<Store, Failure> {
        let path = store::sqlite_path(&self.address()?)?;
        let store = Arc::new(SqliteStore::new(path)?);
        store.open().await?;
        Ok(Store { operator: Arc::clone(&store) as Arc<dyn Operator>, source: store })
    }

    /// Writes the answer.
    pub(crate) fn out(&self) -> Out {
        Out::new(self.output)
    }

    /// The address in the configuration, if one is named.
    fn configured(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.config else {
            return Ok(None);
        };
        let environment = Environment::of_process();
        let loaded = config::load(Some(path), &environment, Needs::NOTHING)?;
        let Some(address) = &loaded.config.store else {
            return Ok(None);
        };
        match address.resolve(&environment) {
            Ok((secret, _)) => Ok(Some(secret.expose().to_owned())),
            Err(why) => Err(Failure::config(format!("the store's address: {why}"))),
        }
    }

    fn address(&self) -> Result<String, Failure> {
        if let Some(store) = &self.store {
            return Ok(store.clone());
        }
        if let Some(store) = self.configured()? {
            return Ok(store);
        }
        match std::env::var(STORE_VARIABLE) {
            Ok(store) if !store.is_empty() => Ok(store),
            _ => Err(Failure::config("no store is named").advice(format!(
                "Nothing was read or written. Add --store sqlite://shop.db or --config FILE, or set \
                 {STORE_VARIABLE}."
            ))),
        }
    }
}
