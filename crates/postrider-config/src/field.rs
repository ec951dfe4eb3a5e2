//! How a field of the configuration is read from the tree and listed again: single values, optional
//! ones, lists, and tables with names.
//!
//! Invariant: reading never stops at the first problem. What cannot be understood is reported and
//! replaced by a placeholder, and the path counts as spoiled.

use std::collections::BTreeMap;
use std::fmt;

use crate::key::{Key, Leaf, MapShape, Shape};
use crate::node::{Node, Place, Value};
use crate::path::Path;
use crate::reading::{Complaint, Part, Reading};
use crate::secret::SecretRef;

/// A value of the configuration, listed.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) path: Path,
    /// As it would stand in the file; nothing if it is absent and has no default.
    pub(crate) value: Option<String>,
    /// The same with what is not to be shown: for comparison alone.
    pub(crate) exact: Option<String>,
    pub(crate) key: &'static Key,
    pub(crate) secrets: Vec<SecretRef>,
}

/// What stands behind a key.
pub(crate) trait Field: Sized {
    const SHAPE: Shape;

    fn read(node: Option<&Node>, key: &Key, path: &Path, reading: &mut Reading) -> Self;

    fn list(&self, key: &'static Key, path: &Path, out: &mut Vec<Listed>);

    /// The value and its secret, if it is a single value.
    fn single(&self) -> Option<(String, Option<SecretRef>)> {
        None
    }
}

/// A single value.
pub(crate) trait Scalar: Sized {
    const LEAF: Leaf;

    /// Reads what is there. `None` stands for a value of the wrong type.
    fn parse(node: &Node, key: &Key) -> Option<Result<Self, Complaint>>;

    /// As it would stand in the environment.
    fn shown(&self) -> String;

    /// The same with what is not to be shown.
    fn exact(&self) -> String {
        self.shown()
    }

    /// What stands in for a value that could not be read.
    fn placeholder() -> Self;

    fn secret(&self) -> Option<&SecretRef> {
        None
    }

    /// Whether an excerpt may show what was read.
    fn is_open(&self) -> bool {
        !Self::LEAF.secret || self.secret().is_some()
    }
}

impl<T: Scalar> Field for T {
    const SHAPE: Shape = Shape::Leaf(&T::LEAF);

    fn read(node: Option<&Node>, key: &Key, path: &Path, reading: &mut Reading) -> T {
        let Some(node) = node else {
            return absent(key, path, reading);
        };
        reading.note(path, node);
        let complaint = match T::parse(node, key) {
            Some(Ok(value)) => {
                if !value.is_open() {
                    reading.mask(node);
                }
                return value;
            }
            Some(Err(complaint)) if T::LEAF.secret || !is_address(node) => complaint,
            Some(Err(_)) | None => mistaken::<T>(node, key),
        };
        // A list or a table does not belong here; it may be one that holds secrets elsewhere.
        if T::LEAF.secret || is_address(node) || node.holds_others() {
            reading.mask(node);
        }
        reading.refuse(path, &node.place, Part::Value, complaint);
        T::placeholder()
    }

    fn list(&self, key: &'static Key, path: &Path, out: &mut Vec<Listed>) {
        out.push(Listed {
            path: path.clone(),
            value: Some(T::LEAF.literal(&self.shown())),
            exact: Some(self.exact()),
            key,
            secrets: self.secret().cloned().into_iter().collect(),
        });
    }

    fn single(&self) -> Option<(String, Option<SecretRef>)> {
        Some((T::LEAF.literal(&self.shown()), self.secret().cloned()))
    }
}

/// The default, or what stands in for a key that must be given.
fn absent<T: Scalar>(key: &Key, path: &Path, reading: &mut Reading) -> T {
    if !key.default.is_empty() {
        let default = Node::new(Value::Loose(key.default.to_owned()), Place::Nowhere);
        if let Some(Ok(value)) = T::parse(&default, key) {
            return value;
        }
    }
    if key.required {
        reading.miss(key, path);
    }
    T::placeholder()
}

/// Whether it looks like an address, which may hold a secret wherever it stands.
fn is_address(node: &Node) -> bool {
    node.text().is_some_and(|text| text.contains("://"))
}

fn mistaken<T: Scalar>(node: &Node, key: &Key) -> Complaint {
    let found = if T::LEAF.secret { node.found_kind().to_owned() } else { node.found() };
    Complaint::new(
        format!("`{}` is {}, not {found}", key.name, T::LEAF.expected),
        format!("write {} = {}", key.name, key.shown_example()),
    )
}

impl<T: Field> Field for Option<T> {
    const SHAPE: Shape = T::SHAPE;

    fn read(node: Option<&Node>, key: &Key, path: &Path, reading: &mut Reading) -> Option<T> {
        node.map(|node| T::read(Some(node), key, path, reading))
    }

