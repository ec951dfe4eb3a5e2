//! Definitions: those of this relay against those of the store.
//!
//! Invariant: the definition in the store wins. A relay registers its own only in a store that has
//! none; one whose own differs does not start, and says which command applies it.

use std::path::Path;

use postrider_core::{Code, Destination, DestinationRow, OutboxSource};

use crate::failure::Failure;

/// Registers the definitions in a store that has none, and else checks that each is the store's.
///
/// # Errors
/// A configuration failure about the first that is not.
pub(crate) async fn agree(
    source: &dyn OutboxSource,
    definitions: &[Destination],
    config: Option<&Path>,
) -> Result<(), Failure> {
    source.register(definitions).await?;
    let stored = source.destinations().await?;
    let stored: Vec<&DestinationRow> =
        stored.rows.iter().filter(|row| !row.definition.is_unrouted()).collect();
    definitions.iter().try_for_each(|definition| check(definition, &stored, config))
}

fn check(
    definition: &Destination,
    stored: &[&DestinationRow],
    config: Option<&Path>,
) -> Result<(), Failure> {
    let name = definition.id.as_str();
    let found = stored.iter().find(|row| row.definition.id == definition.id);
    let refuse = |message: String, advice: String| {
        Err(Failure::config(message).code(Code::DefinitionOutdated).advice(advice))
    };
    let apply =
        config.map(|path| format!("postrider destinations apply --config {}", path.display()));
    match (found, apply) {
        (Some(row), _) if row.definition == *definition => Ok(()),
        (Some(row), Some(apply)) => refuse(
            format!("the configuration defines destination `{name}` otherwise than the store"),
            format!(
                "Its events wait, and nothing was started. The store has version {}. To see the \
                 difference, and to change the store's: `{apply}`.",
                row.version
            ),
        ),
        (None, Some(apply)) => refuse(
            format!("the store has no destination `{name}`"),
            format!(
                "Nothing was started. To add it: `{apply}`. It begins at `now` unless `start` says \
                 otherwise: if what is committed already must reach it, write start = \"beginning\" \
                 in [destinations.{name}] first."
            ),
        ),
        (Some(row), None) => refuse(
            format!("the store defines destination `{name}` otherwise"),
            format!(
                "Its events wait, and nothing was started. The store has kind `{}`, version {}; \
                 --to stands for kind `{}`. Run the relay that has the store's definition, or \
                 choose another name with --as in a store of its own.",
                row.definition.kind, row.version, definition.kind
            ),
        ),
        (None, None) => {
            let others: Vec<&str> = stored.iter().map(|row| row.definition.id.as_str()).collect();
            let alike = stored.iter().find(|row| row.definition.kind == definition.kind);
            // Under another kind's name it would be refused again.
            let with = match alike {
                Some(row) => format!("--as {}", row.definition.id),
                None => "--config and the file that defines it".to_owned(),
            };
            refuse(
                format!("the store has no destination `{name}`"),
                format!(
                    "Nothing was started. It has {}; start this relay with {with}.",
                    others.join(", ")
                ),
            )
        }
    }
}
