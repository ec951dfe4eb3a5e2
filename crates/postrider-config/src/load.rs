//! From a file and an environment to a configuration, or to everything that is wrong with it.
//!
//! Invariant: nothing is read but the file and the variables that were handed in: no secret is
//! resolved, nothing is connected to.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path as FilePath, PathBuf};

use crate::broker;
use crate::check;
use crate::config::Config;
use crate::environment::Environment;
use crate::field::{Field, Listed};
use crate::key::Key;
use crate::node::{self, Node, Place, Value};
use crate::overlay;
use crate::path::Path;
use crate::problem::Problem;
use crate::reading::Reading;
use crate::source::Source;
use crate::syntax;

/// What stands around everything.
static ROOT: Key = Key::new("configuration", "", Config::SHAPE);

/// A configuration file may be so large: a thousand endpoints need a quarter of it.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What a command cannot do without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needs {
    /// A store.
    pub store: bool,
    /// At least one destination.
    pub destinations: bool,
    /// At least one consumer.
    pub consumers: bool,
}

impl Needs {
    /// Nothing: for `config check`.
    pub const NOTHING: Needs = Needs { store: false, destinations: false, consumers: false };
    /// What a relay needs.
    pub const RELAY: Needs = Needs { store: true, destinations: true, consumers: false };
    /// What a sidecar needs.
    pub const CONSUME: Needs = Needs { store: false, destinations: false, consumers: true };
}

/// How a configuration is read.
///
/// ```
/// use postrider_config::{Environment, Loader};
/// let environment: Environment =
///     [("POSTRIDER_STORE", "sqlite://shop.db"), ("POSTRIDER_RELAY__LEASE", "20s")]
///         .into_iter()
///         .collect();
/// let loaded = Loader::new(&environment).load().unwrap();
/// assert_eq!(loaded.config.relay.lease.as_secs(), 20);
/// ```
#[derive(Clone, Debug)]
pub struct Loader<'a> {
    environment: &'a Environment,
    file: Option<PathBuf>,
    text: Option<String>,
    reserved: Vec<String>,
    needs: Needs,
}

/// A configuration that was read, with where its values come from.
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What may not be meant.
    pub warnings: Vec<Problem>,
    pub(crate) reading: Reading,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(f)
    }
}

/// What an empty file and an empty environment give: every default, no store, no destination.
///
/// ```
/// let config = postrider_config::Config::default();
/// assert_eq!(config.relay.lease.as_secs(), 15);
/// assert!(config.store.is_none() && config.destinations.is_empty());
/// ```
impl Default for Config {
    fn default() -> Config {
        Config::read(None, &ROOT, &Path::default(), &mut Reading::default())
    }
}

impl Config {
    /// Reads a file, if one is named, and the environment over it.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the file. [`Loader`] takes more wishes.
    pub fn load(
        file: Option<&FilePath>,
        environment: &Environment,
    ) -> Result<Loaded, Vec<Problem>> {
        let loader = Loader::new(environment);
        match file {
            Some(path) => loader.file(path).load(),
            None => loader.load(),
        }
    }

    pub(crate) fn listed(&self) -> Vec<Listed> {
        let mut listed = Vec::new();
        self.list(&ROOT, &Path::default(), &mut listed);
        let idle = self.idle();
        listed.retain(|listed| !idle.iter().any(|path| path.holds(&listed.path)));
        listed
    }

    /// Tables and keys without a meaning where they are: of another kind than the destination is, and of
    /// delivery for routes that drop.
    fn idle(&self) -> Vec<Path> {
        let mut idle = Vec::new();
        for (id, destination) in &self.destinations {
            let at = Path::of("destinations").key(id.as_str());
            let others = broker::ALL.iter().filter(|shape| shape.kind != destination.kind);
            let tables = others.flat_map(|shape| shape.tables);
            idle.extend(tables.map(|(name, _)| at.key(name)));
            for (index, route) in destination.routes.iter().enumerate() {
                let at = at.key("routes").index(index);
                if route.drop {
                    idle.extend(["topic", "format", "dead_key", "retry"].map(|name| at.key(name)));
                }
            }
        }
        for (name, consumer) in &self.consume {
            let at = Path::of("consume").key(name.as_str());
            let sources = broker::ALL.iter().filter_map(|shape| shape.source.as_ref());
            let others = sources.filter(|source| consumer.is_elsewhere(source.schemes));
            let tables = others.filter_map(|source| source.table);
            idle.extend(tables.map(|(name, _)| at.key(name)));
        }
        idle
    }
}

impl<'a> Loader<'a> {
    /// Reads the environment alone, and needs nothing.
    pub fn new(environment: &'a Environment) -> Loader<'a> {
        Loader { environment, file: None, text: None, reserved: Vec::new(), needs: Needs::NOTHING }
    }

    /// Reads a file as well.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Loader<'a> {
        self.file = Some(path.into());
        self
    }

    /// Reads this text in place of the file's, under the file's name.
    #[must_use]
    pub fn text(mut self, name: impl Into<PathBuf>, text: impl Into<String>) -> Loader<'a> {
        self.file = Some(name.into());
        self.text = Some(text.into());
        self
    }

    /// Passes over these variables, beside [`RESERVED`](crate::RESERVED).
    #[must_use]
    pub fn reserve(mut self, names: &[&str]) -> Loader<'a> {
        self.reserved.extend(names.iter().map(|name| (*name).to_owned()));
        self
    }

    /// Refuses a configuration without these.
    #[must_use]
    pub fn needs(mut self, needs: Needs) -> Loader<'a> {
        self.needs = needs;
        self
    }

    /// Reads, and checks.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the file.
    pub fn load(self) -> Result<Loaded, Vec<Problem>> {
        let source = self.source()?;
        let mut root = node::of_document(&syntax::parse(&source)?);
        let mut reading = Reading::new(source);
        overlay::apply(&mut root, self.environment, &self.reserved, &mut reading);
        let root = Node::new(Value::Table(root), Place::Nowhere);
        let config = Config::read(Some(&root), &ROOT, &Path::default(), &mut reading);
        for listed in config.listed() {
            if let Some(value) = listed.value {
                reading.shown.insert(listed.path, value);
            }
        }
        check::examine(&config, self.needs, &mut reading);
        let problems = reading.problems();
        if problems.is_empty() {
            Ok(Loaded { config, warnings: reading.warnings(), reading })
        } else {
            Err(problems)
        }
    }

    fn source(&self) -> Result<Source, Vec<Problem>> {
        let Some(path) = &self.file else { return Ok(Source::default()) };
        let name = path.display().to_string();
        let text = match &self.text {
            Some(text) if text.len() as u64 > FILE_BYTES_MAX => Err(too_large()),
            Some(text) => Ok(text.clone()),
            None => read(path),
        };
        match text {
            Ok(text) => Ok(Source::new(name, text)),
            Err(why) => Err(vec![Problem::of_file(
                &name,
                format!("the configuration cannot be read: {why}"),
                "nothing was started; check the path and its permissions",
            )]),
        }
    }
}

fn too_large() -> String {
    format!("it has more than {FILE_BYTES_MAX} bytes")
}

fn read(path: &FilePath) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large());
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })
}
