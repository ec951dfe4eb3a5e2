//! The effective values with where each comes from, and what changed between two configurations.
//!
//! Invariant: secrets stand here as references, and addresses without their users and queries.

use std::collections::BTreeMap;
use std::fmt;

use crate::config::Config;
use crate::key::Class;
use crate::load::Loaded;
use crate::problem::Origin;

/// A value that is in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EffectiveValue {
    /// The dotted key, like `relay.lease` or `destinations.partners.routes[0].topic`.
    pub key: String,
    /// The value as it would stand in the file; nothing if it is absent and has no default.
    pub value: Option<String>,
    /// Who wrote it.
    pub origin: Origin,
    /// What changing it means.
    pub class: Class,
}

/// A key whose value is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The dotted key.
    pub key: String,
    /// What it takes to have effect.
    pub class: Class,
    /// The value before, as it would stand in the file.
    pub old: Option<String>,
    /// The value now.
    pub new: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "(absent)".into());
        let (old, new) = (shown(&self.old), shown(&self.new));
        write!(f, "{}: {old} -> {new} [{}]", self.key, self.class.word())?;
        if self.class == Class::Definition {
            f.write_str(": not taken; run `postrider destinations apply --config FILE`")?;
        }
        Ok(())
    }
}

impl Loaded {
    /// Every value that is in effect, in the order of the reference.
    pub fn values(&self) -> Vec<EffectiveValue> {
        let listed = self.config.listed().into_iter();
        let value = |listed: crate::field::Listed| EffectiveValue {
            origin: self.reading.origin(&listed.path),
            key: listed.path.to_string(),
            value: listed.value,
            class: listed.key.class,
        };
        listed.map(value).collect()
    }
}

impl Config {
    /// What changed, key by key. Two addresses that differ only in what is not shown differ here
    /// too.
    pub fn diff(old: &Config, new: &Config) -> Vec<Change> {
        let table = |config: &Config| -> BTreeMap<crate::path::Path, crate::field::Listed> {
            config.listed().into_iter().map(|listed| (listed.path.clone(), listed)).collect()
        };
        let (before, mut after) = (table(old), table(new));
        let mut changes = Vec::new();
        for (path, old) in before {
            let new = after.remove(&path);
            let class = new.as_ref().map_or(old.key, |new| new.key).class;
            let same = new.as_ref().is_some_and(|new| new.exact == old.exact);
            if !same {
                let new = new.and_then(|new| new.value);
                changes.push(Change { key: path.to_string(), class, old: old.value, new });
            }
        }
        let added = after.into_iter().map(|(path, new)| Change {
            key: path.to_string(),
            class: new.key.class,
            old: None,
            new: new.value,
        });
        changes.extend(added);
        changes
    }
}
