//! The store's statements: one file each under `sql/`, named by what they do.

#[cfg(feature = "store")]
use std::collections::HashMap;
#[cfg(feature = "store")]
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(feature = "store")]
use crate::Names;
#[cfg(feature = "store")]
use crate::own::Rendering;

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
#[cfg(feature = "store")]
#[derive(Debug)]
pub(crate) struct Texts {
    names: Names,
    /// What stands in the places of an application's own table.
    own: std::sync::OnceLock<Rendering>,
    rendered: Mutex<HashMap<&'static str, Arc<str>>>,
}

#[cfg(feature = "store")]
impl Texts {
    pub(crate) fn new(names: Names) -> Texts {
        Texts { names, own: std::sync::OnceLock::new(), rendered: Mutex::default() }
    }

    /// Says how an application's own table is spoken of. The first to say so is heard.
    pub(crate) fn map_own(&self, own: Rendering) {
        _ = self.own.set(own);
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn text(&self, statement: &Sql) -> Arc<str> {
        let mut rendered = self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
        let text = rendered.entry(statement.name).or_insert_with(|| {
            let text = self.names.render(statement.text);
            if let Some(own) = self.own.get() {
                return Arc::from(own.fill(&text));
            }
            Arc::from(text)
        });
        Arc::clone(text)
    }
}
