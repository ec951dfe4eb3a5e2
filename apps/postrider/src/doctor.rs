//! `postrider doctor`: looks for what will go wrong, and says what to do about it.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use postrider_config::{Environment, Kind, Needs};
use postrider_core::operate::{Finding, Level, findings};
use postrider_core::{Code, Error, ErrorKind, Operator, Timestamp};

use crate::crowd::{Crowd, crowds};
use crate::failure::{Exit, Failure};
use crate::filter::{quoted, without_secret};
use crate::global::Global;
use crate::output::Format;
use crate::relay::brokers;
use crate::relay::own::{self, Own};
use crate::shape::Found;
use crate::table::clean;
use crate::terminal::{self, Style, count, wrap};
use crate::{certificate, config, consume};

/// Examine the store, and the brokers, for what will go wrong
///
/// Each finding comes with what to do. Nothing is changed. The brokers are
/// those of the configuration, with its consumers: --config FILE.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider doctor --store sqlite://shop.db
  postrider doctor --store 'dynamodb://eu-central-1?prefix=shop-'
  postrider doctor --config postrider.toml
  postrider doctor --strict --output json

Exit codes:
  0  good, or warnings only
  1  the store could not be read
  6  something is critical; with --strict: or a warning")]
pub(crate) struct DoctorArgs {
    /// Warnings count as well
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: DoctorArgs) -> Result<Exit, Failure> {
    let configured = args.global.configured()?;
    let store = args.global.used(&configured)?.open_to_examine().await?;
    let (of_own, _beside) = match Own::of(&configured.config)? {
        Some(own) => own::examine(&own, &store).await,
        None => (Vec::new(), None),
    };
    let mut findings = store.operator.doctor(Timestamp::now()).await?;
    findings.extend(of_own);
    findings.extend(of_waiting(&*store.operator, configured.config.relay.waiting_max).await?);
    if let Some(path) = &args.global.config {
        findings.extend(of_brokers(path).await?);
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    for finding in &mut findings {
        finding.advice =
            finding.advice.take().map(|advice| typed(&args.global, finding.code, &advice));
    }
    let worst = findings.iter().map(|finding| finding.level).max();
    let found: Vec<Found> = findings.into_iter().map(Found::from).collect();
    match args.global.output {
        Format::Table => {
            let style = terminal::stdout_style();
            let text: String = found.iter().map(|finding| lines(finding, style)).collect();
            crate::output::write(&text)?;
        }
        _ => {
            let mut out = args.global.out();
            out.documents_of_page(found)?;
            out.end(None)?;
        }
    }
    Ok(match worst {
        Some(Level::Critical) => Exit::Unhealthy,
        Some(Level::Warning) if args.strict => Exit::Unhealthy,
        _ => Exit::Success,
    })
}

/// What is said of events that wait, where so many may.
async fn of_waiting(operator: &dyn Operator, most: u64) -> Result<Vec<Finding>, Failure> {
    let crowds = crowds(operator, &operator.overview().await?, most).await?;
    if crowds.is_empty() {
        let message = format!("less than half of {} events wait of any destination", count(most));
        return Ok(vec![findings::good("waiting", message)]);
    }
    Ok(crowds.iter().map(Crowd::finding).collect())
}

/// How long one broker may be asked.
const BROKER_MAX: Duration = Duration::from_secs(30);

/// What the brokers of a configuration say of themselves, and what becomes of its sidecars' times there. One that
/// cannot be asked is a finding.
async fn of_brokers(path: &Path) -> Result<Vec<Finding>, Failure> {
    let environment = Environment::of_process();
    let loaded = config::load(Some(path), &environment, Needs::NOTHING)?;
    let secrets = config::secrets(&loaded, &environment)?;
    let mut found = Vec::new();
    for (id, destination) in &loaded.config.destinations {
        if matches!(destination.kind, Kind::Stdout | Kind::File | Kind::Local) {
            // A file says nothing of itself, and opening one would make it.
            continue;
        }
        let broker = brokers::open(id, destination, &secrets)?;
        let routes = destination.definition(id).routes;
        let asked = tokio::time::timeout(BROKER_MAX, broker.examine(&routes)).await;
        let asked = asked.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Timeout, "examine").message("it does not answer"))
        });
        found.extend(
            asked
                .unwrap_or_else(|error| vec![Failure::from(error).finding("broker")])
                .into_iter()
                .map(|mut finding| {
                    finding.subject = format!("destination `{id}`, {}", finding.subject);
                    finding
                }),
        );
        if let Some(path) = certificate::of_destination(destination) {
            let subject = format!("destination `{id}`, certificate");
            found.push(certificate::examine(&subject, path, Timestamp::now()));
        }
        // Nothing was published: there is nothing to wait for.
        let _ = tokio::time::timeout(BROKER_MAX, broker.close()).await;
    }
    found.extend(consume::examine(&loaded.config, &secrets).await);
    Ok(found)
}

