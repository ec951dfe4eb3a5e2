//! Filters and pages as flags: which rows a command is about, and how many it shows.

use clap::Args;
use postrider_core::operate::{Filter, Listed, PageRequest, Status};
use postrider_core::{DestinationId, EventId, Glob, Result, TargetUrl, Timestamp};
use serde::Serialize;

use crate::age::{Moment, moment};
use crate::failure::{Exit, Failure};
use crate::output::{Format, Out};
use crate::table::Tabular;
use crate::terminal;

/// Rows that are read at once where all are wanted: a few megabytes at most.
pub(crate) const CHUNK: u32 = 1_000;

/// Which events. All conditions that are given must hold.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which events (all that is given must hold)")]
pub(crate) struct FilterArgs {
    /// Exactly this one
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<EventId>,
    /// Of this ordering key
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Of a type, like 'order.*'
    #[arg(long = "type", value_name = "GLOB")]
    pub(crate) event_type: Option<String>,
    /// Of an aggregate type
    #[arg(long, value_name = "GLOB")]
    pub(crate) aggregate_type: Option<String>,
    /// Of a tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// At a destination
    #[arg(long, value_name = "NAME")]
    pub(crate) destination: Option<DestinationId>,
    /// In a state, or in one of several: pending,retrying
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status)]
    pub(crate) status: Vec<Status>,
    /// Created at or after: 2026-11-21T10:00:00Z, or an age like 2h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) since: Option<Moment>,
    /// Created before
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) until: Option<Moment>,
    /// Whose reason or last answer contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// With at least so many attempts
    #[arg(long, value_name = "N")]
    pub(crate) attempts: Option<u32>,
}

fn status(text: &str) -> std::result::Result<Status, String> {
    text.parse().map_err(|_| {
        let names = Status::ALL.map(Status::as_str);
        let nearest = postrider_core::template::nearest(text, &names);
        format!("did you mean `{nearest}`? There are {}", names.join(", "))
    })
}

impl FilterArgs {
    /// The filter at a moment.
    pub(crate) fn at(&self, now: Timestamp) -> Filter {
        let mut filter = Filter::default();
        filter.id = self.id;
        filter.key = self.key.clone();
        filter.event_type = self.event_type.clone().map(Glob::new);
        filter.aggregate_type = self.aggregate_type.clone().map(Glob::new);
        filter.tenant = self.tenant.clone();
        filter.destination = self.destination.clone();
        filter.status = self.status.clone();
        filter.since = self.since.map(|moment| moment.at(now));
        filter.until = self.until.map(|moment| moment.at(now));
        filter.error = self.error.clone();
        filter.attempts_min = self.attempts;
        filter
    }
}

/// Which part of a list.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "How many")]
pub(crate) struct PageArgs {
    /// At most so many rows, up to 10000
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(PageRequest::LIMIT_MAX)))]
    pub(crate) limit: u32,
    /// After the page that ended with this
    #[arg(long, value_name = "TOKEN")]
    pub(crate) after: Option<String>,
    /// Everything, page by page
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// Writes a list: one page and the command for the next, or everything.
///
/// # Errors
/// What the store says, and what the operating system says of standard output.
pub(crate) async fn list<V, S: From<V> + Tabular + Serialize>(
    mut out: Out,
    args: &PageArgs,
    mut fetch: impl AsyncFnMut(&PageRequest) -> Result<Listed<V>>,
) -> std::result::Result<Exit, Failure> {
    let limit = if args.all { CHUNK } else { args.limit };
    let mut page = PageRequest { after: args.after.clone(), limit };
    loop {
        let listed = fetch(&page).await?;
        out.page(listed.rows.into_iter().map(S::from).collect())?;
        match listed.next {
            Some(next) if args.all => page.after = Some(next),
            next => {
                out.end(next.as_deref())?;
                if let Some(next) = next {
                    terminal::note(&format!("there is more:\n  {}", next_command(&next)));
                } else if out.is_empty() && out.format() == Format::Table {
                    terminal::note("nothing was found");
                }
                return Ok(Exit::Success);
            }
        }
    }
}

/// The command that was given, for the page after this one.
fn next_command(token: &str) -> String {
    command_for(std::env::args().skip(1), token)
}

fn command_for(args: impl IntoIterator<Item = String>, token: &str) -> String {
    let mut words = vec!["postrider".to_owned()];
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == "--after" {
            args.next();
        } else if !arg.starts_with("--after=") {
            words.push(quoted(&without_secret(arg)));
        }
    }
    words.push("--after".to_owned());
    words.push(quoted(token));
    words.join(" ")
}

/// An address with a secret in it is not repeated: whoever has it, has it in a variable or a file.
pub(crate) fn without_secret(arg: String) -> String {
    let (flag, value) = arg.split_once('=').unwrap_or(("", &arg));
    let secret = value.contains("://")
        && value.parse::<TargetUrl>().is_ok_and(|address| address.to_string() != value);
    match (secret, flag) {
        (false, _) => arg,
        (true, "") => "URL".to_owned(),
        (true, flag) => format!("{flag}=URL"),
    }
}

/// As a shell takes it for one word.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(args: &[&str], token: &str) -> String {
        command_for(args.iter().map(|arg| (*arg).to_owned()), token)
    }

    #[test]
    fn the_next_command_is_the_same_with_another_token() {
        assert_eq!(
            command(&["dead", "ls", "--type", "order.*", "--after", "a:1"], "b:2"),
            "postrider dead ls --type 'order.*' --after b:2"
        );
        assert_eq!(
            command(&["audit", "--after=1", "x'y"], "2"),
            "postrider audit 'x'\\''y' --after 2"
        );
    }

    #[test]
    fn a_secret_is_not_repeated() {
        for args in
            [&["--store", "postgres://a:hunter2@db/x"][..], &["--store=pg://a:hunter2@db/x"]]
        {
            let shown = command(args, "1");
            assert!(shown.contains("URL") && !shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn nothing_given_is_everything() {
        assert!(FilterArgs::default().at(Timestamp::now()).is_everything());
        let some = FilterArgs { tenant: Some("acme".into()), ..FilterArgs::default() };
        assert!(!some.at(Timestamp::now()).is_everything());
    }
}
