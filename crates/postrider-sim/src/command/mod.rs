//! What the simulator's program can do: a module per command, chosen by the arguments.
//!
//! Reports go to one writer in an order that depends on the seeds alone; only lines about progress
//! go to standard error. It ends with 0, with 1 where something failed, with 2 where it was called
//! wrongly.

mod arguments;
mod coverage;
mod failure;
mod gate;
mod mutants;
mod one;
mod seeds;
mod twice;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_sim::attempt::{Options, Runner};
use postrider_sim::many::Plan;
use postrider_sim::planted::{self, Planted};
use postrider_sim::{fixture, world};

use arguments::{Arguments, Mode, USAGE};

/// Where a command runs: its world, and where it writes.
struct Context<'a> {
    runner: Runner,
    planted: Vec<Planted>,
    /// The crate's folder.
    home: PathBuf,
    out: &'a mut dyn Write,
}

impl Context<'_> {
    /// The folder of the fixtures.
    fn fixtures(&self) -> PathBuf {
        self.home.join(fixture::FOLDER)
    }

    /// The workspace's folder.
    fn root(&self) -> &Path {
        self.home.ancestors().nth(2).unwrap_or(&self.home)
    }

    /// The page that the tables are written into.
    fn page(&self) -> PathBuf {
        self.root().join("docs/internals/simulator.md")
    }

    /// A path as people type it from the root.
    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(self.root()).unwrap_or(path).display().to_string()
    }

    /// The seeds that were asked for.
    fn plan(&self, arguments: &Arguments) -> Plan {
        let mut plan = Plan::new(Arc::clone(&self.runner), arguments.from, arguments.seeds);
        plan.jobs = arguments.jobs.unwrap_or(plan.jobs);
        plan.options = Options { trace: false, mutant: arguments.mutant };
        plan.until = arguments.minutes.map(minutes_from_now);
        plan
    }

    /// Writes a table into the page.
    fn bless(&mut self, name: &str, table: &str) -> io::Result<bool> {
        let page = self.page();
        let shown = self.shown(&page);
        match postrider_sim::table::bless(&page, name, table) {
            Ok(()) => writeln!(self.out, "written into {shown}")?,
            Err(reason) => {
                writeln!(self.out, "error: {reason}")?;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn minutes_from_now(minutes: u64) -> Instant {
    Instant::now() + Duration::from_secs(minutes * 60)
}

/// Runs a command; what it came to.
pub(crate) fn main(arguments: Vec<String>) -> ExitCode {
    let planted = planted::all();
    let arguments = match Arguments::read(arguments, &planted) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("error: {reason}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let mut out = io::stdout().lock();
    let context = Context {
        runner: Arc::new(world::run),
        planted,
        home: PathBuf::from(env!("CARGO_MANIFEST_DIR")),
        out: &mut out,
    };
    match run(context, &arguments) {
        Ok(true) => ExitCode::SUCCESS,
        // Who reads no further has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: the report could not be written: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; whether everything passed.
fn run(mut context: Context<'_>, arguments: &Arguments) -> io::Result<bool> {
    match &arguments.mode {
        Mode::Help => context.out.write_all(USAGE.as_bytes()).map(|()| true),
        Mode::Seed(seed) => one::seed(&mut context, *seed, arguments),
        Mode::Fixture(path) => one::fixture(&mut context, path, arguments),
        Mode::Seeds => seeds::run(&mut context, arguments),
        Mode::Coverage => coverage::run(&mut context, arguments),
        Mode::Mutants => mutants::run(&mut context, arguments),
        Mode::Twice => twice::run(&mut context, arguments),
        Mode::Gate => gate::run(&mut context, arguments),
    }
}
