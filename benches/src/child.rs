//! What this program does as a child of itself: things that need a process of their own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::measure::peak_memory_kib;
use crate::options::BrokerKind;
use crate::{Result, broker, idle, postgres, producer, receiver, relay, start, webhook};

/// The first argument of a child.
pub(crate) const FLAG: &str = "--child";

/// Runs a child, and returns the one line of JSON that it prints. Its allocator is set as the system's service and the
/// image set it (`deploy/`), unless the caller's environment says otherwise.
pub(crate) fn ask(arguments: &[&str]) -> Result<Value> {
    let arenas = std::env::var_os("MALLOC_ARENA_MAX").unwrap_or_else(|| "1".into());
    let output = Command::new(std::env::current_exe()?)
        .env("MALLOC_ARENA_MAX", arenas)
        .arg(FLAG)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the child `{}` failed: {}", arguments.join(" "), output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The child's side.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match words[..] {
        ["drain", path, rows, kind, broker_path] => {
            let start = Instant::now();
            let broker = broker::open(BrokerKind::parse(kind)?, Path::new(broker_path))?;
            let drained = relay::drain(&relay::runtime()?, Path::new(path), broker, rows.parse()?)?;
            json!({
                "per_s": drained.per_s,
                "seconds": start.elapsed().as_secs_f64(),
                "peak_kib": peak_memory_kib(),
            })
        }
        ["drain-postgres", url, rows, kind, path] => {
            postgres::memory::drain(url, rows.parse()?, kind, Path::new(path))?
        }
        #[cfg(feature = "brokers")]
        ["brokered", ref rest @ ..] => return crate::brokered::child(rest),
        ["produce", path, events] => {
            json!(producer::produce(Path::new(path), events.parse()?, || {})?)
        }
        ["webhook", name, path, rows] => webhook::round(name, Path::new(path), rows.parse()?)?,
        ["idle", name, path, seconds] => idle::look(name, Path::new(path), seconds.parse()?)?,
        ["relay", store, events] => return start::relay(Path::new(store), Path::new(events)),
        ["nothing"] => return Ok(()),
        ["receive", ports] => return receiver::serve(ports.parse()?),
        _ => return Err("a child is started by its parent only".into()),
    };
    println!("{answer}");
    Ok(())
}
