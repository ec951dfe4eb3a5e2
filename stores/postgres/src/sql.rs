//! The store's statements: one file each under `sql/`, named by what they do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Names;

/// A statement as it stands in its file, with placeholders for the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sql {
    /// Its file under `sql/`, without the ending.
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// A statement by its file under `sql/`, without the ending: `sql!("lease/renew")`.
macro_rules! sql {
    ($name:literal) => {
        $crate::sql::Sql {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $name, ".sql")),
        }
    };
}
pub(crate) use sql;

/// The statements with the names in their places, each rendered once.
#[derive(Debug)]
pub(crate) struct Texts {
    names: Names,
    rendered: Mutex<HashMap<&'static str, Arc<str>>>,
}

impl Texts {
    pub(crate) fn new(names: Names) -> Texts {
        Texts { names, rendered: Mutex::default() }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn text(&self, statement: &Sql) -> Arc<str> {
        let mut rendered = self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
        let text = rendered
            .entry(statement.name)
            .or_insert_with(|| Arc::from(self.names.render(statement.text)));
        Arc::clone(text)
    }
}
