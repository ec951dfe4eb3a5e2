//! `postrider migrate`: which migrations the tables have, and the way back.
//!
//! Invariant: nothing is taken back beside a relay that lives, nor before somebody has seen what goes and said so.

use clap::{Args, Subcommand};
use postrider_core::operate::findings::listed;

use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::shape::{Migration, Reversal};
use crate::store::Place;
use crate::terminal::{self, note};

/// Show which migrations the tables have, or take them back
#[derive(Args, Debug)]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    command: MigrateCommand,
}

#[derive(Debug, Subcommand)]
enum MigrateCommand {
    Status(StatusArgs),
    Revert(RevertArgs),
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

/// Take migrations back, newest first: what they made goes with its rows
///
/// Version 0 is a database without Postrider's tables. Says what goes, counted,
/// and asks; refused while a relay is alive. Stop producers first: whoever
/// enqueues meanwhile loses that event. Each migration is taken back whole or
/// not at all.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider migrate revert --to 0 --dry-run --store postgres://app@db/shop
  postrider migrate revert --to 0 --store postgres://app@db/shop
  postrider migrate revert --to 0 --print --store postgres://app@db/shop")]
struct RevertArgs {
    /// The version that the tables are to have
    #[arg(long, value_name = "VERSION")]
    to: u32,
    /// Write the SQL to standard output and touch nothing
    #[arg(long, conflicts_with_all = ["dry_run", "yes"])]
    print: bool,
    /// Say what would go, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: MigrateArgs) -> Result<Exit, Failure> {
    match args.command {
        MigrateCommand::Status(args) => status(args).await,
        MigrateCommand::Revert(args) => revert(args).await,
    }
}

async fn revert(args: RevertArgs) -> Result<Exit, Failure> {
    let place = args.global.place()?;
    let Place::Postgres(database) = &place else {
        let what = format!("the migrations of {} are not taken back", place.what());
        return Err(Failure::config(what)
            .advice("Nothing was changed. Only a PostgreSQL store has a way back."));
    };
    let (address, names) = (database.address(), database.names());
    if args.print {
        let text = postrider_postgres::Schema::revert_sql(names, args.to);
        terminal::data(text.trim_end()).map_err(Failure::of_stdout)?;
        return Ok(Exit::Success);
    }
    let version = postrider_postgres::migrations(address, names).await?.version();
    if version <= args.to {
        note(&format!("{place} has version {version}: there is nothing to take back"));
        return Ok(Exit::Success);
    }
    no_relay_lives(&args.global).await?;
    let held = postrider_postgres::holdings(address, names).await?;
    let reversal = Reversal::of(version, args.to, held, !args.dry_run);
    if args.dry_run {
        note(&format!("would be taken back from version {version} to {}, in {place}:", args.to));
        args.global.out().one(&reversal, || reversal.sheet())?;
        return Ok(Exit::Success);
    }
    let what = if args.to == 0 { "with the tables go" } else { "the tables hold" };
    note(&format!("{place}, version {version} to {}: {what}\n{}", args.to, reversal.sheet()));
    let schema = names.schema();
    let answer = confirm::name(args.yes, "this cannot be undone", schema).await?;
    if let Answer::Stop(exit) = answer {
        return Ok(exit);
    }
    // Somebody may have started one while the question stood there.
    no_relay_lives(&args.global).await?;
    postrider_postgres::revert(address, names, args.to).await?;
    note(&format!("{place} has version {} now", args.to));
    args.global.out().one(&reversal, String::new)?;
    Ok(Exit::Success)
}

/// Refuses beside relays: they would go on with tables that are gone.
async fn no_relay_lives(global: &Global) -> Result<(), Failure> {
    let overview = global.open().await?.operator.overview().await?;
    let alive: Vec<String> = overview.relays.iter().map(|relay| relay.owner.to_string()).collect();
    match &*alive {
        [] => Ok(()),
        alive => Err(Failure::plain(format!("relays are alive: {}", listed(alive))).advice(
            "Nothing was changed. Stop them; one that died counts as alive until its lease ends.",
        )),
    }
}

async fn status(args: StatusArgs) -> Result<Exit, Failure> {
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
