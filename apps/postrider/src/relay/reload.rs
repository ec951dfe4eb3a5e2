//! SIGHUP: reads the configuration again, and exchanges what may be exchanged while events flow.
//!
//! Invariant: a reload does everything or nothing. A configuration that is wrong, or that changes a
//! definition, leaves the relay as it was.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use postrider_config::{Change, Class, Config, Environment, Needs, Secret, Secrets};
use postrider_core::DestinationId;

use crate::certificate::{self, Ends};
use crate::failure::Failure;
use crate::relay::brokers;
use crate::relay::switch::Switch;
use crate::serve::Token;
use crate::{config, logs, terminal};

/// What a reload compares with, and changes.
pub(crate) struct Reloader {
    pub(crate) path: Option<PathBuf>,
    pub(crate) present: Config,
    pub(crate) secrets: Secrets,
    pub(crate) switches: BTreeMap<DestinationId, Arc<Switch>>,
    /// The listener's token.
    pub(crate) token: Token,
    /// When our certificates end.
    pub(crate) ends: Ends,
    /// Whether the configuration says how much is logged, and no flag does.
    pub(crate) log: bool,
    /// Whether others can reach the listener, so that it must have a token.
    pub(crate) listens_openly: bool,
}

impl Reloader {
    /// Reads the configuration again, and says what came of it.
    pub(crate) fn reload(&mut self) {
        match self.exchange() {
            Ok(said) => said.iter().for_each(|line| terminal::note(line)),
            Err(failure) => {
                terminal::note(&failure.render(terminal::style()));
                terminal::note("the reload changed nothing; the relay goes on as it was");
            }
        }
    }

    fn exchange(&mut self) -> Result<Vec<String>, Failure> {
        let environment = Environment::of_process();
        let loaded = config::load(self.path.as_deref(), &environment, Needs::RELAY)?;
        let secrets = config::secrets(&loaded, &environment)?;
        let changes = Config::diff(&self.present, &loaded.config);
        refuse_definitions(&changes, self.path.as_deref())?;
        let token = loaded.config.observe.token.as_ref().and_then(|token| secrets.get(token));
        if self.listens_openly && token.is_none() {
            return Err(Failure::config(
                "the listener can be reached from outside, and needs a token",
            ));
        }
        // All are opened before the first is exchanged.
        let mut opened = brokers::open_all(&loaded.config, &secrets)?;
        for (id, switch) in &self.switches {
            if let Some(broker) = opened.remove(id) {
                switch.exchange(broker);
            }
        }
        self.token.exchange(token.map(Secret::expose));
        if self.log {
            logs::change(logs::level(loaded.config.observe.log))?;
        }
        let mut said: Vec<String> = changes.iter().map(describe).collect();
        if secrets != self.secrets {
            said.push("secrets: read anew, and changed".to_owned());
        }
        if said.is_empty() {
            said.push(
                "reloaded: no key and no secret has changed; certificates were read again"
                    .to_owned(),
            );
        }
        self.present = loaded.config;
        self.secrets = secrets;
        self.learn_ends();
        Ok(said)
    }

    /// Reads when our certificates end, by the present configuration.
    pub(crate) fn learn_ends(&self) {
        self.ends.learn(certificate::of_destinations(&self.present));
    }
}

fn describe(change: &Change) -> String {
    match change.class {
        Class::Restart => format!("reloaded: {change}; it takes effect at the next start"),
        _ => format!("reloaded: {change}"),
    }
}

fn refuse_definitions(changes: &[Change], path: Option<&std::path::Path>) -> Result<(), Failure> {
    let keys: Vec<&str> = changes
        .iter()
        .filter(|change| change.class == Class::Definition)
        .map(|change| &*change.key)
        .collect();
    if keys.is_empty() {
        return Ok(());
    }
    let file = path.map_or_else(|| "FILE".to_owned(), |path| path.display().to_string());
    Err(Failure::config(format!(
        "the definition of a destination has changed: {}",
        keys.join(", ")
    ))
    .code(postrider_core::Code::DefinitionOutdated)
    .advice(format!(
        "A definition is shared by all relays of the store, and each keeps the one that it started \
             with. Run `postrider destinations apply --config {file}`, if that is not done, and start \
             this relay again."
    )))
}
