//! The reference of all keys in Markdown, for the documentation.
//!
//! Invariant: it follows from the tables; no key is described twice.

use crate::config::Config;
use crate::key::{Json, Key, Leaf, Shape, TableShape, plain};
use crate::schema::limits;

/// One table for each table of the file: key, type, default, limits, what a change needs, and what
/// it is.
///
/// ```
/// let page = postrider_config::reference();
/// assert!(page.contains("### `[relay]`"));
/// ```
pub fn reference() -> String {
    let mut page = String::new();
    write(&mut page, &Config::TABLE, "", false);
    page.trim_end().to_owned() + "\n"
}

fn write(page: &mut String, table: &TableShape, heading: &str, is_list: bool) {
    let title = match (heading, is_list) {
        ("", _) => "The top of the file".to_owned(),
        (_, true) => format!("`[[{heading}]]`"),
        (_, false) => format!("`[{heading}]`"),
    };
    page.push_str(&format!("### {title}\n\n{}\n", plain(table.doc)));
    if table.keys.iter().any(is_row) {
        page.push_str("\n| Key | Type | Default | Limits | Change | What it is |\n");
        page.push_str("|---|---|---|---|---|---|\n");
        table.keys.iter().filter(|key| is_row(key)).for_each(|key| page.push_str(&row(key)));
    }
    page.push('\n');
    for key in table.keys {
        let inner = if heading.is_empty() {
            key.name.to_owned()
        } else {
            format!("{heading}.{}", key.name)
        };
        descend(page, &key.shape, &inner);
    }
}

fn descend(page: &mut String, shape: &Shape, heading: &str) {
    match shape {
        Shape::Leaf(_) | Shape::List(Shape::Leaf(_)) => {}
        Shape::Table(table) => write(page, table, heading, false),
        Shape::List(Shape::Table(table)) => write(page, table, heading, true),
        Shape::List(of) => descend(page, of, heading),
        Shape::Map(map) if map.of.leaf().is_some() => {}
        Shape::Map(map) => descend(page, &map.of, &format!("{heading}.{}", map.placeholder)),
    }
}

/// Whether a key is a row of its table; the others have tables of their own.
fn is_row(key: &Key) -> bool {
    match key.shape {
        Shape::Leaf(_) | Shape::List(Shape::Leaf(_)) => true,
        Shape::Map(map) => map.of.leaf().is_some(),
        Shape::Table(_) | Shape::List(_) => false,
    }
}

fn row(key: &Key) -> String {
    let default = match key.shape.leaf() {
        Some(_) if key.required => "needed".to_owned(),
        Some(leaf) if !key.default.is_empty() => format!("`{}`", leaf.literal(key.default)),
        Some(leaf) => format!("absent, like `{}`", leaf.literal(example(key, leaf.example))),
        None => "none".to_owned(),
    };
    let choices = match key.shape.leaf() {
        Some(Leaf { json: Json::Choice(names), .. }) => names.join(", "),
        _ => String::new(),
    };
    let limits = [choices, limits(key)];
    let limits: Vec<&String> = limits.iter().filter(|words| !words.is_empty()).collect();
    let limits = limits.iter().map(|words| words.as_str()).collect::<Vec<_>>().join("; ");
    format!(
        "| `{}` | {} | {default} | {limits} | {} | {} |\n",
        key.name,
        kind(&key.shape),
        key.class.word(),
        plain(key.doc).replace('\n', " ").replace('|', "\\|")
    )
}

fn example<'a>(key: &'a Key, other: &'a str) -> &'a str {
    if key.example.is_empty() { other } else { key.example }
}

fn kind(shape: &Shape) -> String {
    match shape {
        Shape::Leaf(leaf) => leaf.word.to_owned(),
        Shape::List(of) => format!("list of {}s", kind(of)),
        Shape::Map(map) => format!("{}s with a {} each", map.what, kind(&map.of)),
        Shape::Table(_) => "table".to_owned(),
    }
}
