//! A server of the test's own: made, started, stopped in every way, and removed with the value.

use std::fs::File;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postrider_testkit::services;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// A loaded machine takes long to start a server.
const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster, and the server that runs on it, if it does.
pub(crate) struct Cluster {
    folder: TempDir,
    programs: PathBuf,
    account: Option<(u32, u32)>,
    port: u16,
    server: Option<Child>,
}

impl Cluster {
    /// A fresh cluster with a running server; `None` with the reason printed where there are no programs.
    pub(crate) async fn start(settings: &[&str]) -> Option<Cluster> {
        let mut cluster = Cluster::nowhere()?;
        cluster.run("initdb", &["-A", "trust", "-U", "postgres", "-E", "UTF8", "-N", "-D", "DATA"]);
        cluster.set(&["max_connections = 150", "max_prepared_transactions = 100"]);
        cluster.set(&[
            "min_wal_size = '32MB'",
            "max_wal_size = '256MB'",
            "shared_buffers = '32MB'",
        ]);
        cluster.set(settings);
        cluster.launch().await;
        Some(cluster)
    }

    /// A folder without a cluster.
    fn nowhere() -> Option<Cluster> {
        let needs = services::postgres_programs().and_then(|it| Ok((it, services::account()?)));
        let (programs, account) = match needs {
            Ok(found) => found,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return None;
            }
        };
        let folder = TempDir::with_prefix("postrider-cluster-").expect("a folder");
        if let Some((user, group)) = account {
            chown(folder.path(), Some(user), Some(group)).expect("the folder is given away");
        }
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("its number").port();
        Some(Cluster { folder, programs, account, port, server: None })
    }

    /// A standby that streams from this server.
    pub(crate) async fn standby(&self) -> Option<Cluster> {
        let mut standby = Cluster::nowhere()?;
        let from = self.url();
        standby
            .run("pg_basebackup", &["-d", &from, "-D", "DATA", "-R", "-X", "stream", "-c", "fast"]);
        standby.launch().await;
        Some(standby)
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Who runs the server, if that is another than who runs the test.
    pub(crate) fn account(&self) -> Option<(u32, u32)> {
        self.account
    }

    /// The folder for what a test writes with the server's programs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Adds lines to the settings.
    pub(crate) fn set(&self, settings: &[&str]) {
        use std::io::Write as _;
        let path = self.data().join("postgresql.conf");
        let mut file = File::options().append(true).open(path).expect("the settings");
        for setting in settings {
            writeln!(file, "{setting}").expect("a line");
        }
    }

    /// Has this cluster follow another server from its next start on.
    pub(crate) fn follow(&self, primary: &Cluster) {
        let line =
            format!("primary_conninfo = 'host=127.0.0.1 port={} user=postgres'", primary.port);
        self.set(&[&line, "recovery_target_timeline = 'latest'"]);
        let signal = self.data().join("standby.signal");
        File::create(&signal).expect("the signal");
        if let Some((user, group)) = self.account {
            chown(&signal, Some(user), Some(group)).expect("the signal is given away");
        }
    }

    /// Whether a program is there; the tarballs of other majors have only the server's.
    pub(crate) fn has(&self, program: &str) -> bool {
        let there = self.programs.join(program).exists();
        if !there {
            eprintln!("skipped: {program} is not among the server's programs");
        }
        there
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join(program));
        let data = self.data();
        for arg in args {
            match *arg {
                "DATA" => command.arg(&data),
                other => command.arg(other),
            };
        }
        let log = File::options().append(true).create(true).open(self.log()).expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        command.current_dir(self.folder.path()).env("PGCONNECT_TIMEOUT", "60");
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Runs one of the server's programs to its end. `DATA` stands for the cluster's folder.
    pub(crate) fn run(&self, program: &str, args: &[&str]) {
        let ended = self.command(program, args).status().expect("the program starts");
        assert!(ended.success(), "{program} {args:?}: {ended}\n{}", self.tail());
    }

    fn tail(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Starts the server and waits until it answers.
    pub(crate) async fn launch(&mut self) {
        let port = self.port.to_string();
        let sockets = self.folder.path().display().to_string();
        let args = ["-D", "DATA", "-p", &port, "-k", &sockets, "-c", "listen_addresses=127.0.0.1"];
        self.server = Some(self.command("postgres", &args).spawn().expect("the server starts"));
        let began = Instant::now();
        while try_connect(&self.url()).await.is_none() {
            assert!(began.elapsed() < PATIENCE, "the server does not answer\n{}", self.tail());
            // waits: a server that starts tells nobody when it is ready
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops the server: `immediate` leaves everything to recovery, `fast` writes it out.
    pub(crate) fn stop(&mut self, mode: &str) {
        let Some(mut server) = self.server.take() else { return };
        let stopped = self.command("pg_ctl", &["-D", "DATA", "-m", mode, "-w", "stop"]).status();
        if !stopped.is_ok_and(|ended| ended.success()) {
            _ = server.kill();
        }
        _ = server.wait();
    }

    /// An immediate stop, and a start with recovery.
    pub(crate) async fn crash(&mut self) {
        self.stop("immediate");
        self.launch().await;
    }

    /// Kills the session's process, as a fault of the server's own would.
    pub(crate) async fn kill_backend(&self, client: &Client) {
        let row = client.query_one("select pg_backend_pid()", &[]).await.expect("a number");
        let process = row.get::<_, i32>(0).to_string();
        let killed = Command::new("kill").args(["-9", &process]).status().expect("kill runs");
        assert!(killed.success());
    }

    pub(crate) async fn connect(&self) -> Client {
        connect(&self.url()).await
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop("immediate");
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let began = Instant::now();
    loop {
        if let Some(client) = try_connect(url).await {
            return client;
        }
        assert!(began.elapsed() < PATIENCE, "no connection");
        // waits: a server that starts tells nobody when it is ready
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A connection that answers, or nothing.
pub(crate) async fn try_connect(url: &str) -> Option<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.ok()?;
    tokio::spawn(connection);
    client.simple_query("select 1").await.ok()?;
    Some(client)
}
