//! `peer`: a backlog through the whole relay, against the same number of events through Debezium's embedded engine with its
//! outbox router, each in a process of its own, to nothing.
//!
//! The peer reads the server's log, and ours the table. Its jars come from `cargo x bench`, and Java's compiler from the machine.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::backlog;
use super::server::Server;
use crate::backlog::{KEYS, PAYLOAD_BYTES};
use crate::measure::{Contender, median, ratio, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::{Result, child, progress, relay};

const ROWS: u64 = 200_000;
const ROUNDS: u32 = 3;

/// The variable that says where the peer's jars are.
const JARS: &str = "POSTRIDER_BENCH_DEBEZIUM";

/// Small, as whoever counts its memory would run it.
const SMALL: [&str; 2] = ["-Xmx256m", "-XX:+UseSerialGC"];

/// What a process took, in KiB and seconds.
#[derive(Default)]
struct Cost {
    peak_kib: Vec<f64>,
    seconds_with_start: Vec<f64>,
    cpu_seconds: Vec<f64>,
}

impl Cost {
    fn note(&mut self, answer: &Value) {
        self.peak_kib.push(number(answer, "peak_kib"));
        self.seconds_with_start.push(number(answer, "seconds_with_start"));
        self.cpu_seconds.push(number(answer, "cpu_seconds"));
    }

    fn shown(&self) -> Value {
        json!({
            "peak_rss_kib": median(&self.peak_kib),
            "seconds_with_start": rounded(median(&self.seconds_with_start)),
            "cpu_seconds": rounded(median(&self.cpu_seconds)),
        })
    }
}

fn number(answer: &Value, name: &str) -> f64 {
    answer.get(name).and_then(Value::as_f64).unwrap_or_default()
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let jars = std::env::var_os(JARS)
        .map(PathBuf::from)
        .ok_or_else(|| format!("{JARS} names no jars: `cargo x bench peer` fetches them"))?;
    let runtime = relay::runtime()?;
    let server = Server::start_with(&runtime, &["wal_level=logical"])?;
    let classes = compiled(&server, &jars)?;
    progress(format_args!("building a backlog of {rows} rows"));
    backlog::append(&runtime, &server, rows)?;
    server.batch(&runtime, include_str!("../../sql/postgres/peer_table.sql"))?;
    let costs: RefCell<[Cost; 3]> = RefCell::default();
    let ours = || -> Result<f64> {
        backlog::rewind(&runtime, &server)?;
        let path = server.beside("broker.db").to_string_lossy().into_owned();
        let asked = ["drain-postgres", &server.url(), &rows.to_string(), "noop", &path];
        let answer = child::ask(&asked)?;
        costs.borrow_mut()[0].note(&answer);
        Ok(number(&answer, "per_s"))
    };
    let count = Cell::new(0);
    let debezium = |java: &[&str], which: usize| -> Result<f64> {
        count.set(count.get() + 1);
        let slot = format!("peer_{}", count.get());
        fill(&runtime, &server, &slot, rows)?;
        let answer = drain(java, (&jars, &classes), &server, &slot, rows)?;
        let dropped = include_str!("../../sql/postgres/peer_drop.sql");
        runtime.block_on(async {
            server.connect().await?.query(dropped, &[&slot]).await?;
            Result::Ok(())
        })?;
        costs.borrow_mut()[which].note(&answer);
        Ok(number(&answer, "per_s"))
    };
    let mut contenders = [
        Contender::new("ours", ours),
        Contender::new("debezium", || debezium(&SMALL, 1)),
        Contender::new("debezium_own_heap", || debezium(&[], 2)),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let [own, small, large] = costs.into_inner();
    let of = |peer: &Cost| ratio(median(&own.peak_kib), median(&peer.peak_kib));
    let outcome = Outcome::new("peer", "noop", rows, rounds, &series)
        .on(StoreKind::Postgres, &server.version(&runtime)?);
    let times = outcome.ratio("debezium");
    Ok(outcome
        .add("keys", KEYS)
        .add("payload_bytes", PAYLOAD_BYTES as u64)
        .add("processes", json!({ "ours": own.shown(), "debezium": small.shown(), "debezium_own_heap": large.shown() }))
        .note("its rate counts from its first batch on, ours from the start of the relay")
        .note(format!(
            "the peer has its fastest settings, and {}; once more with the heap and the collector that its Java chooses",
            SMALL.join(" ")
        ))
        .aim_at_least("ours / debezium", 3.0, times)
        .aim_at_most("memory of ours / debezium", 0.1, of(&small))
        .aim_at_most("memory of ours / debezium with its own heap", 0.1, of(&large)))
}

/// Compiles the peer's program; the folder with its classes.
fn compiled(server: &Server, jars: &Path) -> Result<PathBuf> {
    let classes = server.beside("peer");
    std::fs::create_dir(&classes)?;
    let source = classes.join("Debezium.java");
    std::fs::write(&source, include_str!("../../peer/Debezium.java"))?;
    let mut compiler = Command::new("javac");
    compiler.arg("-cp").arg(jars.join("*")).arg("-d").arg(&classes).arg(&source);
    if !compiler.status()?.success() {
        return Err("javac failed".into());
    }
    Ok(classes)
}

/// What the peer is to read, behind a place in the log that is kept for it. Nothing of this is measured.
fn fill(runtime: &Runtime, server: &Server, slot: &str, rows: u64) -> Result<()> {
    let fill = include_str!("../../sql/postgres/peer_fill.sql")
        .replace("$rows", &rows.to_string())
        .replace("$keys", &KEYS.to_string())
        .replace("$bytes", &PAYLOAD_BYTES.to_string());
    runtime.block_on(async {
        let client = server.connect().await?;
        client.query(include_str!("../../sql/postgres/peer_slot.sql"), &[&slot]).await?;
        client.batch_execute("set synchronous_commit = off").await?;
        client.batch_execute(&fill).await?;
        client.batch_execute("checkpoint").await?;
        Ok(())
    })
}

/// Runs the peer until it has read that many events.
fn drain(
    java: &[&str],
    (jars, classes): (&Path, &Path),
    server: &Server,
    slot: &str,
    rows: u64,
) -> Result<Value> {
    let path = format!("{}:{}/*", classes.display(), jars.display());
    let output = Command::new("java")
        .args(java)
        .args(["-cp", &path, "Debezium", &server.port().to_string(), slot, &rows.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the peer failed: {}", said.trim()).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
