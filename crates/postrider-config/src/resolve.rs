//! Reads the secrets that a configuration refers to, all before anything is connected to.
//!
//! Invariant: what cannot be read is a problem with the place of the reference; nothing of a
//! secret's text is in it.

use std::collections::BTreeMap;
use std::fmt;

use crate::address::Address;
use crate::config::Config;
use crate::environment::Environment;
use crate::load::Loaded;
use crate::problem::Problem;
use crate::reading::Complaint;
use crate::secret::{Secret, SecretRef};

/// Secrets by their references. `Debug` shows references alone. Two are equal if all texts are, so
/// that a reload knows whether a secret changed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<SecretRef, Secret>);

impl Secrets {
    /// The text behind a reference of the configuration.
    pub fn get(&self, reference: &SecretRef) -> Option<&Secret> {
        self.0.get(reference)
    }

    /// Those alone that a configuration refers to.
    #[must_use]
    pub fn of(&self, config: &Config) -> Secrets {
        let named = config.listed().into_iter().flat_map(|listed| listed.secrets);
        Secrets(named.filter_map(|it| Some((it.clone(), self.0.get(&it)?.clone()))).collect())
    }

    /// The whole of an address of the configuration: as it is written out, or as it was read.
    pub fn address<'a>(&'a self, address: &'a Address) -> Option<&'a str> {
        match address {
            Address::Literal(text) => Some(text),
            Address::Reference(reference) => self.get(reference).map(Secret::expose),
        }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl Loaded {
    /// Reads every secret of the configuration, and returns them with warnings about files that
    /// others can read.
    ///
    /// # Errors
    /// A problem for each reference that leads nowhere, with its place in the configuration.
    pub fn resolve(
        &self,
        environment: &Environment,
    ) -> Result<(Secrets, Vec<Problem>), Vec<Problem>> {
        let mut secrets = BTreeMap::new();
        let (mut warnings, mut problems) = (Vec::new(), Vec::new());
        for listed in self.config.listed() {
            for reference in listed.secrets {
                if secrets.contains_key(&reference) {
                    continue;
                }
                let problem = |message, advice: &str| {
                    self.reading.problem_at(&listed.path, Complaint::new(message, advice))
                };
                match reference.resolve(environment) {
                    Ok((secret, warning)) => {
                        let advice = "chmod 600, or 400, closes it to others";
                        warnings.extend(warning.map(|message| problem(message, advice)));
                        secrets.insert(reference, secret);
                    }
                    Err(why) => {
                        let advice =
                            "nothing was connected to; provide it, or correct the reference";
                        problems.push(problem(format!("`{}`: {why}", listed.path), advice));
                    }
                }
            }
        }
        if problems.is_empty() { Ok((Secrets(secrets), warnings)) } else { Err(problems) }
    }
}
