//! What is fixed when the tables are made.

use postrider_core::{Error, ErrorKind, Result};

use crate::Names;

/// So many partitions at most: each is a lease to renew and a cursor to save.
pub const PARTITIONS_MAX: u16 = 1_024;

/// Buckets of the settled log have so many numbers; a table's numbers are whole buckets.
const BUCKET: u64 = 4_096;

/// How the outbox lies on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One table per million numbers, so that old ones go whole. The default.
    #[default]
    Partitioned,
    /// One table, from which old rows are deleted: for those who cannot partition.
    Plain,
}

impl Layout {
    /// The name as it is stored and written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Layout::Partitioned => "partitioned",
            Layout::Plain => "plain",
        }
    }
}

impl std::str::FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Layout> {
        match text {
            "partitioned" => Ok(Layout::Partitioned),
            "plain" => Ok(Layout::Plain),
            other => Err(Error::new(ErrorKind::Config, "read layout")
                .message("a layout is `partitioned` or `plain`")
                .context("layout", other.escape_debug())),
        }
    }
}

/// What is fixed when the tables are made. What is `None` is the default in a fresh database, and whatever
/// is there in one that has the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// What the tables are called.
    pub names: Names,
    /// P, the units of ownership between relays, for ever. The default is 32: more relays than that
    /// stand by.
    pub partitions: Option<u16>,
    /// How the outbox lies on disk. The default is [`Layout::Partitioned`].
    pub layout: Option<Layout>,
    /// Numbers in one table of a partitioned outbox, a multiple of 4,096. The default is 2^20: a table of
    /// some hundred megabytes, and few enough of them that planning a statement costs nothing.
    pub table_rows: Option<u64>,
    /// The default of `outbox.source`, a URI reference that names this service among all whose events
    /// meet in one inbox. The default is the database's name, like `/shop`. It can be changed while
    /// there never was an event.
    pub source: Option<String>,
}

impl Setup {
    /// P, unless another is asked for.
    pub const PARTITIONS: u16 = 32;
    /// Numbers in one table, unless another is asked for.
    pub const TABLE_ROWS: u64 = 1 << 20;

    /// Checks what is asked for.
    ///
    /// # Errors
    /// `Config` if a number is out of its range; `Invalid` if the source is empty, longer than 255 bytes,
    /// or has control characters.
    pub(crate) fn check(&self) -> Result<()> {
        let config = |message: String| Error::new(ErrorKind::Config, "init").message(message);
        let partitions = self.partitions.unwrap_or(Setup::PARTITIONS);
        if partitions == 0 || partitions > PARTITIONS_MAX {
            return Err(config(format!("there are 1 to {PARTITIONS_MAX} partitions"))
                .context("partitions", partitions));
        }
        let rows = self.table_rows.unwrap_or(Setup::TABLE_ROWS);
        if rows == 0 || !rows.is_multiple_of(BUCKET) || rows > 1 << 32 {
            return Err(config(format!(
                "a table has a multiple of {BUCKET} numbers, 2^32 at most"
            ))
            .context("numbers", rows));
        }
        match &self.source {
            Some(source)
                if source.is_empty()
                    || source.len() > 255
                    || source.chars().any(char::is_control) =>
            {
                Err(Error::new(ErrorKind::Invalid, "init")
                    .message("a source has 1 to 255 bytes and no control characters"))
            }
            _ => Ok(()),
        }
    }

    /// A text with the names and numbers of this database in their places.
    pub(crate) fn render(&self, text: &str) -> String {
        let layout = self.layout.unwrap_or_default();
        let by_range = match layout {
            Layout::Partitioned => " partition by range (seq)",
            Layout::Plain => "",
        };
        let partitions = self.partitions.unwrap_or(Setup::PARTITIONS);
        let rows = self.table_rows.unwrap_or(Setup::TABLE_ROWS);
        let text = self.names.render(text);
        text.replace("$partitions$", &partitions.to_string())
            .replace("$by_range$", by_range)
            .replace("$layout$", layout.as_str())
            .replace("$table_rows$", &rows.to_string())
    }
}
