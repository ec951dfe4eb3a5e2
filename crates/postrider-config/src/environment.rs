//! The environment, as it was handed in: the program's own, or a test's.

use std::collections::BTreeMap;
use std::fmt;

/// Variables with their values. `Debug` shows names alone.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, Option<String>>);

impl Environment {
    /// The variables of this process. Those whose names are not UTF-8 are left out: none of ours is.
    pub fn of_process() -> Environment {
        let pair = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()))
        };
        Environment(std::env::vars_os().filter_map(pair).collect())
    }

    /// The value of a variable; the inner `None` stands for one that is not UTF-8.
    pub(crate) fn get(&self, name: &str) -> Option<Option<&str>> {
        self.0.get(name).map(Option::as_deref)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Environment {
        let pairs = pairs.into_iter();
        Environment(pairs.map(|(name, value)| (name.into(), Some(value.into()))).collect())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}
