//! The record of a receiver: a JSON object a line, on the disk before anybody is told.
//!
//! Invariant: when `keep` returns, a crash of the process or of the machine does not lose the line.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;

use postrider_core::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot};

/// Lines that may be given to the thread at once: as many requests as a relay has under way.
const LINES_MAX: usize = 256;

/// A file that a thread of its own appends to: what came together is flushed together.
#[derive(Clone)]
pub(crate) struct Record(mpsc::Sender<(String, oneshot::Sender<()>)>);

impl Record {
    /// Opens the file, and cuts off a last line that a crash left unfinished.
    pub(crate) fn open(path: &Path) -> Result<Record> {
        let mut file = whole_lines(path).map_err(|e| trouble(&e))?;
        let (sender, mut lines) = mpsc::channel::<(String, oneshot::Sender<()>)>(LINES_MAX);
        std::thread::spawn(move || {
            while let Some((mut text, answer)) = lines.blocking_recv() {
                let mut answers = vec![answer];
                while let Ok((line, answer)) = lines.try_recv() {
                    text.push_str(&line);
                    answers.push(answer);
                }
                // A disk that refuses ends the part: nobody is told that anything was kept.
                if file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).is_err() {
                    std::process::exit(74);
                }
                // Whoever asked may be gone; the line is kept all the same.
                answers.into_iter().for_each(|answer| _ = answer.send(()));
            }
        });
        Ok(Record(sender))
    }

    /// Keeps a line.
    pub(crate) async fn keep(&self, line: String) {
        let (answer, kept) = oneshot::channel();
        if self.0.send((line, answer)).await.is_ok() {
            let _ = kept.await;
        }
    }
}

fn whole_lines(path: &Path) -> std::io::Result<File> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
    file.set_len(end)?;
    Ok(file)
}

fn trouble(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "record").message(error.to_string())
}
