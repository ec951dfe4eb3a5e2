//! The tree of values as they were written, each with the place where it stands, before anything is
//! known about what they should be.
//!
//! Invariant: a value never loses its place; the environment overlays values, it does not edit text.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml::de::{DeInteger, DeTable, DeValue};

/// Tables and lists inside each other. The configuration has seven; the limit keeps recursion small.
const DEPTH_MAX: usize = 32;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: Place,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    /// Text of a variable or a default: a string, a number, or a flag, as the key has it.
    Loose(String),
    Integer(i128),
    Float(f64),
    Flag(bool),
    Time(String),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
    /// Deeper than anything the configuration has.
    TooDeep,
}

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: it is a default, or the file as a whole.
    Nowhere,
    /// In the file, in bytes.
    File { key: Range<usize>, value: Range<usize> },
    /// In a variable of this name.
    Variable(Arc<str>),
}

impl Node {
    pub(crate) fn new(value: Value, place: Place) -> Node {
        Node { value, place }
    }

    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Loose(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is a list or a table.
    pub(crate) fn holds_others(&self) -> bool {
        matches!(self.value, Value::List(_) | Value::Table(_) | Value::TooDeep)
    }

    /// What was found, for a message. Texts are not repeated.
    pub(crate) fn found(&self) -> String {
        match &self.value {
            Value::Text(_) | Value::Loose(_) => "a text".into(),
            Value::Integer(number) => format!("the number {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Flag(flag) => format!("{flag}"),
            Value::Time(_) => "a date".into(),
            Value::List(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
            Value::TooDeep => "tables inside tables without end".into(),
        }
    }

    /// The same without the value.
    pub(crate) fn found_kind(&self) -> &'static str {
        match &self.value {
            Value::Text(_) | Value::Loose(_) => "a text",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Flag(_) => "true or false",
            Value::Time(_) => "a date",
            Value::List(_) => "a list",
            Value::Table(_) | Value::TooDeep => "a table",
        }
    }

    /// The places of all values inside, its own included.
    pub(crate) fn spans(&self, out: &mut Vec<Range<usize>>) {
        match &self.value {
            Value::Table(entries) => entries.values().for_each(|node| node.spans(out)),
            Value::List(items) => items.iter().for_each(|node| node.spans(out)),
            _ => {
                if let Place::File { value, .. } = &self.place {
                    out.push(value.clone());
                }
            }
        }
    }
}

/// The tree of a parsed document.
pub(crate) fn of_document(table: &DeTable<'_>) -> BTreeMap<String, Node> {
    entries(table, 0, &|key, value| Place::File { key, value })
}

/// The tree of a value that stands in a variable.
pub(crate) fn of_variable(value: &DeValue<'_>, variable: &Arc<str>) -> Value {
    convert(value, 0, &|_, _| Place::Variable(Arc::clone(variable)))
}

type Placed<'a> = &'a dyn Fn(Range<usize>, Range<usize>) -> Place;

fn entries(table: &DeTable<'_>, depth: usize, place: Placed<'_>) -> BTreeMap<String, Node> {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        let place_of = place(key.span(), value.span());
        (name.to_string(), Node::new(convert(value.get_ref(), depth, place), place_of))
    };
    table.iter().map(entry).collect()
}

fn convert(value: &DeValue<'_>, depth: usize, place: Placed<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => Value::Integer(integer(number)),
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(time) => Value::Time(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) if depth >= DEPTH_MAX => Value::TooDeep,
        DeValue::Array(items) => Value::List(
            items
                .iter()
                .map(|item| {
                    let value = convert(item.get_ref(), depth + 1, place);
                    Node::new(value, place(item.span(), item.span()))
                })
                .collect(),
        ),
        DeValue::Table(table) => Value::Table(entries(table, depth + 1, place)),
    }
}

fn integer(number: &DeInteger<'_>) -> i128 {
    i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX)
}
