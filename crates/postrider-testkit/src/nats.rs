//! A NATS server of a test's own: on loopback, on a free port, in a folder of its own, and killed at the end.
//!
//! Invariant: the process is gone, and its folder too, when the value is dropped.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::own_server::{OwnServer, derefs, free_ports, shown};

/// How long a server may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with JetStream, on files.
#[derive(Debug)]
pub struct NatsServer {
    process: OwnServer,
    port: u16,
    config: String,
    jetstream: String,
}

derefs!(NatsServer);

/// Where the server's program is: in the folder that `POSTRIDER_NATS_BIN` names, or on the path.
///
/// # Errors
///
/// The reason why there is none, with the command that mends it.
pub fn program() -> Result<PathBuf, String> {
    let [chosen, path] =
        ["POSTRIDER_NATS_BIN", "PATH"].map(|name| std::env::var(name).unwrap_or_default());
    format!("{chosen}:{path}:/usr/local/sbin:/usr/sbin")
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
        NatsServer::start_within(config, "")
    }

    /// Starts one with more lines of configuration, and some for JetStream, like `max_file_store: 1000000`: a second
    /// block of that name would move its files out of the test's folder.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be, for the skip of the test.
    pub fn start_within(config: &str, jetstream: &str) -> Result<NatsServer, String> {
        NatsServer::start_below(&std::env::temp_dir(), config, jetstream)
    }

    /// The same with all that it keeps in a folder of its own in another one, as on a disk of its own.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be, for the skip of the test.
    pub fn start_below(below: &Path, config: &str, jetstream: &str) -> Result<NatsServer, String> {
        program()?;
        let port = free_ports(1)?[0];
        let process = OwnServer::new_below(below, "nats")?;
        let (config, jetstream) = (config.to_owned(), jetstream.to_owned());
        let mut server = NatsServer { process, port, config, jetstream };
        server.run()?;
        Ok(server)
    }

    /// Starts the program on what it kept, and waits until it answers.
    ///
    /// # Errors
    ///
    /// What the server wrote.
    pub fn run(&mut self) -> Result<(), String> {
        let folder = self.folder();
        let (path, store) = (folder.join("nats.conf"), folder.join("jetstream"));
        let text = format!(
            "listen: \"127.0.0.1:{}\"\njetstream {{\nstore_dir: {:?}\n{}\n}}\n{}\n",
            self.port,
            store.display().to_string(),
            self.jetstream,
            self.config
        );
        fs::write(&path, text).map_err(shown)?;
        let mut command = Command::new(program()?);
        command.arg("-c").arg(&path);
        let port = self.port;
        let ready = |_: &str| TcpStream::connect(("127.0.0.1", port)).is_ok();
        self.process.spawn(command, PATIENCE, ready)
    }

    /// Other lines of configuration, for its next start.
    pub fn configure(&mut self, config: &str) {
        config.clone_into(&mut self.config);
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
