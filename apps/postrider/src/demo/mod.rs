//! `postrider demo`: a shop, a relay that is killed, a broker that misbehaves, handlers that crash,
//! and a ledger of what came of it.
//!
//! Invariant: the judgement rests on what the shop's database, the broker's log, and the handlers'
//! own records say, and a planned fault that did not strike fails the demo.

mod act;
mod charge;
mod child;
mod evidence;
mod flaky;
mod ledger;
pub(crate) mod mail;
mod plan;
pub(crate) mod relay;
mod sabotage;
mod shop;
mod tally;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use postrider_local::LocalBroker;

use crate::demo::act::Files;
use crate::demo::ledger::Judgement;
use crate::demo::plan::Plan;
use crate::demo::sabotage::Sabotage;
use crate::demo::shop::Shop;
use crate::demo::tally::Tally;
use crate::failure::{Exit, Failure};
use crate::signals::Signals;
use crate::terminal::{self, Progress, count, style};

/// How often the line on the terminal is written.
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// How long the folder of an interrupted demo may resist being removed: far beyond what a killed
/// child or a transaction of SQLite takes to end.
const STRIKE_MAX: Duration = Duration::from_secs(5);

/// Watch nothing get lost while everything goes wrong
///
/// A shop takes orders in a temporary folder; a relay carries their events to
/// a local broker and is killed at the worst moments; the broker loses
/// answers and stores batches twice; one event is refused for good; a handler
/// dies holding its claim. The ledger at the end is drawn from the shop's
/// database, the broker's log, and the handlers' records, not from the relay.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes:
  0   every promise held, and every planned fault struck
  1   it failed")]
pub(crate) struct DemoArgs {
    /// How many orders the shop takes
    #[arg(long, value_name = "N", default_value_t = 300,
        value_parser = clap::value_parser!(u32).range(20..=5000))]
    orders: u32,
    /// What the faults are drawn from; by default, the time
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Let nothing go wrong
    #[arg(long)]
    no_faults: bool,
    /// Write the ledger as one line of JSON
    #[arg(long)]
    json: bool,
    /// Work in this folder, which must be empty, and keep it
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Break a promise before judging, to see that it is noticed.
    #[arg(long, hide = true, value_name = "HOW")]
    sabotage: Option<Sabotage>,
}

pub(crate) async fn run(args: DemoArgs) -> Result<Exit, Failure> {
    let mut signals = Signals::catch().map_err(|e| Failure::plain(format!("signals: {e}")))?;
    let stage = Stage::open(args.keep.as_deref())?;
    // Dropping the show kills its children; the folder goes after that, with the stage.
    let outcome = tokio::select! {
        exit = show(&args, &stage) => exit,
        _ = signals.next() => {
            Err(Failure::plain("interrupted: the demo proved nothing").exit_as(Exit::Aborted))
        }
    };
    stage.strike().await;
    outcome
}

async fn show(args: &DemoArgs, stage: &Stage) -> Result<Exit, Failure> {
    let started = Instant::now();
    let seed = args.seed.unwrap_or_else(seed_of_the_moment);
    let plan = Arc::new(Plan::draw(args.orders as usize, seed, !args.no_faults));
    let files = Files::in_folder(stage.path());
    let tally = Tally::new(&plan);
    let shop = Arc::new(Shop::open(&files.shop)?);
    terminal::note(&format!(
        "{} orders, seed {seed}, in {}",
        plan.orders.len(),
        style().dim(&stage.path().display().to_string())
    ));
    tokio::select! {
        played = act::play(&plan, &files, &shop, &tally) => played?,
        never = show_progress(&plan, &shop, started) => match never {},
    }
    let queue = LocalBroker::open(&files.queue)?;
    if let Some(sabotage) = args.sabotage {
        sabotage.commit(&files, &queue).await?;
    }
    let evidence = evidence::collect(&files, &queue, &shop.done(), plan.poison.as_deref()).await?;
    let judgement = Judgement::over(evidence, tally.count());
    let text = match args.json {
        true => judgement.to_json()?,
        false => judgement.render(&plan, started.elapsed(), terminal::stdout_style()),
    };
    terminal::data(&text).map_err(Failure::of_stdout)?;
    if let Some(folder) = &args.keep {
        terminal::note(&format!("kept in {}", folder.display()));
    }
    if judgement.holds() {
        return Ok(Exit::Success);
    }
    for (fault, times) in tally.count() {
        if times == 0 {
            terminal::note(&format!("planned, and did not happen: {}", fault.label()));
        }
    }
    terminal::note(&format!("to see it again: --orders {} --seed {seed} --keep DIR", args.orders));
    Ok(Exit::Failure)
}

