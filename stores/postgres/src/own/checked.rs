//! The mapping against the table as it is: every column exists, is of a type that can be read, and the
//! promises that rest on it are kept by the table itself.
//!
//! Invariant: no row is left out in silence. An order that may be null, or that two rows may share, would
//! hide rows; such a table is refused with what to do.

use postrider_core::template::nearest;
use postrider_core::{Error, ErrorKind, Result};

use crate::own::mapping::{Mapping, Settled, config};
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::params;

const COLUMNS: Sql = sql!("own/columns");
const TABLES: Sql = sql!("own/tables");
const UNSAYABLE: Sql = sql!("own/unsayable");

/// The table as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) columns: Vec<Column>,
    /// Whether the user may lock its rows.
    pub(crate) may_lock: bool,
    /// Whether policies may hide rows from the user.
    pub(crate) row_security: bool,
    /// Where the user's own sessions look for names.
    pub(crate) search_path: String,
    /// Which store stands beside: no other one has it.
    pub(crate) store: String,
}

/// A column as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// The name of its type in the catalog, `enum` for one of one's own.
    pub(crate) of: String,
    /// How its type is written.
    pub(crate) written: String,
    pub(crate) never_null: bool,
    pub(crate) is_unique: bool,
    /// Computed of others: nobody writes it.
    pub(crate) is_computed: bool,
}

const WORDS: &[&str] = &["text", "varchar", "bpchar", "uuid", "int2", "int4", "int8", "enum"];
const INTEGERS: &[&str] = &["int2", "int4", "int8"];
const TIMES: &[&str] = &["timestamptz", "timestamp"];

impl Column {
    pub(crate) fn is_integer(&self) -> bool {
        INTEGERS.contains(&&*self.of)
    }
}

/// The table, if it fits.
pub(crate) async fn check(session: &Session, mapping: &Mapping) -> Result<Checked> {
    mapping.check()?;
    let (schema, table) = mapping.place();
    let rows = session.rows("open own table", &COLUMNS, params![schema, table]).await?;
    let Some(first) = rows.first() else {
        return Err(missing_table(session, mapping).await?);
    };
    let may = |column: usize| first.get::<_, bool>(column);
    may_use(mapping, may(5), may(6), may(7))?;
    let columns: Vec<Column> = rows
        .iter()
        .map(|row| Column {
            name: row.get(0),
            of: row.get(1),
            written: row.get(2),
            never_null: row.get(3),
            is_unique: row.get(4),
            is_computed: row.get(8),
        })
        .collect();
    for (key, name) in mapping.columns() {
        fits(mapping, key, find(mapping, &columns, key, name)?)?;
    }
    sayable(session, mapping).await?;
    if mapping.created_at.is_none()
        && mapping.occurred_at.is_none()
        && columns.iter().any(|column| orders_by(mapping, column))
    {
        return Err(config(
            "created_at",
            "an event has a time that never changes; map a column, or add one: timestamptz not null \
             default clock_timestamp()",
        ));
    }
    let text = |column: usize| first.get::<_, Option<String>>(column).unwrap_or_default();
    Ok(Checked {
        columns,
        may_lock: may(6),
        row_security: may(9),
        search_path: text(10),
        store: text(11),
    })
}

/// A status that its column cannot say would be found out at the mark, when the event has been sent: it would be sent
/// again and again.
async fn sayable(session: &Session, mapping: &Mapping) -> Result<()> {
    let Settled::Status { column, pending, published } = &mapping.settled else { return Ok(()) };
    let (schema, table) = mapping.place();
    let values = vec![pending.clone(), published.clone()];
    let values = params![schema, table, column.as_str(), values];
    let found = session.rows("open own table", &UNSAYABLE, values).await?;
    let Some(value) = found.first().map(|row| row.get::<_, String>(0)) else { return Ok(()) };
    Err(config("status", "the column cannot say this: it is no label of its type, or too long")
        .context("table", mapping.table.escape_debug())
        .context("column", column.escape_debug())
        .context("value", value.escape_debug()))
}

/// Whether this column numbers the rows.
pub(crate) fn orders_by(mapping: &Mapping, column: &Column) -> bool {
    Some(&*column.name) == mapping.order.as_deref() && column.is_integer()
}

async fn missing_table(session: &Session, mapping: &Mapping) -> Result<Error> {
    let (schema, table) = mapping.place();
    let found = session.rows("open own table", &TABLES, params![schema]).await?;
    let known: Vec<(&str, &str)> = found.iter().map(|row| (row.get(0), row.get(1))).collect();
    let message = match suggested_table((schema, table), &known) {
        Some((schema, table)) => {
            format!("there is no such table; did you mean `{schema}.{table}`?")
        }
        None => "there is no such table, or the user may not see it".to_owned(),
    };
    let asked = format!("{schema}.{table}");
    Ok(config("table", &message).context("table", asked.escape_debug()))
}

/// Which table was meant: one of the schema that was asked for, before any elsewhere.
fn suggested_table<'a>(
    (schema, table): (&str, &str),
    known: &[(&'a str, &'a str)],
) -> Option<(&'a str, &'a str)> {
    let beside: Vec<_> = known.iter().filter(|place| place.0 == schema).collect();
    let names: Vec<&str> = beside.iter().map(|place| place.1).collect();
    if let Some(near) = suggested(table, &names) {
        return beside.into_iter().find(|place| place.1 == near).copied();
    }
    let written: Vec<String> = known.iter().map(|(of, name)| format!("{of}.{name}")).collect();
    let names: Vec<&str> = written.iter().map(String::as_str).collect();
    let near = suggested(&format!("{schema}.{table}"), &names)?;
    names.iter().position(|name| *name == near).map(|index| known[index])
}

