//! What every operator's command takes: which store, and how the answer is written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use postrider_config::{Environment, Needs};
use postrider_core::{Operator, OutboxSource};

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
    /// The backlog above which nothing is enqueued, if the configuration has one.
    pub(crate) watermark: Option<u64>,
}

impl Global {
    /// Opens the store, and says at once what is wrong with it.
    ///
    /// # Errors
    /// If no store is named, and what the store says.
    pub(crate) async fn open(&self) -> Result<Store, Failure> {
        let (configured, watermark) = configured(self.config.as_deref())?;
        let store::Opened { operator, source, .. } =
            store::Place::read(&self.address(configured)?)?.open().await?;
        Ok(Store { operator, source, watermark })
    }

    /// Where the store is, without opening it.
    ///
    /// # Errors
    /// If no store is named, or its address cannot be read.
    pub(crate) fn place(&self) -> Result<store::Place, Failure> {
        let (configured, _) = configured(self.config.as_deref())?;
        store::Place::read(&self.address(configured)?)
    }

    /// Writes the answer.
    pub(crate) fn out(&self) -> Out {
        Out::new(self.output)
    }

    fn address(&self, configured: Option<String>) -> Result<String, Failure> {
        if let Some(store) = self.store.clone().or(configured) {
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

/// The store's address and the watermark in a configuration, if one is named.
///
/// # Errors
/// What is wrong with the configuration.
pub(crate) fn configured(config: Option<&Path>) -> Result<(Option<String>, Option<u64>), Failure> {
    let Some(path) = config else {
        return Ok((None, None));
    };
    let environment = Environment::of_process();
    let loaded = config::load(Some(path), &environment, Needs::NOTHING)?;
    let watermark = loaded.config.backpressure.rows;
    let Some(address) = &loaded.config.store else {
        return Ok((None, watermark));
    };
    match address.resolve(&environment) {
        Ok((secret, _)) => Ok((Some(secret.expose().to_owned()), watermark)),
        Err(why) => Err(Failure::config(format!("the store's address: {why}"))),
    }
}