/// Writes the line on the terminal, for ever.
async fn show_progress(plan: &Plan, shop: &Shop, started: Instant) -> std::convert::Infallible {
    let mut progress = Progress::new();
    let mut ticks = tokio::time::interval(SHOW_EVERY);
    loop {
        ticks.tick().await;
        progress.show(&format!(
            "  {} orders to take · {} transactions committed · {:.1} s",
            count(plan.orders.len() as u64),
            count(shop.committed()),
            started.elapsed().as_secs_f64()
        ));
    }
}

fn seed_of_the_moment() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // Few digits, because people type them again.
    now.map_or(0, |span| span.as_micros() as u64 % 1_000_000)
}

/// The folder everything happens in.
#[derive(Debug)]
enum Stage {
    /// Goes with the demo.
    Temporary(tempfile::TempDir),
    /// Stays.
    Kept(PathBuf),
}

impl Stage {
    fn open(keep: Option<&Path>) -> Result<Stage, Failure> {
        let fail = |e: std::io::Error| Failure::plain(format!("the demo's folder: {e}"));
        let Some(folder) = keep else {
            let folder = tempfile::Builder::new().prefix("postrider-demo-").tempdir();
            return Ok(Stage::Temporary(folder.map_err(fail)?));
        };
        std::fs::create_dir_all(folder).map_err(fail)?;
        if std::fs::read_dir(folder).map_err(fail)?.next().is_some() {
            return Err(Failure::config(format!("{} is not empty", folder.display()))
                .advice("Nothing was started. Name a folder that is empty or not there yet."));
        }
        Ok(Stage::Kept(folder.to_owned()))
    }

    /// Removes a folder that does not stay, again and again while those of an interrupted demo who
    /// are still at work write into it: a child that was killed a moment ago, a clerk in his last
    /// transaction.
    async fn strike(self) {
        let Stage::Temporary(folder) = self else { return };
        let folder = folder.keep();
        let started = Instant::now();
        while let Err(error) = std::fs::remove_dir_all(&folder) {
            if error.kind() == std::io::ErrorKind::NotFound {
                return;
            }
            if started.elapsed() >= STRIKE_MAX {
                terminal::note(&format!("{} is left behind: {error}", folder.display()));
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // waits: for who still writes
        }
    }

    fn path(&self) -> &Path {
        match self {
            Stage::Temporary(folder) => folder.path(),
            Stage::Kept(folder) => folder,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Somebody goes on writing for a while, as a killed child does until it is dead.
    #[tokio::test]
    async fn a_folder_goes_even_if_somebody_still_writes_into_it() {
        let stage = Stage::open(None).unwrap();
        let folder = stage.path().to_owned();
        let (wrote, refused) = (Arc::new(AtomicBool::new(false)), std::sync::mpsc::channel());
        let writer = std::thread::spawn({
            let (folder, wrote) = (folder.clone(), Arc::clone(&wrote));
            move || {
                for number in 0..u64::MAX {
                    if std::fs::write(folder.join(number.to_string()), b"x").is_err() {
                        return;
                    }
                    wrote.store(true, Ordering::Release);
                    if refused.1.try_recv().is_ok() {
                        return;
                    }
                }
            }
        });
        while !wrote.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let stop = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200)); // waits: for removals to be resisted
            let _ = refused.0.send(());
        });
        stage.strike().await;
        stop.join().unwrap();
        writer.join().unwrap();
        assert!(!folder.exists());
    }
}
