//! The environment over the file: `POSTRIDER_RELAY__LEASE=20s` is `lease` in `[relay]`.
//!
//! Invariant: every variable that begins with `POSTRIDER_` is a key, reserved, or refused. None is
//! ignored because of a slip in its name.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::template::nearest;
use toml::de::DeValue;

use crate::config::Config;
use crate::environment::Environment;
use crate::field::Field;
use crate::key::{MapShape, Shape};
use crate::node::{self, Node, Place, Value};
use crate::path::{PREFIX, Path, segment};
use crate::reading::{Complaint, Part, Reading};
use crate::section::is_close;

/// Variables of the program and its tests that are no keys: the path of the file, and the seeds of
/// randomised tests.
pub const RESERVED: [&str; 3] = ["POSTRIDER_CONFIG", "POSTRIDER_SEED", "POSTRIDER_SEEDS"];

/// A variable may be so large, as a file may.
const VALUE_BYTES_MAX: usize = 1024 * 1024;

type Entries = BTreeMap<String, Node>;

/// Lays the variables over the tree.
pub(crate) fn apply(
    root: &mut Entries,
    environment: &Environment,
    reserved: &[String],
    reading: &mut Reading,
) {
    let mut seen: BTreeMap<String, Arc<str>> = BTreeMap::new();
    for (name, value) in environment.iter() {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let passed = reserved.iter().any(|known| known == name) || RESERVED.contains(&name);
        if passed || is_service_link(name) {
            continue;
        }
        let variable: Arc<str> = Arc::from(name);
        let place = Place::Variable(Arc::clone(&variable));
        let mut refuse =
            |complaint| reading.refuse(&Path::default().key(name), &place, Part::Value, complaint);
        if let Some(other) = seen.insert(rest.to_ascii_uppercase(), Arc::clone(&variable)) {
            refuse(Complaint::new(format!("{other} is the same key"), "unset one of the two"));
            continue;
        }
        match value {
            None => refuse(Complaint::new("its value is not UTF-8", "set it again, or unset it")),
            Some("") => {
                refuse(Complaint::new("its value is empty", "unset it, or give it a value"))
            }
            Some(text) if text.len() > VALUE_BYTES_MAX => {
                refuse(Complaint::new("its value is larger than 1 MiB", "use a file"));
            }
            Some(text) => {
                let names: Vec<&str> = rest.split("__").collect();
                let target = Target { text, variable: &variable, names: &names };
                if let Err(complaint) = target.set(root, Config::SHAPE, 0) {
                    refuse(complaint);
                }
            }
        }
    }
}

/// Whether Kubernetes sets it for a service whose name begins with `postrider`: such variables are in
/// every container of the namespace and say nothing to us.
fn is_service_link(name: &str) -> bool {
    if name.contains("__") {
        return false;
    }
    let port = |(_, rest): (&str, &str)| {
        let mut parts = rest.split('_');
        let number =
            parts.next().is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        number && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT")
        || name.rsplit_once("_PORT_").is_some_and(port)
        || name.split_once("_PORT_").is_some_and(port)
}

/// A variable on its way to the value that it names.
struct Target<'a> {
    text: &'a str,
    variable: &'a Arc<str>,
    names: &'a [&'a str],
}

