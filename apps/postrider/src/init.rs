//! `postrider init`: creates or migrates the tables, or prints the SQL that does.

use std::path::{Path, PathBuf};

use clap::Args;
use postrider_core::Error;
use postrider_postgres::{Layout, Names, Setup};
use rusqlite::{Connection, OpenFlags};

use crate::failure::{Exit, Failure};
use crate::store::Place;
use crate::{global, terminal};

/// Create or migrate the tables in your database
///
/// Creates the outbox and the inbox beside your own tables, and the file if
/// there is none. Doing it again changes nothing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider init sqlite://shop.db
  postrider init postgres://app@db/shop --partitions 64
  postrider init 'postgres://app@db/shop?schema=billing' --print
  postrider init 'dynamodb://eu-central-1?prefix=shop-' --print
  postrider init --config postrider.toml
  postrider init --print | sqlite3 shop.db")]
pub(crate) struct InitArgs {
    /// The database, like sqlite://shop.db
    #[arg(value_name = "URL", required_unless_present_any = ["store", "config", "print"])]
    url: Option<String>,
    /// The database, the same as URL
    #[arg(long, value_name = "URL", conflicts_with = "url")]
    store: Option<String>,
    /// The configuration that names the database; else $POSTRIDER_CONFIG
    #[arg(long, value_name = "FILE", env = "POSTRIDER_CONFIG", hide_env = true)]
    config: Option<PathBuf>,
    /// Write the SQL to standard output and touch nothing; of DynamoDB the
    /// commands that make the tables
    #[arg(long)]
    print: bool,
    /// PostgreSQL and DynamoDB: partitions, for ever; as many relays share the
    /// work [default: 32, and 8 on DynamoDB]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partitions: Option<u16>,
    /// PostgreSQL: partitioned, or plain for one table [default: partitioned]
    #[arg(long, value_name = "LAYOUT", value_parser = layout)]
    pub(crate) layout: Option<Layout>,
    /// What events say they come from [default: the database's name, like /shop;
    /// on DynamoDB a random URN]
    #[arg(long, value_name = "URI")]
    pub(crate) source: Option<String>,
}

fn layout(text: &str) -> Result<Layout, Error> {
    text.parse()
}

impl InitArgs {
    fn setup(&self, names: &Names) -> Setup {
        Setup {
            names: names.clone(),
            partitions: self.partitions,
            layout: self.layout,
            source: self.source.clone(),
            ..Setup::default()
        }
    }

    /// What only PostgreSQL has.
    fn refuse_for_sqlite(&self) -> Result<(), Failure> {
        let given =
            [("--partitions", self.partitions.is_some()), ("--layout", self.layout.is_some())];
        match given.iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Failure::config(format!("SQLite has no {flag}"))
                .advice("Nothing was changed. Leave it out, or name a PostgreSQL database.")),
            None => Ok(()),
        }
    }
}

pub(crate) async fn run(args: InitArgs) -> Result<Exit, Failure> {
    let given = args.url.clone().or_else(|| args.store.clone());
    let url = match given {
        Some(url) => Some(url),
        None => global::configured(args.config.as_deref())?.address,
    };
    // An address is checked even where only the text is wanted: it names the dialect.
    let place = url.as_deref().map(Place::read).transpose()?;
    if args.print {
        let text = match &place {
            Some(Place::Postgres(database)) => {
                postrider_postgres::Schema::sql(&args.setup(database.names()))?
            }
            Some(Place::Dynamo(tables)) => tables.recipe(&args)?,
            _ => {
                args.refuse_for_sqlite()?;
                postrider_sqlite::Schema::sql()
            }
        };
        terminal::data(text.trim_end()).map_err(Failure::of_stdout)?;
        return Ok(Exit::Success);
    }
    match &place {
        None => return Err(Failure::config("the store's address is missing")),
        Some(Place::Sqlite(path)) => sqlite(&args, path)?,
        Some(Place::Dynamo(tables)) => tables.make(&args).await?,
        Some(place @ Place::Postgres(database)) => {
            let (address, names) = (database.address(), database.names());
            let before = postrider_postgres::migrations(address, names).await?.version();
            postrider_postgres::init(address, &args.setup(names)).await?;
            let version = postrider_postgres::Schema::VERSION;
            tell(&place.to_string(), (before > 0).then_some(before), version, "");
        }
    }
    Ok(Exit::Success)
}

fn sqlite(args: &InitArgs, path: &Path) -> Result<(), Failure> {
    args.refuse_for_sqlite()?;
    let before = version(path);
    let new_file = if path.exists() { "" } else { ", a new file" };
    match &args.source {
        Some(source) => postrider_sqlite::init_as(path, source)?,
        None => postrider_sqlite::init(path)?,
    }
    let version = postrider_sqlite::Schema::VERSION;
    tell(&path.display().to_string(), before, version, new_file);
    Ok(())
}

fn tell(shown: &str, before: Option<u32>, now: u32, new_file: &str) {
    terminal::note(&match before {
        None => format!("created the tables, version {now}, in {shown}{new_file}"),
        Some(before) if before == now => {
            format!("{shown} has the tables already, version {now}: nothing was changed")
        }
        Some(before) if before > now => format!(
            "{shown} has tables of version {before}, which a newer program made and this one, which knows {now}, works with: \
             nothing was changed"
        ),
        Some(before) => format!("migrated the tables in {shown} from version {before} to {now}"),
    });
}

/// The version of the tables that are there, for the message alone: `init` itself decides anew.
fn version(path: &Path) -> Option<u32> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).ok()?;
    let sql = include_str!("../sql/schema_version.sql");
    let text: String = connection.query_row(sql, (), |row| row.get(0)).ok()?;
    text.parse().ok()
}
