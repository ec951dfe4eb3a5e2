//! The signals that ask a process to stop, or to read its configuration again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// How somebody asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// An orchestrator: SIGTERM.
    Terminate,
    /// A person at the keyboard: SIGINT.
    Interrupt,
    /// Read the configuration again: SIGHUP, of those that reload.
    Reload,
}

/// The signals, caught from now on.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    /// Begins to catch them.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn catch() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: None,
        })
    }

    /// The same, and SIGHUP, which ends other programs: for those that reload.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn catch_reload() -> io::Result<Signals> {
        let hangup = Some(signal(SignalKind::hangup())?);
        Ok(Signals { hangup, ..Signals::catch()? })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Terminate,
            _ = self.interrupt.recv() => Asked::Interrupt,
            _ = hangup(self.hangup.as_mut()) => Asked::Reload,
        }
    }
}

/// Resolves at a SIGHUP that is caught; never where it is not.
async fn hangup(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}