impl Target<'_> {
    /// Sets the value inside the entries of a table.
    fn set(&self, entries: &mut Entries, shape: Shape, depth: usize) -> Result<(), Complaint> {
        let written = self.names[depth];
        let (name, of) = match shape {
            Shape::Table(table) => {
                let found =
                    table.keys.iter().find(|key| segment(key.name) == written.to_ascii_uppercase());
                let key = found.ok_or_else(|| self.unknown())?;
                (key.name.to_owned(), key.shape)
            }
            Shape::Map(map) => (named(entries, map, written)?, map.of),
            Shape::Leaf(_) | Shape::List(_) => return Err(self.unknown()),
        };
        if depth + 1 == self.names.len() {
            let value = self.value(of)?;
            entries.insert(name, Node::new(value, self.place()));
            return Ok(());
        }
        let empty = || match of {
            Shape::List(_) => Value::List(Vec::new()),
            _ => Value::Table(Entries::new()),
        };
        let node = entries.entry(name).or_insert_with(|| Node::new(empty(), self.place()));
        self.set_inside(node, of, depth + 1)
    }

    fn set_inside(&self, node: &mut Node, shape: Shape, depth: usize) -> Result<(), Complaint> {
        match (&mut node.value, shape) {
            (Value::Table(entries), Shape::Table(_) | Shape::Map(_)) => {
                self.set(entries, shape, depth)
            }
            (Value::List(items), Shape::List(of)) => self.set_item(items, *of, depth),
            (_, Shape::Leaf(_)) => Err(self.unknown()),
            // What stands in the file is no table, and is reported there.
            _ => Ok(()),
        }
    }

    fn set_item(&self, items: &mut Vec<Node>, of: Shape, depth: usize) -> Result<(), Complaint> {
        let index = self.names[depth].parse::<usize>().ok().filter(|index| *index <= items.len());
        let Some(index) = index else {
            return Err(Complaint::new(
                format!("`{}` is no place in a list of {}", self.names[depth], items.len()),
                format!("places count from 0, and {} is the next", items.len()),
            ));
        };
        if index == items.len() {
            items.push(Node::new(Value::Table(Entries::new()), self.place()));
        }
        if depth + 1 == self.names.len() {
            items[index] = Node::new(self.value(of)?, self.place());
            return Ok(());
        }
        self.set_inside(&mut items[index], of, depth + 1)
    }

    fn place(&self) -> Place {
        Place::Variable(Arc::clone(self.variable))
    }

    /// The value in the form that the key has.
    fn value(&self, shape: Shape) -> Result<Value, Complaint> {
        match shape {
            Shape::Leaf(_) => Ok(Value::Loose(self.text.to_owned())),
            Shape::List(Shape::Leaf(_)) if !self.text.trim_start().starts_with('[') => {
                let items = self.text.split(',').map(str::trim).filter(|item| !item.is_empty());
                // Not loose: one item of several is not what the variable holds.
                let item = |text: &str| Node::new(Value::Text(text.to_owned()), self.place());
                Ok(Value::List(items.map(item).collect()))
            }
            _ => {
                let value = DeValue::parse(self.text.trim()).map_err(|error| {
                    Complaint::new(
                        format!("its value is not TOML: {}", error.message()),
                        format!("it holds {}, written in TOML on one line", shape.expected()),
                    )
                })?;
                Ok(node::of_variable(value.get_ref(), self.variable))
            }
        }
    }

    fn unknown(&self) -> Complaint {
        let mut known = Vec::new();
        let root = PREFIX.trim_end_matches('_');
        collect(&Config::SHAPE, root, "_", self.names, &mut known);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let written: String = self.variable.chars().take(200).collect::<String>().to_uppercase();
        // `POSTRIDER_LEASE` lacks its table: a key of that very name is nearer than any spelling.
        let last = written.rsplit("__").next().unwrap_or_default().trim_start_matches(PREFIX);
        let last = format!("__{last}");
        let same: Vec<&str> = known.iter().copied().filter(|name| name.ends_with(&last)).collect();
        let near = match same.as_slice() {
            [] => Some(nearest(&written, &known)).filter(|near| {
                let bare = |name: &str| name.trim_start_matches(PREFIX).to_owned();
                is_close(&bare(&written), &bare(near))
            }),
            same => Some(nearest(&written, same)),
        };
        let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
        Complaint::new(
            "no key of the configuration belongs to this variable",
            format!("{near}If it is not for Postrider, give it another name"),
        )
    }
}

/// The name in a table of names: one that is there, or a new one.
fn named(entries: &Entries, map: &MapShape, written: &str) -> Result<String, Complaint> {
    let upper = written.to_ascii_uppercase();
    let mut matching = entries.keys().filter(|name| segment(name) == upper);
    match (matching.next(), matching.next()) {
        (Some(name), None) => Ok(name.clone()),
        (Some(one), Some(other)) => Err(Complaint::new(
            format!("`{written}` may be the {} `{one}` or `{other}`", map.what),
            "change the value in the file",
        )),
        // Headers are written with dashes, and are the only names that are.
        (None, _) if map.placeholder == "HEADER" => {
            Ok(written.to_ascii_lowercase().replace('_', "-"))
        }
        (None, _) => Ok(written.to_ascii_lowercase()),
    }
}

/// All variables there may be, with the names that were written where names are free.
fn collect(shape: &Shape, prefix: &str, joint: &str, written: &[&str], out: &mut Vec<String>) {
    let rest = written.get(1..).unwrap_or_default();
    match shape {
        Shape::Leaf(_) => out.push(prefix.to_owned()),
        Shape::List(of) => {
            out.push(prefix.to_owned());
            if of.leaf().is_none() {
                collect(of, &format!("{prefix}__0"), "__", rest, out);
            }
        }
        Shape::Table(table) => {
            for key in table.keys {
                collect(
                    &key.shape,
                    &format!("{prefix}{joint}{}", segment(key.name)),
                    "__",
                    rest,
                    out,
                );
            }
        }
        Shape::Map(map) => {
            let name = written.first().copied().unwrap_or(map.placeholder).to_ascii_uppercase();
            collect(&map.of, &format!("{prefix}__{name}"), "__", rest, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_links_are_known() {
        for name in [
            "POSTRIDER_SERVICE_HOST",
            "POSTRIDER_PORT",
            "POSTRIDER_PORT_9464_TCP_ADDR",
            "POSTRIDER_CONSOLE_SERVICE_PORT_HTTP",
        ] {
            assert!(is_service_link(name), "{name}");
        }
        for name in ["POSTRIDER_STORE", "POSTRIDER_REPORT", "POSTRIDER_OBSERVE__X_PORT"] {
            assert!(!is_service_link(name), "{name}");
        }
    }
}
