//! `postrider destinations apply`: brings the store's definitions to those of the configuration.
//!
//! Invariant: the difference is shown first, and the version it was computed from is the version it is
//! applied to: what changed meanwhile is refused, not overwritten.

use clap::Args;
use postrider_config::{Config, Environment, Needs};
use postrider_core::source::{DefinitionChange, Definitions};
use postrider_core::{
    Destination, DestinationId, DestinationRow, Error, ErrorKind, Start, Timestamp,
};
use serde::Serialize;
use serde_json::Value;

use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output::Out;
use crate::reason::MayGiveReason;
use crate::table::{Cell, Column, Fit, Tabular};
use crate::{config, terminal};

/// Bring the store's destinations to those of the configuration
///
/// Shows the difference, and asks. A new destination begins where `start` says
/// (`now`, unless set). One that the configuration does not name stays, unless
/// --prune removes it. Relays with the old definition stop serving it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider destinations apply --config postrider.toml --dry-run
  postrider destinations apply --config postrider.toml --yes")]
pub(crate) struct ApplyArgs {
    /// Remove destinations that the configuration does not name
    #[arg(long)]
    prune: bool,
    /// Show the difference, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    by: MayGiveReason,
    #[command(flatten)]
    global: Global,
}

/// One difference between the store's definition and the configuration's.
#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    /// Which destination.
    destination: DestinationId,
    /// `add`, `change`, or `remove`.
    action: &'static str,
    /// The path within the definition, like `routes[0].topic`; empty where all of it is meant.
    path: String,
    /// What the store has; null if nothing.
    old: Value,
    /// What the configuration has; null if nothing.
    new: Value,
}

impl Tabular for Difference {
    fn columns() -> &'static [Column] {
        &[
            ("DESTINATION", Fit::Whole),
            ("ACTION", Fit::Whole),
            ("PATH", Fit::Text),
            ("STORE", Fit::Text),
            ("CONFIGURATION", Fit::Text),
        ]
    }

    fn cells(&self, _: Timestamp) -> Vec<Cell> {
        let shown = |value: &Value| match value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        vec![
            Cell::from(self.destination.as_str()),
            Cell::from(self.action),
            Cell::from(&*self.path),
            Cell::from(shown(&self.old)),
            Cell::from(shown(&self.new)),
        ]
    }
}

pub(crate) async fn run(args: ApplyArgs) -> Result<Exit, Failure> {
    let Some(path) = args.global.config.clone() else {
        return Err(Failure::config("no configuration is named")
            .advice("Nothing was read or written. Add --config postrider.toml."));
    };
    let loaded = config::load(Some(&path), &Environment::of_process(), Needs::RELAY)?;
    let store = args.global.open().await?;
    let stored = store.source.destinations().await?;
    let (differences, change) = compare(&stored, &loaded.config, args.prune)?;
    let left =
        unnamed(&stored, &loaded.config).filter(|_| !args.prune).map(|row| &row.definition.id);
    let left: Vec<&DestinationId> = left.collect();
    if differences.is_empty() {
        terminal::note(match left.is_empty() {
            true => "the store's destinations are those of the configuration",
            false => "the store has all destinations of the configuration as they are there",
        });
    }
    for id in left {
        terminal::note(&format!(
            "the store also has `{id}`, which the configuration does not name: a relay with it sends nothing there, and \
             the events of {id} wait. Name it, or remove it: postrider destinations apply --config {} --prune",
            path.display()
        ));
    }
    if differences.is_empty() {
        return Ok(Exit::Success);
    }
    let touched = touched(&differences);
    Out::new(args.global.output).rows(differences)?;
    if args.dry_run {
        return Ok(Exit::Success);
    }
    let question = format!("apply this to {touched} destinations?");
    if let Answer::Stop(exit) = confirm::yes(args.yes, &question).await? {
        return Ok(exit);
    }
    let version = store.operator.apply(&change, &args.by.note()?).await.map_err(moved)?;
    terminal::note(&format!(
        "applied; the definitions have version {version}. Relays with the old ones stop serving \
         what changed: start them with this configuration"
    ));
    Ok(Exit::Success)
}

/// Somebody else changed the definitions after the difference was shown.
fn moved(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::Conflict => Failure::from(error).advice(
            "Nothing was changed. Run the command again to see the difference as it is now.",
        ),
        _ => Failure::from(error),
    }
}

fn touched(differences: &[Difference]) -> usize {
    let mut names: Vec<&str> = differences.iter().map(|one| one.destination.as_str()).collect();
    names.dedup();
    names.len()
}

