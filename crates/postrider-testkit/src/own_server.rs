//! A server process of a test's own: in a folder of its own, on a free port of loopback, and killed at the end.
//!
//! Invariant: the process is gone, and its folder too, when the value is dropped.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The process, and what it keeps.
#[derive(Debug)]
pub struct OwnServer {
    folder: PathBuf,
    child: Option<Child>,
}

/// Where ports are looked for: below what systems give to outgoing connections, so that a server that was killed
/// finds its port free when it is started again.
const PORTS: std::ops::Range<u16> = 10_000..26_000;
/// Ports that one process goes through before it begins anew. Programs that run side by side look elsewhere.
const PORTS_OF_ONE: u16 = 100;

/// So many ports that nobody listens on now, each another one.
///
/// # Errors
/// This machine has none.
pub fn free_ports(count: usize) -> Result<Vec<u16>, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let width = u32::from(PORTS_OF_ONE);
    let programs = u32::from(PORTS.end - PORTS.start) / width;
    let first = u32::from(PORTS.start) + std::process::id() % programs * width;
    let ports = (0..width).map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed) % width);
    // An error is a port that somebody has.
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports = ports.filter_map(|port| u16::try_from(port).ok()).filter(is_free);
    let free: Vec<u16> = ports.take(count).collect();
    match free.len() == count {
        true => Ok(free),
        false => Err(format!("of {width} ports from {first} on fewer than {count} are free")),
    }
}

pub(crate) fn shown(error: io::Error) -> String {
    error.to_string()
}

impl OwnServer {
    /// A folder for a server that does not run yet.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new(name: &str) -> Result<OwnServer, String> {
        OwnServer::new_below(&std::env::temp_dir(), name)
    }

    /// The same in another folder than that for temporary files.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new_below(below: &Path, name: &str) -> Result<OwnServer, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("postrider-{name}-{}-{number}", std::process::id());
        let folder = below.join(name);
        fs::create_dir_all(&folder).map_err(shown)?;
        Ok(OwnServer { folder, child: None })
    }

    /// Starts a program, and waits until it is ready. Its log is told what it wrote.
    ///
    /// # Errors
    /// What the server wrote, if it ends or takes longer than `patience`.
    pub(crate) fn spawn(
        &mut self,
        mut command: Command,
        patience: Duration,
        ready: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        let log = File::create(self.folder.join("log")).map_err(shown)?;
        let errors = log.try_clone().map_err(shown)?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        self.child = Some(command.spawn().map_err(shown)?);
        let begun = Instant::now();
        while !ready(&self.log()) {
            let ended = match &mut self.child {
                Some(child) => child.try_wait().map_err(shown)?.is_some(),
                None => true,
            };
            if ended || begun.elapsed() > patience {
                return Err(format!("the server does not answer: {}", self.log()));
            }
            // waits: a foreign process gives no signal when it is ready
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal by its name, like `-STOP`; whether it was sent.
    pub fn signal(&self, name: &str) -> bool {
        let Some(child) = &self.child else { return false };
        let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
        sent.is_ok_and(|status| status.success())
    }

    /// What the server wrote since it was started last.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The folder of the server, for files that its settings name.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Gives a server what its process can do.
macro_rules! derefs {
    ($server:ty) => {
        impl std::ops::Deref for $server {
            type Target = $crate::own_server::OwnServer;

            fn deref(&self) -> &Self::Target {
                &self.process
            }
        }

        impl std::ops::DerefMut for $server {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.process
            }
        }
    };
}

pub(crate) use derefs;
