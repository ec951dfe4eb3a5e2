//! A child process, as the test holds it: what it says, and the signals it gets.
//!
//! Invariant: the child is gone when this is dropped.

use std::collections::VecDeque;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

/// How long a child may take to say what is waited for, and may say nothing before it ends: far beyond what anything here
/// takes, so that a test that hangs says where.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may get on before it ends: one that says the same for ever is found out.
const ENDS_MAX: Duration = Duration::from_secs(300);

/// So often a child may be found in the middle of a write: it writes for some milliseconds in each second.
const PAUSES_MAX: u32 = 100;

/// A running child.
pub(crate) struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    words: mpsc::UnboundedReceiver<String>,
    /// What it said before it was ready, and nobody has listened to yet.
    early: VecDeque<String>,
    /// Everything it said so far.
    pub(crate) heard: Vec<String>,
}

/// What a process left behind.
pub(crate) struct Ended {
    /// The exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Everything it said.
    pub(crate) heard: Vec<String>,
}

impl Process {
    /// Starts the child with arguments and a temporary folder of its own.
    pub(crate) fn start(mut command: Command, name: String) -> Process {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the child starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (sender, words) = mpsc::unbounded_channel();
        // Read always, so that a child never waits for us to listen.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Process {
            name,
            stdin: child.stdin.take(),
            child,
            words,
            early: VecDeque::new(),
            heard: Vec::new(),
        }
    }

    /// The next thing it says within the time; `None` if it says nothing more, or not in time.
    pub(crate) async fn listen(&mut self, within: Duration) -> Option<String> {
        if let Some(line) = self.early.pop_front() {
            return Some(line);
        }
        let line = tokio::time::timeout(within, self.words.recv()).await.ok().flatten()?;
        self.heard.push(line.clone());
        Some(line)
    }

    /// Waits until it says something that is wanted.
    pub(crate) async fn hear(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.listen(until.saturating_duration_since(Instant::now())).await {
                Some(line) if wanted(&line) => return line,
                Some(_) => {}
                None => panic!("{} never said {what}; it said {:#?}", self.name, self.tail()),
            }
        }
    }

    /// Waits until it says a word.
    pub(crate) async fn hear_word(&mut self, word: &str) -> String {
        self.hear(word, |line| line.split(' ').next() == Some(word)).await
    }

    /// Waits until it is ready. A relay runs when it says so, and may have reached the point at which it is held: what it said
    /// before is heard next.
    pub(crate) async fn ready(&mut self) {
        let first = self.heard.len();
        self.hear_word("ready").await;
        self.early.extend(self.heard[first..self.heard.len() - 1].iter().cloned());
    }

    /// Waits until it stands still where it was told to.
    pub(crate) async fn reached(&mut self) -> String {
        self.hear_word("reached").await
    }

    /// Releases what it holds.
    pub(crate) async fn release(&mut self) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        stdin.write_all(b"go\n").await.expect("the child listens");
        stdin.flush().await.expect("the child listens");
    }

    /// SIGKILL to this very process, which must still be running.
    pub(crate) async fn kill(mut self) -> Ended {
        self.child.start_kill().expect("the child is there");
        let ended = self.ended().await;
        assert_eq!(ended.code, None, "it was to be killed, and ended by itself: {:?}", ended.heard);
        ended
    }

    /// SIGKILL, unless it has ended: for one that may be through with its work.
    pub(crate) async fn kill_or_ended(mut self) -> Ended {
        // It may have ended a moment ago, which is no error.
        let _ = self.child.start_kill();
        self.ended().await
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn finish(mut self) -> Ended {
        self.stdin = None;
        self.ended().await
    }

    /// Waits until it ends by itself, as long as it gets on: what one event costs depends on the machine, and how many there
    /// are on what was killed before.
    pub(crate) async fn ended(mut self) -> Ended {
        let last = Instant::now() + ENDS_MAX;
        let mut until = Instant::now() + PATIENCE;
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status.expect("a status"),
                Some(line) = self.words.recv() => {
                    self.heard.push(line);
                    until = last.min(Instant::now() + PATIENCE);
                }
                // waits: as long as it gets on
                () = tokio::time::sleep_until(until.into()) => {
                    panic!("{} does not end; it said {:#?}", self.name, self.tail());
                }
            }
        };
        while let Some(line) = self.words.recv().await {
            self.heard.push(line);
        }
        Ended { code: status.code(), heard: std::mem::take(&mut self.heard) }
    }

    /// SIGSTOP: it stands still as a whole, its clock does not.
    pub(crate) fn pause(&self) {
        kill_process(self.pid(), Signal::STOP).expect("the child is there");
    }

    /// SIGSTOP while it writes nothing to this database: who stands still in the middle of a write keeps SQLite's lock for as
    /// long, and nobody else could begin.
    pub(crate) fn pause_between_writes(&self, database: &Connection) {
        let write = |patience| {
            database.busy_timeout(patience)?;
            database.execute_batch("begin immediate; rollback")
        };
        for _ in 0..PAUSES_MAX {
            self.pause();
            self.stands_still();
            if write(Duration::ZERO).is_ok() {
                return;
            }
            self.resume();
            write(PATIENCE).expect("its write ends");
        }
        panic!("{} was writing each time that it was stopped", self.name);
    }

    /// Returns when none of its threads runs: the signal is given, and not yet taken, when it is sent.
    #[cfg(target_os = "linux")]
    fn stands_still(&self) {
        let tasks = format!("/proc/{}/task", self.pid().as_raw_nonzero());
        let is_still = || {
            let tasks = std::fs::read_dir(&tasks).expect("its threads");
            // The state stands behind the name, which ends with the last bracket.
            tasks.flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't']))
            })
        };
        while !is_still() {
            std::thread::yield_now();
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn stands_still(&self) {}

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        kill_process(self.pid(), Signal::CONT).expect("the child is there");
    }

    /// Its id, for signals and limits.
    pub(crate) fn pid(&self) -> Pid {
        let id = self.child.id().expect("the child was not waited for");
        Pid::from_raw(id.cast_signed()).expect("a process has an id")
    }

    fn tail(&self) -> &[String] {
        &self.heard[self.heard.len().saturating_sub(20)..]
    }
}

impl Ended {
    /// What came after a word, in order.
    pub(crate) fn all(&self, word: &str) -> Vec<String> {
        let said = self.heard.iter().filter_map(|line| line.split_once(' '));
        said.filter(|(first, _)| *first == word).map(|(_, rest)| rest.to_owned()).collect()
    }
}
