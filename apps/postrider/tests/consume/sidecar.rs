//! A sidecar as the test holds it: what it tells people, and the signals it gets.
//!
//! Invariant: the process is gone when this is dropped.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// How long a process may take to say what is waited for, or to end.
const PATIENCE: Duration = Duration::from_secs(40);

/// A running process.
pub(crate) struct Sidecar {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
    /// Everything it told so far.
    pub(crate) heard: Vec<String>,
}

/// What a process left behind.
pub(crate) struct Ended {
    /// The exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Everything it told, in one line.
    pub(crate) text: String,
}

impl Sidecar {
    /// Starts a process whose standard error is listened to.
    pub(crate) fn start(mut command: Command) -> Sidecar {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, lines) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = told.next_line().await {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Sidecar { child, lines, heard: Vec::new() }
    }

    /// Waits until it tells something.
    pub(crate) async fn hear(&mut self, words: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.lines.recv()).await {
                Ok(Some(line)) => {
                    self.heard.push(line.clone());
                    if line.contains(words) {
                        return line;
                    }
                }
                _ => panic!("it never told `{words}`: {:#?}", self.heard),
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("it was not waited for");
        kill_process(Pid::from_raw(id.cast_signed()).unwrap(), signal).unwrap();
    }

    /// SIGKILL, while it runs.
    pub(crate) async fn kill(mut self) -> Ended {
        self.child.start_kill().unwrap();
        let ended = self.ended().await;
        assert_eq!(ended.code, None, "it was to be killed, and ended by itself: {}", ended.text);
        ended
    }

    /// SIGTERM, and waits until it has stopped, as it should.
    pub(crate) async fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        let ended = self.ended().await;
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        ended
    }

    /// Waits until it ends.
    pub(crate) async fn ended(mut self) -> Ended {
        let status = match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => {
                while let Ok(line) = self.lines.try_recv() {
                    self.heard.push(line);
                }
                panic!("it does not end: {:#?}", self.heard)
            }
        };
        while let Some(line) = self.lines.recv().await {
            self.heard.push(line);
        }
        let words = self.heard.iter().flat_map(|line| line.split_whitespace());
        Ended { code: status.code(), text: words.collect::<Vec<_>>().join(" ") }
    }
}
