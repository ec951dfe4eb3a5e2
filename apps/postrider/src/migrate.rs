//! `postrider migrate`: which migrations the tables have.

use clap::{Args, Subcommand};

use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::shape::Migration;
use crate::store::Place;
use crate::terminal::note;

/// Show which migrations the tables have
#[derive(Args, Debug)]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    command: MigrateCommand,
}

#[derive(Debug, Subcommand)]
enum MigrateCommand {
    Status(StatusArgs),
}

/// List the migrations: applied, and since when, or pending
///
/// Changes nothing. `postrider init` applies what is pending. Exits 6 if
/// something is, and 0 if nothing is.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider migrate status --store postgres://app@db/shop")]
struct StatusArgs {
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: MigrateArgs) -> Result<Exit, Failure> {
    let MigrateCommand::Status(args) = args.command;
    let place = args.global.place()?;
    let Place::Postgres(database) = place else {
        return Err(Failure::config(format!("the migrations of {} are not listed", place.what()))
            .advice("Nothing was read. `postrider init` says which version the tables have."));
    };
    let found = postrider_postgres::migrations(database.address(), database.names()).await?;
    args.global.out().rows(found.states.iter().map(Migration::of).collect())?;
    if let Some(setup) = &found.setup {
        let layout = setup.layout.unwrap_or_default().as_str();
        note(&format!("{} partitions, {layout}", setup.partitions.unwrap_or_default()));
    }
    let pending = found.states.iter().any(|state| !state.applied);
    Ok(if pending { Exit::Unhealthy } else { Exit::Success })
}
