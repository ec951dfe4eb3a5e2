//! Reads the configuration for a command, and says what is wrong with it.

use std::path::Path;

use postrider_config::{Environment, Loaded, Loader, Needs, Problem, Secrets};

use crate::failure::Failure;
use crate::terminal;

/// Variables of this program that are no keys of the configuration.
const OURS: [&str; 3] = ["POSTRIDER_CONFIG", "POSTRIDER_USER", "POSTRIDER_LOG"];

/// Reads a configuration, if one is named, and the environment over it. Warnings are said at once.
///
/// # Errors
/// A configuration failure; every problem was said before.
pub(crate) fn load(
    path: Option<&Path>,
    environment: &Environment,
    needs: Needs,
) -> Result<Loaded, Failure> {
    let loader = Loader::new(environment).reserve(&OURS).needs(needs);
    let loader = match path {
        Some(path) => loader.file(path),
        None => loader,
    };
    let loaded = loader.load().map_err(|problems| refuse(&problems))?;
    warn(&loaded.warnings);
    Ok(loaded)
}

/// Reads the secrets that a configuration refers to.
///
/// # Errors
/// A configuration failure; every problem was said before.
pub(crate) fn secrets(loaded: &Loaded, environment: &Environment) -> Result<Secrets, Failure> {
    let (secrets, warnings) = loaded.resolve(environment).map_err(|problems| refuse(&problems))?;
    warn(&warnings);
    Ok(secrets)
}

fn warn(warnings: &[Problem]) {
    for warning in warnings {
        terminal::note(&format!("warning: {warning}"));
    }
}

fn refuse(problems: &[Problem]) -> Failure {
    for problem in problems {
        terminal::note(&problem.to_string());
    }
    let count = match problems.len() {
        1 => "is one problem".to_owned(),
        more => format!("are {more} problems"),
    };
    Failure::config(format!("there {count} with the configuration"))
}
