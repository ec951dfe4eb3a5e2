//! The SQL contract: every table with its columns and rules, as a fresh database has them.

use std::fmt::Write as _;

use postrider_sqlite::Schema;
use rusqlite::Connection;

use crate::failure::Failure;

/// A column of a table.
struct Column {
    name: String,
    kind: String,
    not_null: bool,
    default: Option<String>,
    key: i64,
    generated: bool,
}

/// The page.
///
/// # Errors
/// If the tables cannot be made in memory.
pub(super) fn page(made: &str) -> Result<String, Failure> {
    let failed = |e: rusqlite::Error| Failure::plain(format!("the tables in memory: {e}"));
    let text = Schema::sql();
    let connection = Connection::open_in_memory().map_err(failed)?;
    connection.execute_batch(&text).map_err(failed)?;
    let mut page = format!(
        "# SQL contract\n\n{made}The tables of version {} in SQLite, as `postrider init` makes them. \
         Applications write to `outbox` and `outbox_scheduled`, with the columns that have no \
         default and whichever others they need; everything else is Postrider's own, and may be \
         read. Rows that are inserted with SQL meet the rules of their table, and no pre-flight: what a \
         destination cannot carry is found when it is published, and becomes a dead letter. How and why: [the tables as a contract](sqlite.md). \
         Those of PostgreSQL have [a page of their own](postgres.md).\n",
        Schema::VERSION
    );
    let mut tables =
        connection.prepare(include_str!("../../sql/generate/tables.sql")).map_err(failed)?;
    let tables = tables
        .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect::<rusqlite::Result<Vec<(String, String)>>>)
        .map_err(failed)?;
    for (name, sql) in tables {
        describe(&connection, &text, &name, &sql, &mut page).map_err(failed)?;
    }
    Ok(page)
}

fn describe(
    connection: &Connection,
    text: &str,
    name: &str,
    sql: &str,
    page: &mut String,
) -> rusqlite::Result<()> {
    // Writing to a String cannot fail.
    _ = write!(page, "\n## {name}\n\n{}\n\n", comment(text, name));
    page.push_str("| Column | Type | Default | |\n|---|---|---|---|\n");
    for column in columns(connection, name)? {
        let default = column.default.as_deref().map(short).unwrap_or_default();
        let mut notes = Vec::new();
        if column.key > 0 {
            notes.push("key");
        }
        if column.generated {
            notes.push("generated");
        }
        if !column.not_null && column.key == 0 && !column.generated {
            notes.push("may be null");
        }
        let (name, kind) = (column.name, column.kind.to_lowercase());
        _ = writeln!(page, "| `{name}` | {kind} | {default} | {} |", notes.join(", "));
    }
    let mut rules: Vec<String> = constraints(sql).map(|rule| format!("`{rule}`")).collect();
    let mut triggers = connection.prepare(include_str!("../../sql/generate/triggers.sql"))?;
    let triggers = triggers.query_map([name], |row| row.get::<_, String>(0))?;
    for trigger in triggers {
        rules.push(format!("`{}`", trigger?));
    }
    if !rules.is_empty() {
        _ = writeln!(page, "\nRules, by the names that a refusal gives: {}.", rules.join(", "));
    }
    Ok(())
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Column>> {
    let mut columns = connection.prepare(include_str!("../../sql/generate/columns.sql"))?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Column {
            name: row.get(0)?,
            kind: row.get(1)?,
            not_null: row.get(2)?,
            default: row.get(3)?,
            key: row.get(4)?,
            generated: row.get::<_, i64>(5)? != 0,
        })
    };
    columns.query_map([table], read)?.collect()
}

/// A default; one that is computed by a long expression is only said to be.
fn short(default: &str) -> String {
    match default {
        long if long.len() > 30 => "computed".to_owned(),
        short => format!("`{short}`"),
    }
}

/// What stands above a table in the schema's text: the comment that explains it. One that a migration made anew has its own
/// above its first text.
fn comment(text: &str, table: &str) -> String {
    let begins = format!("create table {table} (");
    let above = |at: usize| {
        let above: Vec<&str> =
            text[..at].lines().rev().take_while(|line| line.starts_with("-- ")).collect();
        let lines = above.into_iter().rev().map(|line| line.trim_start_matches("-- "));
        lines.collect::<Vec<_>>().join("\n")
    };
    let mut texts = text.rmatch_indices(&begins).map(|(at, _)| above(at));
    texts.find(|text| !text.is_empty()).unwrap_or_default()
}

/// The names of a table's constraints.
fn constraints(sql: &str) -> impl Iterator<Item = &str> {
    let rest = sql.split("constraint ").skip(1);
    rest.filter_map(|rest| rest.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_table_with_its_comment_and_rules() {
        let page = page("").unwrap();
        for part in [
            "## outbox\n\nWhat the application says, in commit order, append-only.",
            "| `aggregate_type` | text |  |  |",
            "| `tenant` | text |  | may be null |",
            "`payload_is_json`",
            "`outbox_is_append_only`",
            "## outbox_waiting\n\nEvents that left the window",
            "## inbox\n",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
}
