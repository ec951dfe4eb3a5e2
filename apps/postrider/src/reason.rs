//! Who changes something, and why: the flags behind a row of the audit table.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use postrider_core::operate::Note;

use crate::failure::{Exit, Failure};

/// The name that stands in the audit where no flag gives one.
const USER_VARIABLE: &str = "POSTRIDER_USER";

/// Who, and why if they say so.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "For the audit")]
pub(crate) struct MayGiveReason {
    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Who; else $POSTRIDER_USER, else user@host
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
}

/// Who and why.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "For the audit")]
pub(crate) struct MustGiveReason {
    /// Why, for the audit
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    reason: String,
    /// Who; else $POSTRIDER_USER, else user@host
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
}

impl MayGiveReason {
    /// For the audit.
    ///
    /// # Errors
    /// What is wrong with the name or the reason.
    pub(crate) fn note(&self) -> Result<Note, Failure> {
        note(self.who.as_deref(), self.reason.as_deref().unwrap_or_default())
    }
}

impl MustGiveReason {
    /// For the audit.
    ///
    /// # Errors
    /// What is wrong with the name or the reason.
    pub(crate) fn note(&self) -> Result<Note, Failure> {
        note(self.who.as_deref(), &self.reason)
    }
}

fn note(who: Option<&str>, why: &str) -> Result<Note, Failure> {
    let who = who.map_or_else(somebody, str::to_owned);
    Note::new(who, why.trim()).map_err(|error| {
        Failure::from(error)
            .advice("Nothing was changed. Correct --who or --reason.")
            .exit_as(Exit::Usage)
    })
}

/// The person as the system knows them.
fn somebody() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(name) = variable(USER_VARIABLE) {
        return name;
    }
    let user = variable("USER").or_else(|| variable("LOGNAME"));
    let user = user.unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{user}@{host}")
}