    fn list(&self, key: &'static Key, path: &Path, out: &mut Vec<Listed>) {
        match self {
            Some(value) => value.list(key, path, out),
            None if T::SHAPE.leaf().is_some() => {
                let (value, exact, secrets) = (None, None, Vec::new());
                out.push(Listed { path: path.clone(), value, exact, key, secrets });
            }
            None => {}
        }
    }
}

impl<T: Field> Field for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);

    fn read(node: Option<&Node>, key: &Key, path: &Path, reading: &mut Reading) -> Vec<T> {
        let Some(node) = node else { return Vec::new() };
        reading.note(path, node);
        let Value::List(items) = &node.value else {
            reading.mistake::<Self>(node, key, path);
            return Vec::new();
        };
        reading.count(items.len(), node, key, path);
        let items = items.iter().enumerate();
        items.map(|(n, item)| T::read(Some(item), key, &path.index(n), reading)).collect()
    }

    fn list(&self, key: &'static Key, path: &Path, out: &mut Vec<Listed>) {
        if T::SHAPE.leaf().is_none() {
            for (index, item) in self.iter().enumerate() {
                item.list(key, &path.index(index), out);
            }
            return;
        }
        let singles: Vec<(String, Option<SecretRef>)> =
            self.iter().filter_map(Field::single).collect();
        let values: Vec<&str> = singles.iter().map(|(value, _)| value.as_str()).collect();
        let value = Some(format!("[{}]", values.join(", ")));
        let secrets = singles.iter().filter_map(|(_, secret)| secret.clone()).collect();
        out.push(Listed { path: path.clone(), exact: value.clone(), value, key, secrets });
    }
}

/// A name that the writer of the file chooses.
pub(crate) trait Name: Ord + Sized {
    /// What it names, like `destination`.
    const WHAT: &'static str;
    /// What stands for it in documentation.
    const PLACEHOLDER: &'static str;
    /// The names that are taken, as a regular expression.
    const PATTERN: &'static str;

    fn parse(text: &str) -> Result<Self, Complaint>;

    fn text(&self) -> &str;
}

impl<N: Name, T: Field> Field for BTreeMap<N, T> {
    const SHAPE: Shape = Shape::Map(&MapShape {
        what: N::WHAT,
        placeholder: N::PLACEHOLDER,
        pattern: N::PATTERN,
        of: T::SHAPE,
    });

    fn read(node: Option<&Node>, key: &Key, path: &Path, reading: &mut Reading) -> Self {
        let mut map = BTreeMap::new();
        let Some(node) = node else { return map };
        reading.note(path, node);
        let Value::Table(entries) = &node.value else {
            reading.mistake::<Self>(node, key, path);
            return map;
        };
        reading.count(entries.len(), node, key, path);
        for (text, entry) in entries {
            let path = path.key(text);
            let value = T::read(Some(entry), key, &path, reading);
            match N::parse(text) {
                Ok(name) => {
                    map.insert(name, value);
                }
                Err(complaint) => reading.refuse(&path, &entry.place, Part::Key, complaint),
            }
        }
        map
    }

    fn list(&self, key: &'static Key, path: &Path, out: &mut Vec<Listed>) {
        for (name, value) in self {
            value.list(key, &path.key(name.text()), out);
        }
    }
}

impl Reading {
    /// Reports a key that must be given and is not, at the table where it belongs.
    fn miss(&mut self, key: &Key, path: &Path) {
        // A table that is something else was reported as a whole.
        if !self.is_read(path) {
            return;
        }
        let table = path.parent();
        let place = self.place_around(&table);
        let example = key.shown_example();
        let advice = match place {
            Place::File { .. } => format!("write {} = {example}", key.name),
            _ => format!("set {}", path.variable()),
        };
        let message = if table.is_root() {
            format!("`{}` is missing", key.name)
        } else {
            format!("`{}` is missing in `{table}`", key.name)
        };
        self.refuse(path, &place, Part::Key, Complaint::new(message, advice));
    }

    /// Reports more entries than a list or a table takes.
    fn count(&mut self, entries: usize, node: &Node, key: &Key, path: &Path) {
        if let Some(max) = key.max.parse().ok().filter(|max| entries > *max) {
            let message = format!("`{}` has {entries} entries; at most {max}", key.name);
            let advice =
                format!("leave {} of them out: those that are needed least", entries - max);
            self.refuse(path, &node.place, Part::Value, Complaint::new(message, advice));
        }
    }

    /// Reports a list or a table that is something else.
    pub(crate) fn mistake<T: Field>(&mut self, node: &Node, key: &Key, path: &Path) {
        // The value does not matter to the message, and may be a secret in the wrong place.
        self.mask(node);
        let message = format!("`{path}` is {}, not {}", T::SHAPE.expected(), node.found_kind());
        let advice = match T::SHAPE {
            Shape::List(Shape::Leaf(leaf)) => {
                format!("write {} = [{}]", key.name, leaf.literal(leaf.example))
            }
            Shape::List(_) => format!("write [[{}]] above its keys", path.heading()),
            _ => format!("write [{}] above its keys", path.heading()),
        };
        self.refuse(path, &node.place, Part::Value, Complaint::new(message, advice));
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
