//! Arguments: a role, then pairs of `--name value`.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use postrider_e2e::Files;

/// What the parent asks for.
pub(crate) struct Args {
    role: String,
    named: BTreeMap<String, String>,
}

impl Args {
    pub(crate) fn read() -> Result<Args> {
        let mut words = std::env::args().skip(1);
        let role = words.next().ok_or_else(|| config("which role?".to_owned()))?;
        let mut named = BTreeMap::new();
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| config(format!("{name} of what?")))?;
            named.insert(name.trim_start_matches("--").to_owned(), value);
        }
        Ok(Args { role, named })
    }

    pub(crate) fn role(&self) -> &str {
        &self.role
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.named.get(name).map(String::as_str)
    }

    /// A number, or the default where none is given.
    pub(crate) fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        let Some(text) = self.text(name) else {
            return Ok(default);
        };
        text.parse().map_err(|_| config(format!("--{name} {text} is no number")))
    }

    pub(crate) fn millis(&self, name: &str, default: u64) -> Result<Duration> {
        self.number(name, default).map(Duration::from_millis)
    }

    pub(crate) fn says(&self, name: &str) -> bool {
        self.text(name) == Some("yes")
    }

    pub(crate) fn files(&self) -> Result<Files> {
        let folder = self.text("folder").ok_or_else(|| config("--folder is missing".to_owned()))?;
        Ok(Files::within(Path::new(folder)))
    }
}

pub(crate) fn config(message: String) -> Error {
    Error::new(ErrorKind::Config, "read arguments").message(message)
}
