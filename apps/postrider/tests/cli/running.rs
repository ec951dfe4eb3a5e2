//! Commands that run for a while: what they say is read line by line, and waited for.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than any step of it takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Longer than all lines up to the one that is waited for take.
const LINES_WITHIN: Duration = Duration::from_secs(300);

/// A process whose standard error is read. It is killed when the test is over.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Running { child, lines: receiver, said: Vec::new() }
    }

    /// Waits until a line with this text is said, and returns it. Whoever says something else is still at work.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + LINES_WITHIN;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left.min(PATIENCE)) {
                Ok(line) => {
                    self.said.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(_) => panic!("`{text}` was not said, but:\n{}", self.said.join("\n")),
            }
        }
    }

    /// Whether a line with this text was said by now, and not waited for yet.
    pub(crate) fn has_said(&mut self, text: &str) -> bool {
        let lines: Vec<String> = self.lines.try_iter().collect();
        self.said.extend(lines.iter().cloned());
        lines.iter().any(|line| line.contains(text))
    }

    /// All that was said until the line that was waited for last.
    pub(crate) fn heard(&self) -> String {
        self.said.join("\n")
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops it gracefully, and waits.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        // waits: for another process's file, which gives no signal.
        std::thread::sleep(Duration::from_millis(10));
    }
}
