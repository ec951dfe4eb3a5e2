//! Processes of the demo that may be killed: the parent's side and the child's.
//!
//! A child says words on its standard output, a line each. It stops gracefully when its standard
//! input ends, which also happens when its parent dies: no child outlives the demo.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::failure::Failure;
use crate::terminal;

/// How long a child may take to say the next word or to stop: far beyond what either takes, so that
/// a demo that hangs says where.
const PATIENCE: Duration = Duration::from_secs(20);

/// A child, as its parent holds it. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Kid {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    words: Lines<BufReader<ChildStdout>>,
}

impl Kid {
    /// Starts this program anew as another command, with what it leaves behind in the demo's folder.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn start(
        name: &'static str,
        args: &[String],
        folder: &Path,
    ) -> Result<Kid, Failure> {
        let fail = |e: std::io::Error| Failure::plain(format!("{name} cannot be started: {e}"));
        let program = std::env::current_exe().map_err(fail)?;
        let mut child = Command::new(program)
            .arg(name)
            .args(args)
            .env("TMPDIR", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(fail)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("invariant: standard output is a pipe");
        Ok(Kid { name, child, stdin, words: BufReader::new(stdout).lines() })
    }

    /// The next word, or `None` if it says no more.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) async fn word(&mut self) -> Result<Option<String>, Failure> {
        let fail = |e: std::io::Error| Failure::plain(format!("{}: {e}", self.name));
        self.words.next_line().await.map_err(fail)
    }

    /// Kills it: SIGKILL, to this very process.
    ///
    /// # Errors
    /// If it had ended by itself, which no plan foresees.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        self.child.start_kill().map_err(|e| Failure::plain(format!("{}: {e}", self.name)))?;
        let status = self.ended().await?;
        match status.code() {
            None => Ok(()),
            Some(code) => Err(Failure::plain(format!(
                "{} was to be killed, and ended by itself with exit code {code}",
                self.name
            ))),
        }
    }

    /// Asks it to finish what is under way and stop, hearing its last words, and waits until it has.
    ///
    /// # Errors
    /// If it does not stop in time.
    pub(crate) async fn finish(
        mut self,
        mut hear: impl FnMut(&str),
    ) -> Result<ExitStatus, Failure> {
        drop(self.stdin.take());
        while let Some(word) = in_time(self.name, self.word()).await?? {
            hear(&word);
        }
        self.ended().await
    }

    async fn ended(&mut self) -> Result<ExitStatus, Failure> {
        in_time(self.name, self.child.wait())
            .await?
            .map_err(|e| Failure::plain(format!("{}: {e}", self.name)))
    }
}

/// Waits, but not for ever.
///
/// # Errors
/// Who was waited for in vain.
pub(crate) async fn in_time<T>(who: &str, what: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::time::timeout(PATIENCE, what)
        .await
        .map_err(|_| Failure::plain(format!("{who} did nothing for {} s", PATIENCE.as_secs())))
}

/// Says a word to the parent. If nobody listens, the end of standard input says so as well.
pub(crate) fn say(word: &str) {
    let _ = terminal::data(word);
}

/// Waits until the parent asks to stop, or is gone.
pub(crate) async fn asked_to_finish() {
    let (ended, end) = tokio::sync::oneshot::channel();
    // A thread of its own, because a read of standard input cannot be called off.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}
