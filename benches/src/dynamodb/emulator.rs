//! An emulator of a contender's own. The vendor's emulator slows down by what it has done before, from many hundred
//! transactions a second to forty within a run, so nobody is measured on one that another has used.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::direct;
use crate::Result;

/// Where its program is, which `cargo x services` fetches.
const HOME: &str = "POSTRIDER_DDB_HOME";
/// Memory for a hundred thousand items, and what the stream keeps of them.
const HEAP: &str = "-Xmx2g";
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// A running one, which ends with this.
pub(super) struct Emulator {
    child: Child,
    pub(super) url: String,
}

impl Emulator {
    /// Starts one, in memory, and waits until it answers.
    pub(super) fn start(runtime: &Runtime) -> Result<Emulator> {
        let home = std::env::var(HOME).map(PathBuf::from).map_err(|_| {
            format!("{HOME} names no folder: `cargo x services up ddb`, and `cargo x services env`")
        })?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = command(&home, port).spawn()?;
        let emulator = Emulator { child, url: format!("http://127.0.0.1:{port}") };
        emulator.ready(runtime)?;
        Ok(emulator)
    }

    fn ready(&self, runtime: &Runtime) -> Result<()> {
        let began = Instant::now();
        let connection = direct(&self.url)?;
        loop {
            let asked = async { connection.tables().await.list_tables().limit(1).send().await };
            match runtime.block_on(asked) {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => std::thread::sleep(PAUSE), // waits: a server that starts tells nobody when it is ready
            }
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn command(home: &Path, port: u16) -> Command {
    let mut command = Command::new("java");
    command.env("DDB_LOCAL_TELEMETRY", "0").arg(HEAP);
    command.arg(format!("-Djava.library.path={}", home.join("DynamoDBLocal_lib").display()));
    command.arg("-jar").arg(home.join("DynamoDBLocal.jar"));
    command.args(["-inMemory", "-sharedDb", "-disableTelemetry", "-port", &port.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
