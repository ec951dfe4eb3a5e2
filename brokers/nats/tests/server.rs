//! A server of a test's own: on loopback, on a free port, in a temporary folder, and killed at the end.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_nats::jetstream::{self, Context, stream};
use postrider_nats::NatsSettings;
use tempfile::TempDir;

/// How long a server may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    folder: TempDir,
    port: u16,
    config: String,
    child: Option<Child>,
}

/// Where the server's program is, or why there is none.
pub(crate) fn program() -> Result<PathBuf, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin")
        .split(':')
        .map(|folder| PathBuf::from(folder).join("nats-server"))
        .find(|path| path.is_file())
        .ok_or_else(|| "nats-server is not installed; `cargo x services up nats`".to_owned())
}

impl Server {
    /// Starts one with JetStream; `None`, with the reason printed, where there is no program.
    pub(crate) async fn start() -> Option<Server> {
        Server::with("").await
    }

    /// Starts one with more lines of configuration.
    pub(crate) async fn with(config: &str) -> Option<Server> {
        if let Err(reason) = program() {
            println!("skipped: a server of NATS: {reason}");
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server { folder, port, config: config.to_owned(), child: None };
        server.run().await;
        Some(server)
    }

    /// Starts the program on what it kept, and waits until it answers.
    pub(crate) async fn run(&mut self) {
        let path = self.folder.path().join("nats.conf");
        let store = self.folder.path().join("jetstream");
        let text = format!(
            "listen: \"127.0.0.1:{}\"\njetstream {{ store_dir: {:?} }}\n{}\n",
            self.port,
            store.display().to_string(),
            self.config
        );
        std::fs::write(&path, text).unwrap();
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(program().unwrap());
        command.arg("-c").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let begun = std::time::Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "{}", self.log());
            // waits: a foreign process has no signal for being ready
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What the server wrote.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends a signal to it, by its name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &*id]).status().unwrap().success());
    }

    pub(crate) fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn settings(&self) -> NatsSettings {
        NatsSettings::new(self.address())
    }

    /// A client of the test's own, that reads what is really there.
    pub(crate) async fn jetstream(&self) -> Context {
        let client = async_nats::connect(self.address()).await.unwrap();
        jetstream::new(client)
    }

    /// A stream that takes a subject.
    pub(crate) async fn stream(&self, name: &str, subject: &str) -> stream::Stream {
        self.stream_of(stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            ..stream::Config::default()
        })
        .await
    }

    pub(crate) async fn stream_of(&self, config: stream::Config) -> stream::Stream {
        self.jetstream().await.get_or_create_stream(config).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
