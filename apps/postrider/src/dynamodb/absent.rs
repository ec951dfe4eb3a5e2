//! Tables of DynamoDB in a program that was built without: there are none.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_config::Config;
use postrider_core::InboxStore;

use crate::failure::Failure;
use crate::init::InitArgs;
use crate::serve::Metrics;
use crate::store::Opened;

/// Nothing is counted.
pub(crate) fn show_tally(_: &Metrics) {}

/// No value of this can be made.
#[derive(Clone)]
pub(crate) enum Tables {}

impl Tables {
    /// # Errors
    /// A configuration failure, always: this program has no client.
    pub(crate) fn read(_: &str) -> Result<Tables, Failure> {
        Err(Failure::config("this program was built without DynamoDB")
            .advice("Build it with --features dynamodb, or with --features full."))
    }

    pub(crate) fn used(self, _: &Config) -> Result<Tables, Failure> {
        match self {}
    }

    pub(crate) fn derives(&self) -> bool {
        match *self {}
    }

    pub(crate) fn patient(&self) -> Tables {
        match *self {}
    }

    pub(crate) fn connect(&self, _: bool) -> Result<Opened, Failure> {
        match *self {}
    }

    pub(crate) async fn see_inbox(&self) -> Result<(), Failure> {
        std::future::ready(()).await;
        match *self {}
    }

    pub(crate) async fn inbox(
        &self,
        _: Duration,
        _: Duration,
    ) -> Result<Arc<dyn InboxStore>, Failure> {
        std::future::ready(()).await;
        match *self {}
    }

    pub(crate) fn recipe(&self, _: &InitArgs) -> Result<String, Failure> {
        match *self {}
    }

    pub(crate) async fn make(&self, _: &InitArgs) -> Result<(), Failure> {
        std::future::ready(()).await;
        match *self {}
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
