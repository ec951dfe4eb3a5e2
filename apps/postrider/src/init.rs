//! `postrider init`: creates or migrates the tables, or prints the SQL that does.

use std::path::{Path, PathBuf};

use clap::Args;
use postrider_sqlite::Schema;
use rusqlite::{Connection, OpenFlags};

use crate::failure::{Exit, Failure};
use crate::{global, store, terminal};

/// Create or migrate the tables in your database
///
/// Creates the outbox and the inbox beside your own tables, and the file if
/// there is none. Doing it again changes nothing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider init sqlite://shop.db
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
    /// Write the SQL to standard output and touch nothing
    #[arg(long)]
    print: bool,
}

pub(crate) fn run(args: &InitArgs) -> Result<Exit, Failure> {
    let given = args.url.clone().or_else(|| args.store.clone());
    let url = match given {
        Some(url) => Some(url),
        None => global::configured(args.config.as_deref())?.0,
    };
    // An address is checked even where only the text is wanted: it names the dialect.
    let path = url.as_deref().map(store::sqlite_path).transpose()?;
    if args.print {
        terminal::data(Schema::sql().trim_end()).map_err(Failure::of_stdout)?;
        return Ok(Exit::Success);
    }
    let Some(path) = path else {
        return Err(Failure::config("the store's address is missing"));
    };
    let before = version(&path);
    let new_file = if path.exists() { "" } else { ", a new file" };
    postrider_sqlite::init(&path)?;
    let (shown, now) = (path.display(), Schema::VERSION);
    terminal::note(&match before {
        None => format!("created the tables, version {now}, in {shown}{new_file}"),
        Some(before) if before == now => {
            format!("{shown} has the tables already, version {now}: nothing was changed")
        }
        Some(before) => format!("migrated the tables in {shown} from version {before} to {now}"),
    });
    Ok(Exit::Success)
}

/// The version of the tables that are there, for the message alone: `init` itself decides anew.
fn version(path: &Path) -> Option<u32> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).ok()?;
    let sql = include_str!("../sql/schema_version.sql");
    let text: String = connection.query_row(sql, (), |row| row.get(0)).ok()?;
    text.parse().ok()
}
