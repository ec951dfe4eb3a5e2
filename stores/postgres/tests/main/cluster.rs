//! A server of a test's own, which it may stop, demote, and give certificates.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postrider_postgres::{Names, init};
use postrider_testkit::services;
use postrider_testkit::suite::skip;
use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::support::Fresh;

/// How long a server may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    folder: TempDir,
    programs: PathBuf,
    account: Option<(u32, u32)>,
    pub(crate) port: u16,
    server: Option<Child>,
}

impl Cluster {
    /// An empty one that runs; `None`, with the reason printed, where there are no programs for it.
    pub(crate) async fn start() -> Option<Cluster> {
        let found = services::postgres_programs().and_then(|p| Ok((p, services::account()?)));
        let (programs, account) = match found {
            Ok(found) => found,
            Err(reason) => {
                skip("what needs a server of its own", &reason);
                return None;
            }
        };
        let mut cluster = Cluster::beside(programs, account);
        let data = cluster.data();
        let made = cluster
            .program("initdb")
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .output();
        assert!(made.expect("initdb").status.success());
        cluster.run().await;
        Some(cluster)
    }

    /// A standby of this name that follows.
    pub(crate) async fn standby(&self, name: &str) -> Cluster {
        let mut standby = Cluster::beside(self.programs.clone(), self.account);
        let source =
            format!("host=127.0.0.1 port={} user=postgres application_name={name}", self.port);
        let data = standby.data();
        let copied = standby
            .program("pg_basebackup")
            .args(["-R", "-c", "fast", "--no-sync", "-d", &source, "-D"])
            .arg(&data)
            .output()
            .expect("pg_basebackup");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        standby.run().await;
        standby
    }

    fn beside(programs: PathBuf, account: Option<(u32, u32)>) -> Cluster {
        let folder = tempfile::tempdir().expect("a folder");
        if let Some((user, group)) = account {
            chown(folder.path(), Some(user), Some(group)).expect("the folder is the account's");
        }
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("an address").port();
        Cluster { folder, programs, account, port, server: None }
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Runs the server, and waits until it answers.
    pub(crate) async fn run(&mut self) {
        let log = fs::File::create(self.folder.path().join("log")).expect("a log");
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "max_connections=40",
            "shared_buffers=16MB",
        ] {
            command.args(["-c", setting]);
        }
        self.server = Some(command.stderr(log).spawn().expect("the server starts"));
        let until = Instant::now() + PATIENCE;
        while tokio_postgres::connect(&self.url(), NoTls).await.is_err() {
            assert!(Instant::now() < until, "the server does not answer: {}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await; // waits: the server starts
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Stops it at once, as a crash does.
    pub(crate) fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        _ = Command::new("kill").args(["-QUIT", &server.id().to_string()]).status();
        _ = server.wait();
    }

    /// As it is reached by this name of the host, with more of the address.
    pub(crate) fn address(&self, host: &str, rest: &str) -> String {
        format!("postgres://postgres@{host}:{}/postgres{rest}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        self.address("127.0.0.1", "")
    }

    /// A schema with tables.
    pub(crate) async fn fresh(&self, partitions: u16) -> Fresh {
        let fresh = Fresh::at(&self.url(), Names::default());
        init(&fresh.url, &fresh.setup(partitions)).await.expect("the tables are made");
        fresh
    }

    /// Leaves a file where the server finds it, for the server's eyes alone.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.data().join(name);
        fs::write(&path, text).expect("the file is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("permissions");
        self.give(&path);
        path
    }

    fn give(&self, path: &Path) {
        if let Some((user, group)) = self.account {
            chown(path, Some(user), Some(group)).expect("the file is the account's");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}