/// The commands of an advice as whoever runs this one would type them. The store's name, which they have, is no address
/// where that has a user.
fn typed(global: &Global, code: Option<Code>, advice: &str) -> String {
    let option = match (&global.store, &global.config) {
        (Some(store), _) => format!(" --store {}", quoted(&without_secret(store.clone()))),
        (None, Some(path)) => {
            let option = format!(" --config {}", quoted(&path.to_string_lossy()));
            if matches!(code, Some(Code::RelayAbsent | Code::NoRelay)) {
                return format!("systemctl start postrider, or postrider relay{option}");
            }
            option
        }
        (None, None) => String::new(),
    };
    let Some((before, named)) = advice.split_once(" --store ") else { return advice.to_owned() };
    let (address, _) = named.split_once(' ').unwrap_or((named, ""));
    format!("{before}{option}{}", &named[address.trim_end_matches([';', ':']).len()..])
}

/// A finding as people read it: the level, what it is about, and below it what to do.
fn lines(finding: &Found, style: Style) -> String {
    let level = format!("{:<9}", finding.level);
    let level = match finding.level {
        "good" => style.good(&level),
        "warning" => style.notable(&level),
        _ => style.bad(&level),
    };
    let code = finding.code.as_ref().map_or(String::new(), |code| format!(" [{code}]"));
    let indent = " ".repeat(9);
    let said = format!("{}: {}{code}", clean(&finding.subject), clean(&finding.message));
    // The indent stands before the first line as well, so that it is counted, and is taken away.
    let mut text = format!("{level}{}\n", wrap(&said, &indent));
    if let Some(advice) = &finding.advice {
        text.push_str(&format!("{indent}{}\n", style.dim(&wrap(&clean(advice), &indent))));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advised(store: Option<&str>, config: Option<&str>, code: Code, advice: &str) -> String {
        let (store, config) = (store.map(str::to_owned), config.map(Into::into));
        typed(&Global { store, config, output: Format::default() }, Some(code), advice)
    }

    /// A command that is said to help can be typed as it stands.
    #[test]
    fn a_command_names_the_store_as_this_one_did() {
        let look = "postrider dead ls --store postgres://db/shop; then redrive or discard them";
        let dead = |store, config| advised(store, config, Code::DeadLetters, look);
        let file = Some("postrider.toml");
        assert_eq!(
            dead(None, file),
            "postrider dead ls --config postrider.toml; then redrive or discard them"
        );
        // The store's name, which the advice has, lacks the user.
        let as_user = dead(Some("postgres://shop@db/shop"), file);
        assert_eq!(as_user, "postrider dead ls --store URL; then redrive or discard them");
        assert_eq!(dead(None, None), "postrider dead ls; then redrive or discard them");
        let stuck =
            "postrider inbox ls --state expired --store sqlite:///x/shop.db: is it running?";
        let named = advised(None, file, Code::ClaimsStuck, stuck);
        assert_eq!(
            named,
            "postrider inbox ls --state expired --config postrider.toml: is it running?"
        );
        let many = "postrider destinations resume a --store 'postgres://a,b/shop?schema=x'";
        let resumed = advised(None, file, Code::FlowPaused, many);
        assert_eq!(resumed, "postrider destinations resume a --config postrider.toml");
        let start = "postrider relay --store sqlite:///x/shop.db --to URL, or --config FILE";
        let absent = |store, config| advised(store, config, Code::RelayAbsent, start);
        assert_eq!(
            absent(Some("sqlite://shop.db"), None),
            "postrider relay --store sqlite://shop.db --to URL, or --config FILE"
        );
        let running = "systemctl start postrider, or postrider relay --config postrider.toml";
        assert_eq!(absent(None, file), running);
        let other = advised(None, file, Code::DurabilityOff, "set fsync = on");
        assert_eq!(other, "set fsync = on");
    }
}
