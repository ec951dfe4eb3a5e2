//! `start`: from starting the process of a relay to the first delivery of what was committed before.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{Destination, DestinationId, Route, Template};
use postrider_file::FileBroker;
use postrider_relay::Relay;
use postrider_sqlite::{Outbox, SqliteStore, connect, init};
use rusqlite::TransactionBehavior;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::backlog::{checkpoint, event};
use crate::measure::{Contender, percentile, take_turns};
use crate::options::{BrokerKind, Options};
use crate::outcome::{Outcome, rounded};
use crate::{Result, child, relay};

/// How often each contender is started.
const ROUNDS: u32 = 30;

/// The median that a start should stay under, in milliseconds.
const AIM_MS: f64 = 100.0;

/// How long a start may take before the run is given up.
const LONGEST: Duration = Duration::from_secs(30);

/// How often the file is looked at: fine enough for the figures, and next to no load.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// What is started.
struct Program {
    binary: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if options.broker != BrokerKind::Noop {
        return Err("`start` delivers to a file: it takes no broker".into());
    }
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let program = Program { binary: options.binary.clone() };
    let model = Model::new()?;
    // Files and pages that every start needs are in memory then.
    model.first(&program)?;
    let spans: [RefCell<Vec<f64>>; 3] = Default::default();
    let note = |which: usize, span: Duration| {
        spans[which].borrow_mut().push(span.as_secs_f64() * 1_000.0);
        Ok(1.0 / span.as_secs_f64())
    };
    let mut contenders = [
        Contender::new("ours", || note(0, model.first(&program)?)),
        Contender::new("bare_process", || note(1, nothing()?)),
        Contender::new("ours_after_kill", || note(2, model.after_kill(&program)?)),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let [mut first, mut bare, mut again] = spans.map(RefCell::into_inner);
    let (median, again_median) = (percentile(&mut first, 50.0), percentile(&mut again, 50.0));
    Ok(Outcome::new("start", "file", 1, rounds, &series[..2])
        .add("binary", program.name())
        .add(
            "start_ms",
            json!({
                "ours": summary(&mut first),
                "ours_after_kill": summary(&mut again),
                "bare_process": summary(&mut bare),
            }),
        )
        .note("rates are starts a second, of the median of each; look at start_ms")
        .note("ours ends when the first line stands in the file, bare_process when it has exited")
        .aim_at_most("median of a start, in ms", AIM_MS, median)
        .aim_at_most("median of a start after SIGKILL, in ms", AIM_MS, again_median))
}

/// A store with one event that was committed, as every run finds it.
struct Model(TempDir);

impl Model {
    fn new() -> Result<Model> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("model.db");
        init(&path)?;
        commit(&path, 1)?;
        checkpoint(&connect(&path)?)?;
        Ok(Model(folder))
    }

    fn copy(&self) -> Result<TempDir> {
        let folder = tempfile::tempdir()?;
        std::fs::copy(self.0.path().join("model.db"), folder.path().join("shop.db"))?;
        Ok(folder)
    }

    /// The first start on a store.
    fn first(&self, program: &Program) -> Result<Duration> {
        let folder = self.copy()?;
        let (span, mut relay) = program.start(folder.path(), 0)?;
        relay.stop()?;
        Ok(span)
    }

    /// A start after the relay before was killed, with one more event.
    fn after_kill(&self, program: &Program) -> Result<Duration> {
        let folder = self.copy()?;
        let (_, mut relay) = program.start(folder.path(), 0)?;
        relay.stop()?;
        commit(&folder.path().join("shop.db"), 2)?;
        let length = length(&folder.path().join("events.jsonl"));
        let (span, mut relay) = program.start(folder.path(), length)?;
        relay.stop()?;
        Ok(span)
    }
}

impl Program {
    fn name(&self) -> String {
        let binary = self.binary.as_ref().and_then(|path| path.file_name());
        binary.map_or_else(|| "this one".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    fn command(&self, store: &Path, events: &Path) -> Result<Command> {
        Ok(match &self.binary {
            Some(binary) => {
                let mut command = Command::new(binary);
                command.arg("relay");
                command.arg("--store").arg(format!("sqlite://{}", store.display()));
                command.arg("--to").arg(format!("file://{}", events.display()));
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args([child::FLAG, "relay"]).arg(store).arg(events);
                command
            }
        })
    }

    /// Starts a relay, and waits until the file of events is longer than it was.
    fn start(&self, folder: &Path, length_before: u64) -> Result<(Duration, Running)> {
        let (store, events) = (folder.join("shop.db"), folder.join("events.jsonl"));
        let mut command = self.command(&store, &events)?;
        // What proves that a killed relay is dead stands here.
        command.env("TMPDIR", folder).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        let start = Instant::now();
        let mut running = Running(command.spawn()?);
        while length(&events) <= length_before {
            if let Some(status) = running.0.try_wait()? {
                return Err(format!("the relay ended before it delivered: {status}").into());
            }
            if start.elapsed() > LONGEST {
                return Err(format!("the relay delivered nothing within {LONGEST:?}").into());
            }
            std::thread::sleep(LOOK_EVERY); // waits: for a file, which gives no signal
        }
        Ok((start.elapsed(), running))
    }
}

/// A process that is killed when this goes.
struct Running(Child);

impl Running {
    fn stop(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing is left to be told of an error.
        let _ = self.stop();
    }
}

/// Starts this program, which ends at once.
fn nothing() -> Result<Duration> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([child::FLAG, "nothing"]).stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let span = start.elapsed();
    if !status.success() {
        return Err(format!("a process that does nothing failed: {status}").into());
    }
    Ok(span)
}

/// The child's side: a relay to a file, until it is killed.
pub(crate) fn relay(store: &Path, events: &Path) -> Result<()> {
    relay::runtime()?.block_on(async {
        let broker = FileBroker::open(events)?;
        let route = Route::all("orders".parse::<Template>()?);
        let destination = Destination::new(DestinationId::new("default")?, "file", vec![route]);
        let store = Arc::new(SqliteStore::new(store)?);
        let relay =
            Relay::builder(store).destination(destination, Arc::new(broker)).start().await?;
        relay.stopped().await;
        Ok(())
    })
}

fn commit(path: &Path, number: u64) -> Result<()> {
    let mut connection = connect(path)?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    Outbox::new().enqueue(&tx, &event(number)?)?;
    tx.commit()?;
    Ok(())
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

fn summary(spans: &mut [f64]) -> Value {
    json!({
        "starts": spans.len(),
        "p50": rounded(percentile(spans, 50.0)),
        "p99": rounded(percentile(spans, 99.0)),
        "max": rounded(percentile(spans, 100.0)),
    })
}
