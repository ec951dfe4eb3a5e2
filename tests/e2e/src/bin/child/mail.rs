//! The handler `mail`: its effect is outside every database, so it works under a lease and in a step.
//!
//! The provider is an append-only file. Like any provider worth its money it does nothing for a key
//! that it has seen; every call is recorded all the same.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{BoxFuture, Event, HandlerName, Result};
use postrider_e2e::Files;
use postrider_inbox::{Context, Leased, LeasedHandler, Outcome};
use postrider_sqlite::SqliteStore;

use crate::halt::Halt;

pub(crate) fn receiver(
    files: &Files,
    name: HandlerName,
    halt: Arc<Halt>,
    lease: Duration,
) -> Result<Leased> {
    let store = Arc::new(SqliteStore::new(&files.inbox)?);
    let handler = Mailer { files: files.clone(), halt };
    Leased::builder(name, store, handler).lease(lease).build()
}

struct Mailer {
    files: Files,
    halt: Arc<Halt>,
}

impl LeasedHandler for Mailer {
    fn act(&self, event: Arc<Event>, context: Context) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(async move {
            self.halt.at("holding").await;
            let send = |key: String| {
                let sent = send(&self.files, &key, &event);
                async move {
                    self.halt.at("after_effect").await;
                    sent
                }
            };
            let receipt = context.step("send", send).await?;
            self.halt.at("after_step").await;
            Ok(Outcome::Ack(receipt))
        })
    }
}

/// Sends a mail, unless the key was seen before; several processes may ask at once.
fn send(files: &Files, key: &str, event: &Event) -> std::io::Result<String> {
    let line = format!("{key}\t{}\n", event.id);
    append(&files.calls)?.write_all(line.as_bytes())?;
    let mut sent = append(&files.sent)?;
    sent.lock()?;
    let mut text = String::new();
    sent.read_to_string(&mut text)?;
    if !text.lines().any(|known| known.split('\t').next() == Some(key)) {
        // One write of one line: a process that dies leaves all of it or nothing.
        sent.write_all(line.as_bytes())?;
    }
    Ok(format!("receipt for {}", event.id))
}

fn append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).read(true).open(path)
}