/// What was meant, if something is near: half of it is the same.
fn suggested<'a>(asked: &str, known: &[&'a str]) -> Option<&'a str> {
    if known.is_empty() {
        return None;
    }
    let near = nearest(asked, known);
    let known = known.iter().find(|name| **name == near)?;
    let same = |a: &mut dyn Iterator<Item = (char, char)>| a.take_while(|(x, y)| x == y).count();
    let head = same(&mut asked.chars().zip(near.chars()));
    let tail = same(&mut asked.chars().rev().zip(near.chars().rev()));
    (2 * (head + tail) >= asked.chars().count().max(near.chars().count())).then_some(*known)
}

fn may_use(mapping: &Mapping, read: bool, update: bool, delete: bool) -> Result<()> {
    let (may, verb) = match mapping.settled {
        Settled::Delete => (delete, "DELETE"),
        _ => (update, "UPDATE"),
    };
    if read && may {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unauthorized, "open own table")
        .message(format!(
            "the user may not read and mark the rows of the table; nothing was read: \
             GRANT SELECT, {verb} on it"
        ))
        .context("table", mapping.table.escape_debug()))
}

fn find<'a>(
    mapping: &Mapping,
    columns: &'a [Column],
    key: &'static str,
    name: &str,
) -> Result<&'a Column> {
    if let Some(column) = columns.iter().find(|column| column.name == name) {
        return Ok(column);
    }
    let names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
    let message = match suggested(name, &names) {
        Some(near) => format!("the table has no such column; did you mean `{near}`?"),
        None => format!("the table has no such column; it has {}", names.join(", ")),
    };
    Err(config(key, &message)
        .context("table", mapping.table.escape_debug())
        .context("column", name.escape_debug()))
}

/// Whether a column can be what it is mapped to.
fn fits(mapping: &Mapping, key: &'static str, column: &Column) -> Result<()> {
    let is = |types: &[&str]| types.contains(&&*column.of);
    let (good, wanted) = match key {
        "order" => return orders(mapping, column),
        "id" => (is(&WORDS[..WORDS.len() - 1]), "uuid, text, or an integer"),
        "payload" => (is(&["text", "varchar", "json", "jsonb", "bytea"]), "text, json, or bytea"),
        "payload_bytes" => (is(&["bytea"]), "bytea"),
        "headers" => (is(&["jsonb"]), "jsonb"),
        "event_version" => (is(INTEGERS), "an integer"),
        "occurred_at" | "created_at" | "published_at" => (is(TIMES), "a timestamp"),
        "status" => (is(&["text", "varchar", "bpchar", "enum"]), "text or an enum"),
        _ => (is(WORDS), "text, uuid, an integer, or an enum"),
    };
    if !good {
        return Err(refused(mapping, key, column, &format!("the column is not {wanted}")));
    }
    if column.is_computed && ["published_at", "status"].contains(&key) {
        let message = "the column is computed of others, so no row can be marked by it";
        return Err(refused(mapping, key, column, message));
    }
    if key == "id" && !(column.never_null && column.is_unique) {
        return Err(refused(
            mapping,
            key,
            column,
            "an identity is unique and never null, else events would be taken for others; make it NOT NULL with a unique \
             index on it alone, which a table that is partitioned by something else cannot have",
        ));
    }
    Ok(())
}

fn orders(mapping: &Mapping, column: &Column) -> Result<()> {
    if column.is_integer() {
        if column.never_null && column.is_unique {
            return Ok(());
        }
        return Err(refused(
            mapping,
            "order",
            column,
            "a number that is null, or that two rows share, would hide rows; make it NOT NULL with a \
             unique index on it alone, or name no column (`order = \"-\"`): Postrider then numbers the rows",
        ));
    }
    if ["timestamptz", "timestamp", "uuid", "text", "varchar"].contains(&&*column.of) {
        return Ok(());
    }
    Err(refused(mapping, "order", column, "the column is no integer, time, UUID, or text"))
}

fn refused(mapping: &Mapping, key: &'static str, column: &Column, message: &str) -> Error {
    config(key, message)
        .context("table", mapping.table.escape_debug())
        .context("column", column.name.escape_debug())
        .context("type", &column.written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_the_schema_that_was_asked_for_is_meant_first() {
        let known = [("shop", "outbox events"), ("shop", "orders"), ("shop2", "outbox event")];
        let meant = |schema, table| suggested_table((schema, table), &known);
        assert_eq!(meant("shop", "outbox event"), Some(("shop", "outbox events")));
        assert_eq!(meant("shop2", "outbox_event"), Some(("shop2", "outbox event")));
        assert_eq!(meant("shopp", "orders"), Some(("shop", "orders")), "the schema was mistyped");
        assert_eq!(meant("shop20", "outbox event"), Some(("shop2", "outbox event")));
        assert_eq!(meant("billing", "xyz"), None);
        assert_eq!(suggested_table(("shop", "orders"), &[]), None);
    }
}
