//! `postrider config show`: the values in effect, with where each comes from.

use postrider_config::{Environment, Needs, Origin};
use postrider_core::Timestamp;
use serde::Serialize;

use crate::config::{ShowArgs, load};
use crate::failure::{Exit, Failure};
use crate::output::Out;
use crate::table::{Cell, Column, Fit, Tabular};

/// One value, as JSON.
#[derive(Serialize)]
struct Shown {
    /// The dotted key, like `relay.lease`.
    key: String,
    /// The value as it would stand in the file; null if it is absent. Secrets are references.
    value: Option<String>,
    /// `default`, the file with the line, or the environment variable.
    origin: String,
    /// `live`, `restart`, or `definition`: what a change takes to have effect.
    change: &'static str,
}

pub(crate) fn run(args: &ShowArgs) -> Result<Exit, Failure> {
    let environment = Environment::of_process();
    let loaded = load(args.config.as_deref(), &environment, Needs::NOTHING)?;
    let values = loaded.values().into_iter();
    let values = values.filter(|value| !args.set || value.origin != Origin::Default);
    let shown: Vec<Shown> = values
        .map(|value| Shown {
            key: value.key,
            value: value.value,
            origin: value.origin.to_string(),
            change: value.class.word(),
        })
        .collect();
    Out::new(args.output).rows(shown)?;
    Ok(Exit::Success)
}

impl Tabular for Shown {
    fn columns() -> &'static [Column] {
        &[("KEY", Fit::Whole), ("VALUE", Fit::Text), ("FROM", Fit::Text), ("CHANGE", Fit::Extra)]
    }

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        vec![
            Cell::from(&*self.key),
            Cell::from(self.value.as_deref()),
            Cell::from(&*self.origin),
            Cell::from(self.change),
        ]
    }
}
