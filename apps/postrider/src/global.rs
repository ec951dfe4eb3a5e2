//! What every operator's command takes: which store, and how the answer is written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use postrider_config::{Config, Environment, Needs};
use postrider_core::{Operator, OutboxSource};
use postrider_postgres::OwnTable;

use crate::config;
use crate::failure::Failure;
use crate::output::{Format, Out};
use crate::relay::own::{self, Own};
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
    /// So many events of a destination may wait, by the configuration of the relays.
    pub(crate) waiting_max: u64,
    /// The configuration that was named, by which relays are started as well.
    pub(crate) config: Option<PathBuf>,
    /// What the configuration calls the application's own table, if events stand there and not in the outbox.
    pub(crate) own_table: Option<String>,
    /// A handle on it, so that what is pending in it is counted.
    _beside: Option<OwnTable>,
}

impl Global {
    /// Opens the store, and says at once what is wrong with it.
    ///
    /// # Errors
    /// If no store is named, and what the store says.
    pub(crate) async fn open(&self) -> Result<Store, Failure> {
        let configured = self.configured()?;
        let opened = self.used(&configured)?.open().await?;
        self.store_of(&configured, opened)
    }

    /// The same for who commits events.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) async fn open_to_enqueue(&self) -> Result<Store, Failure> {
        let configured = self.configured()?;
        let opened = self.used(&configured)?.open_to_enqueue().await?;
        self.store_of(&configured, opened)
    }

    /// The same for who only looks, also where the database cannot be written to.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) async fn open_to_read(&self) -> Result<Store, Failure> {
        let configured = self.configured()?;
        let opened = self.used(&configured)?.open_to_read().await?;
        self.store_of(&configured, opened)
    }

    fn store_of(&self, configured: &Configured, opened: store::Opened) -> Result<Store, Failure> {
        let config = &configured.config;
        let beside = own::beside(Own::of(config)?.as_ref(), &opened)?;
        let store::Opened { operator, source, .. } = opened;
        let (watermark, waiting_max) = (config.backpressure.rows, config.relay.waiting_max);
        let own_table = config.own_table.table.clone();
        let config = self.config.clone();
        Ok(Store { operator, source, watermark, waiting_max, config, own_table, _beside: beside })
    }

    /// Where the store is, without opening it.
    ///
    /// # Errors
    /// If no store is named, or its address cannot be read.
    pub(crate) fn place(&self) -> Result<store::Place, Failure> {
        self.used(&self.configured()?)
    }

    /// What the configuration says, if one is named.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub(crate) fn configured(&self) -> Result<Configured, Failure> {
        configured(self.config.as_deref())
    }

    /// The store that is meant, as the configuration says that it is used.
    ///
    /// # Errors
    /// If no store is named, or its address cannot be read.
    pub(crate) fn used(&self, configured: &Configured) -> Result<store::Place, Failure> {
        let place = store::Place::read(&self.address(configured.address.clone())?)?;
        let reference = configured.config.store.as_ref().filter(|_| self.store.is_none());
        place.used(&configured.config, reference)
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

/// A configuration, and the store's address in it.
#[derive(Default)]
pub(crate) struct Configured {
    pub(crate) address: Option<String>,
    pub(crate) config: Config,
}

/// What a configuration says, if one is named.
///
/// # Errors
/// What is wrong with the configuration.
pub(crate) fn configured(config: Option<&Path>) -> Result<Configured, Failure> {
    let Some(path) = config else {
        return Ok(Configured::default());
    };
    let environment = Environment::of_process();
    let config = config::load(Some(path), &environment, Needs::NOTHING)?.config;
    let address = match config.store.as_ref().map(|address| address.resolve(&environment)) {
        None => None,
        Some(Ok((secret, _))) => Some(secret.expose().to_owned()),
        Some(Err(why)) => return Err(Failure::config(format!("the store's address: {why}"))),
    };
    Ok(Configured { address, config })
}
