//! A NATS server of a test's own: on loopback, on a free port, in a folder of its own, and killed at the end.
//!
//! Invariant: the process is gone, and its folder too, when the value is dropped.

use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a server may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server with JetStream, on files.
#[derive(Debug)]
pub struct NatsServer {
    folder: PathBuf,
    port: u16,
    config: String,
    child: Option<Child>,
}

/// Where the server's program is.
///
/// # Errors
///
/// The reason why there is none, with the command that mends it.
pub fn program() -> Result<PathBuf, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin")
        .split(':')
        .map(|folder| Path::new(folder).join("nats-server"))
        .find(|path| path.is_file())
        .ok_or_else(|| "nats-server is not installed; `cargo x services up nats`".to_owned())
}

impl NatsServer {
    /// Starts one, with more lines of configuration.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be, for the skip of the test.
    pub fn start(config: &str) -> Result<NatsServer, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        program()?;
        let shown = |error: io::Error| error.to_string();
        let listener = TcpListener::bind("127.0.0.1:0").map_err(shown)?;
        let port = listener.local_addr().map_err(shown)?.port();
        drop(listener);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("postrider-nats-{}-{number}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).map_err(shown)?;
        let mut server = NatsServer { folder, port, config: config.to_owned(), child: None };
        server.run()?;
        Ok(server)
    }

    /// Starts the program on what it kept, and waits until it answers.
    ///
    /// # Errors
    ///
    /// What the server wrote.
    pub fn run(&mut self) -> Result<(), String> {
        let shown = |error: io::Error| error.to_string();
        let (path, store) = (self.folder.join("nats.conf"), self.folder.join("jetstream"));
        let text = format!(
            "listen: \"127.0.0.1:{}\"\njetstream {{ store_dir: {:?} }}\n{}\n",
            self.port,
            store.display().to_string(),
            self.config
        );
        fs::write(&path, text).map_err(shown)?;
        let log = File::create(self.folder.join("log")).map_err(shown)?;
        let mut command = Command::new(program()?);
        command.arg("-c").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = self.child.insert(command.spawn().map_err(shown)?);
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = child.try_wait().map_err(shown)?;
            if ended.is_some() || begun.elapsed() > PATIENCE {
                return Err(format!("the server does not answer: {}", self.log()));
            }
            // waits: a foreign process gives no signal when it is ready
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Other lines of configuration, for its next start.
    pub fn configure(&mut self, config: &str) {
        config.clone_into(&mut self.config);
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

    /// What the server wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `nats://127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