/// What differs, and the change that mends it.
fn compare(
    stored: &Definitions,
    config: &Config,
    prune: bool,
) -> Result<(Vec<Difference>, DefinitionChange), Failure> {
    let mut differences = Vec::new();
    let mut change = DefinitionChange { expected: Some(stored.version), ..Default::default() };
    for (id, destination) in &config.destinations {
        let wanted = destination.definition(id);
        let row = stored.rows.iter().find(|row| row.definition.id == *id);
        match row {
            Some(row) if row.definition == wanted => continue,
            Some(row) => {
                let (old, new) = (value(&row.definition)?, value(&wanted)?);
                fields(id, String::new(), &old, &new, &mut differences);
                change.put.push((wanted, Start::Now));
            }
            None => {
                let new = value(&wanted)?;
                differences.push(whole(id, "add", Value::Null, new));
                change.put.push((wanted, destination.start));
            }
        }
    }
    for row in unnamed(stored, config).filter(|_| prune) {
        let id = &row.definition.id;
        differences.push(whole(id, "remove", value(&row.definition)?, Value::Null));
        change.remove.push(id.clone());
    }
    Ok((differences, change))
}

/// What the store has and the configuration does not name.
fn unnamed<'a>(
    stored: &'a Definitions,
    config: &'a Config,
) -> impl Iterator<Item = &'a DestinationRow> {
    stored.rows.iter().filter(|row| {
        !row.definition.is_unrouted() && !config.destinations.contains_key(&row.definition.id)
    })
}

fn whole(id: &DestinationId, action: &'static str, old: Value, new: Value) -> Difference {
    Difference { destination: id.clone(), action, path: String::new(), old, new }
}

fn value(definition: &Destination) -> Result<Value, Failure> {
    serde_json::to_value(definition)
        .map_err(|e| Failure::plain(format!("the definition of {}: {e}", definition.id)))
}

/// The leaves that differ.
fn fields(id: &DestinationId, path: String, old: &Value, new: &Value, out: &mut Vec<Difference>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(before), Value::Object(after)) => {
            let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let dot = if path.is_empty() { "" } else { "." };
                let (old, new) = (before.get(name), after.get(name));
                let (old, new) = (old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null));
                fields(id, format!("{path}{dot}{name}"), old, new, out);
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for index in 0..before.len().max(after.len()) {
                let (old, new) = (before.get(index), after.get(index));
                let (old, new) = (old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null));
                fields(id, format!("{path}[{index}]"), old, new, out);
            }
        }
        _ => out.push(Difference {
            destination: id.clone(),
            action: "change",
            path,
            old: old.clone(),
            new: new.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_config::Loader;
    use postrider_core::DestinationState;

    const ONE: &str = "[destinations.a]\nkind = \"stdout\"\n";

    fn config(text: &str) -> Config {
        let environment = Environment::default();
        Loader::new(&environment).text("postrider.toml", text).load().unwrap().config
    }

    fn stored(text: &str) -> Definitions {
        let config = config(text);
        let rows = config.destinations.iter().map(|(id, destination)| DestinationRow {
            definition: destination.definition(id),
            version: 1,
            state: DestinationState::Active,
        });
        Definitions { version: 7, rows: rows.collect(), ..Definitions::default() }
    }

    #[test]
    fn equal_definitions_differ_in_nothing() {
        let (differences, change) = compare(&stored(ONE), &config(ONE), true).unwrap();
        assert!(differences.is_empty() && change.put.is_empty() && change.remove.is_empty());
    }

    /// What is applied is what was shown, on the version that it was shown for.
    #[test]
    fn each_leaf_that_differs_is_named() {
        let changed =
            format!("{ONE}[[destinations.a.routes]]\ntopic = \"x\"\ndead_key = \"skip\"\n");
        let (differences, change) = compare(&stored(ONE), &config(&changed), false).unwrap();
        let paths: Vec<&str> = differences.iter().map(|one| &*one.path).collect();
        assert_eq!(paths, ["routes[0].dead_key", "routes[0].topic"]);
        assert_eq!((change.expected, change.put.len()), (Some(7), 1));
    }

    #[test]
    fn what_the_configuration_does_not_name_is_removed_only_on_request() {
        let two = format!("{ONE}[destinations.b]\nkind = \"file\"\nurl = \"file://b\"\n");
        let (kept, _) = compare(&stored(&two), &config(ONE), false).unwrap();
        assert!(kept.is_empty());
        let (removed, change) = compare(&stored(&two), &config(ONE), true).unwrap();
        assert_eq!((removed[0].action, change.remove.len()), ("remove", 1));
        let (added, change) = compare(&stored(ONE), &config(&two), false).unwrap();
        assert_eq!((added[0].action, change.put.len()), ("add", 1));
    }
}
