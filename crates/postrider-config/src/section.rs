//! The macro that declares a table of the configuration: a field, its documentation, its default,
//! and its limits stand in one place.

use std::collections::BTreeMap;

use postrider_core::template::nearest;

use crate::key::{Key, Shape, TableShape};
use crate::node::{Node, Value};
use crate::path::{self, Path};
use crate::reading::{Complaint, Part, Reading};

/// Declares a table. Each field is `name: Type { option: value, … }` with the options of
/// [`Key`](crate::key::Key); the doc comment is the documentation everywhere.
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field:ident : $kind:ty { $($option:ident : $value:expr),* $(,)? }
            ),* $(,)?
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct $name {
            $( $(#[doc = $doc])* pub $field: $kind, )*
        }

        impl $name {
            const KEYS: &'static [$crate::key::Key] = &[
                $(
                    #[allow(clippy::needless_update, reason = "a key may have no options")]
                    $crate::key::Key {
                        $($option: $value,)*
                        ..$crate::key::Key::new(
                            stringify!($field),
                            concat!($($doc, "\n"),*),
                            <$kind as $crate::field::Field>::SHAPE,
                        )
                    },
                )*
            ];
            pub(crate) const TABLE: $crate::key::TableShape = $crate::key::TableShape {
                doc: concat!($($about, "\n"),*),
                keys: Self::KEYS,
            };
        }

        impl $crate::field::Field for $name {
            const SHAPE: $crate::key::Shape = $crate::key::Shape::Table(&Self::TABLE);

            fn read(
                node: Option<&$crate::node::Node>,
                key: &$crate::key::Key,
                path: &$crate::path::Path,
                reading: &mut $crate::reading::Reading,
            ) -> Self {
                let entries = node.and_then(|node| reading.open::<Self>(node, key, path));
                reading.refuse_unknown(entries, &Self::TABLE, path);
                let mut keys = Self::KEYS.iter();
                $( let $field = reading.field(entries, keys.next(), path); )*
                $name { $($field,)* }
            }

            fn list(
                &self,
                _key: &'static $crate::key::Key,
                path: &$crate::path::Path,
                out: &mut Vec<$crate::field::Listed>,
            ) {
                let mut keys = Self::KEYS.iter();
                $(
                    if let Some(key) = keys.next() {
                        self.$field.list(key, &path.key(key.name), out);
                    }
                )*
            }
        }
    };
}
pub(crate) use section;

type Entries<'a> = Option<&'a BTreeMap<String, Node>>;

impl Reading {
    /// The entries of a table.
    pub(crate) fn open<'a, T: crate::field::Field>(
        &mut self,
        node: &'a Node,
        key: &Key,
        path: &Path,
    ) -> Entries<'a> {
        if !path.is_root() {
            self.note(path, node);
        }
        match &node.value {
            Value::Table(entries) => Some(entries),
            _ => {
                self.mistake::<T>(node, key, path);
                None
            }
        }
    }

    /// Reads one field of a table.
    pub(crate) fn field<T: crate::field::Field>(
        &mut self,
        entries: Entries<'_>,
        key: Option<&Key>,
        path: &Path,
    ) -> T {
        let key = key.expect("invariant: a table has as many keys as fields");
        let node = entries.and_then(|entries| entries.get(key.name));
        T::read(node, key, &path.key(key.name), self)
    }

    /// Reports every key that the table does not have.
    pub(crate) fn refuse_unknown(&mut self, entries: Entries<'_>, table: &TableShape, path: &Path) {
        let Some(entries) = entries else { return };
        for (name, node) in entries {
            if table.keys.iter().any(|key| key.name == name) {
                continue;
            }
            // What stands there was never meant to be seen; it may be a secret under a wrong name.
            self.mask(node);
            if self.is_full() {
                self.refuse_beyond();
                continue;
            }
            self.refuse(&path.key(name), &node.place, Part::Key, unknown(name, table, path));
        }
    }
}

/// Longer names are no slips, and are not compared.
const NAME_MAX: usize = 64;

fn unknown(name: &str, table: &TableShape, path: &Path) -> Complaint {
    let shown: String = path::written(name).chars().take(NAME_MAX).collect();
    let message = if path.is_root() {
        format!("there is no key `{shown}`")
    } else {
        format!("`{}` has no key `{shown}`", path.heading())
    };
    let names: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
    let near = near(name, &names);
    let elsewhere = homes(name);
    let mut advice = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None if elsewhere.is_empty() => format!("known are {}", names.join(", ")),
        None => String::new(),
    };
    if !elsewhere.is_empty() {
        let space = if advice.is_empty() { "" } else { " " };
        advice.push_str(&format!("{space}`{shown}` is a key of {}", elsewhere.join(" and ")));
    }
    Complaint::new(message, advice)
}

/// The known name that was probably meant.
pub(crate) fn near<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    if written.len() > NAME_MAX {
        return None;
    }
    let folded = written.to_ascii_lowercase().replace('-', "_");
    Some(nearest(&folded, known)).filter(|near| is_close(&folded, near))
}

/// Whether one may be a slip for the other: they share at least half, at the ends.
pub(crate) fn is_close(written: &str, known: &str) -> bool {
    let shared = |a: &mut dyn Iterator<Item = (char, char)>| a.take_while(|(x, y)| x == y).count();
    let head = shared(&mut written.chars().zip(known.chars()));
    let tail = shared(&mut written.chars().rev().zip(known.chars().rev()));
    !known.is_empty() && 2 * (head + tail) >= written.chars().count().max(known.chars().count())
}

/// The tables that have a key of this name.
fn homes(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    search(&crate::config::Config::TABLE, &Path::default(), name, &mut found);
    found
}

fn search(table: &TableShape, path: &Path, name: &str, found: &mut Vec<String>) {
    for key in table.keys {
        if key.name == name {
            found.push(if path.is_root() { "the top".into() } else { format!("[{path}]") });
        }
        descend(&key.shape, &path.key(key.name), name, found);
    }
}

fn descend(shape: &Shape, path: &Path, name: &str, found: &mut Vec<String>) {
    match shape {
        Shape::Leaf(_) => {}
        Shape::Table(table) => search(table, path, name, found),
        Shape::Map(map) => descend(&map.of, &path.key(map.placeholder), name, found),
        Shape::List(of) => descend(of, path, name, found),
    }
}
