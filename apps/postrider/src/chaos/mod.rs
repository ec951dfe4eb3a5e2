//! `postrider chaos`: what goes wrong with messages in the world, each as a short play in two halves:
//! the way that breaks, and ours, which holds.
//!
//! Invariant: both halves run for real and both are judged. A wrong way that does no damage fails a
//! scenario as surely as a right way that does.

mod bank;
mod broker_down;
mod by_hand;
#[cfg(feature = "dynamodb")]
mod dynamo;
mod effect_before_inbox;
mod faulty;
mod held;
mod lost_ack;
mod manual_fix;
mod poison;
mod premature_mark;
mod queue;
mod regenerated_key;
mod scenario;
mod scene;
#[cfg(feature = "aws")]
mod sqs;
mod story;
mod stream_gap;
mod stuck_claim;
mod theatre;
mod two_relays;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::chaos::queue::Road;
use crate::chaos::scenario::{SCENARIOS, Scenario};
use crate::chaos::theatre::Theatre;
use crate::failure::{Exit, Failure};
use crate::signals::Signals;
use crate::terminal;

/// See what breaks without an outbox and an inbox, and what holds with them
///
/// Each scenario plays a known way to lose, double, or hold up a message, and
/// then the same misfortune with Postrider. It needs no server, takes less
/// than half a minute, and fails if either half comes out otherwise.
#[derive(Args, Debug)]
pub(crate) struct ChaosArgs {
    #[command(subcommand)]
    command: ChaosCommand,
}

#[derive(Debug, Subcommand)]
enum ChaosCommand {
    List(ListArgs),
    Run(RunArgs),
}

/// List the scenarios
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider chaos list
  postrider chaos list --json")]
struct ListArgs {
    /// One line of JSON per scenario
    #[arg(long)]
    json: bool,
}

/// Play a scenario, or all of them
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider chaos run stuck-claim
  postrider chaos run all
  postrider chaos run all --json
  postrider chaos run two-relays --store postgres://app@db/shop
  postrider chaos run stuck-claim --broker sqs://eu-west-1

Exit codes:
  0   the wrong way did its damage, and ours held, in every scenario
  1   one came out otherwise")]
struct RunArgs {
    /// Which, or all
    #[arg(value_name = "NAME")]
    name: String,
    /// One line of JSON per scenario
    #[arg(long)]
    json: bool,
    /// Play our half on this PostgreSQL or DynamoDB, in a schema or tables of
    /// its own that are dropped afterwards; else on SQLite in a temporary folder
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Play by queues of SQS of its own, which are deleted afterwards; else by
    /// a broker in a file
    #[arg(long, value_name = "URL")]
    broker: Option<String>,
    /// Play the wrong way in our half too, to see that it is noticed.
    #[arg(long, hide = true)]
    sabotage: bool,
}

pub(crate) async fn run(args: ChaosArgs) -> Result<Exit, Failure> {
    match args.command {
        ChaosCommand::List(args) => list(&args),
        ChaosCommand::Run(args) => play(&args).await,
    }
}

fn list(args: &ListArgs) -> Result<Exit, Failure> {
    for scenario in &SCENARIOS {
        let line = match args.json {
            true => to_json(&Listed::of(scenario))?,
            false => {
                let text = terminal::wrap(scenario.summary, "                      ");
                let mut line = format!("{:<20}  {text}", scenario.name);
                let more: Vec<String> = scenario.plays.stores()[1..]
                    .iter()
                    .map(|scheme| format!("{scheme}://…"))
                    .collect();
                if !more.is_empty() {
                    line.push_str("\n                      also with --store ");
                    line.push_str(&more.join(" or "));
                }
                if scenario.by_queue {
                    line.push_str("\n                      also with --broker sqs://…");
                }
                line
            }
        };
        terminal::data(&line).map_err(Failure::of_stdout)?;
    }
    Ok(Exit::Success)
}

async fn play(args: &RunArgs) -> Result<Exit, Failure> {
    let chosen = chosen(&args.name)?;
    let theatre = Theatre::choose(args.store.as_deref())?;
    let road = Road::choose(args.broker.as_deref())?;
    if let ([only], Some(_)) = (&chosen[..], &args.store)
        && theatre.kind(only) == "sqlite"
    {
        return Err(Failure::config(format!("{} is not played on this kind of store", only.name))
            .advice("Nothing was started. Leave --store out; `postrider chaos list` says which take it.")
            .exit_as(Exit::Usage));
    }
    if let ([only], true) = (&chosen[..], road.is_remote())
        && !only.by_queue
    {
        return Err(Failure::config(format!("{} is not played by queues of a service", only.name))
            .advice("Nothing was started. Leave --broker out; `postrider chaos list` says which take it.")
            .exit_as(Exit::Usage));
    }
    let mut signals = Signals::catch().map_err(|e| Failure::plain(format!("signals: {e}")))?;
    let mut broken = Vec::new();
    for scenario in &chosen {
        let mut scene = theatre.scene(scenario, &road, !args.json).await?;
        if args.sabotage {
            scene.take_the_guard_away();
        }
        let played = tokio::select! {
            played = scene.play(scenario) => played,
            _ = signals.next() => {
                Err(Failure::plain("interrupted: nothing was proved").exit_as(Exit::Aborted))
            }
        };
        // Whatever came of it: a schema of ours on somebody's server goes.
        let closed = scene.close().await;
        let story = match (played, closed) {
            (Ok(()), closed) => closed?,
            (Err(failure), Ok(_)) => return Err(failure.within(scenario.name)),
            (Err(failure), Err(left)) => return Err(failure.within(scenario.name).and(left)),
        };
        if args.json {
            terminal::data(&to_json(&story.report())?).map_err(Failure::of_stdout)?;
        }
        story.end()?;
        if !story.holds() {
            broken.push(scenario.name);
        }
    }
    if broken.is_empty() {
        return Ok(Exit::Success);
    }
    terminal::note(&format!("came out otherwise than it should: {}", broken.join(", ")));
    Ok(Exit::Failure)
}

/// The scenarios of a name.
fn chosen(name: &str) -> Result<Vec<&'static Scenario>, Failure> {
    if name == "all" {
        return Ok(SCENARIOS.iter().collect());
    }
    if let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name) {
        return Ok(vec![scenario]);
    }
    let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    let nearest = postrider_core::template::nearest(name, &names);
    Err(Failure::plain(format!(
        "unknown scenario `{}`; did you mean `{nearest}`?",
        name.escape_debug()
    ))
    .advice(format!("There are {}, and all.", names.join(", ")))
    .exit_as(Exit::Usage))
}

/// A scenario, for programs.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    summary: &'static str,
    page: &'static str,
    stores: &'static [&'static str],
    brokers: &'static [&'static str],
}

impl Listed {
    fn of(scenario: &Scenario) -> Listed {
        let Scenario { name, summary, page, plays, by_queue, .. } = *scenario;
        let brokers: &[_] = if by_queue { &["local", "sqs"] } else { &["local"] };
        Listed { name, summary, page, stores: plays.stores(), brokers }
    }
}

fn to_json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|e| Failure::plain(e.to_string()))
}
