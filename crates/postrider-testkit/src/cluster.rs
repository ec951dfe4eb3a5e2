//! A PostgreSQL server of a test's own: made, started, stopped in every way, and removed with the value.
//!
//! Invariants: it runs in a folder of its own on a free port, as a child of the test, under the account for
//! servers where the test runs as root; nothing of it is left when the value is dropped, also by a panic. It begins as a
//! copy of what `initdb` made once on this machine, so those of the same programs have one system identifier, but for such as
//! want one of their own.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::own_server::{free_ports, shown};
use crate::services;
use crate::template::Template;

/// A loaded machine takes long to start a server.
const PATIENCE: Duration = Duration::from_secs(90);

/// How a cluster is made.
const INITDB: [&str; 7] = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C"];
/// What every cluster has, unless its own settings say otherwise: small, for there are many at once.
const SETTINGS: [&str; 5] = [
    "max_connections = 150",
    "max_prepared_transactions = 100",
    "min_wal_size = '32MB'",
    "max_wal_size = '256MB'",
    "shared_buffers = '32MB'",
];

/// A cluster, and the server that runs on it, if it does.
#[derive(Debug)]
pub struct Cluster {
    folder: TempDir,
    programs: PathBuf,
    account: Option<(u32, u32)>,
    port: u16,
    server: Option<Child>,
    variables: Vec<(String, String)>,
}

/// A cluster that is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    settings: Vec<String>,
    below: Option<PathBuf>,
    programs: Option<PathBuf>,
    variables: Vec<(String, String)>,
    is_stranger: bool,
}

impl Wanted {
    /// Lines of `postgresql.conf`, such as `fsync = off`.
    #[must_use]
    pub fn settings(mut self, settings: &[&str]) -> Wanted {
        self.settings.extend(settings.iter().map(|&line| line.to_owned()));
        self
    }

    /// Its folder is made in this one.
    #[must_use]
    pub fn below(mut self, folder: &Path) -> Wanted {
        self.below = Some(folder.to_owned());
        self
    }

    /// With the server's programs of this folder, instead of those of the system's packages.
    #[must_use]
    pub fn programs(mut self, folder: PathBuf) -> Wanted {
        self.programs = Some(folder);
        self
    }

    /// The server runs with this variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Wanted {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// It has a system identifier that no other one has, as `initdb` gives it: for a test with two that must not be taken
    /// for one. Others are copies, and have one in common.
    #[must_use]
    pub fn with_identity_of_its_own(mut self) -> Wanted {
        self.is_stranger = true;
        self
    }

    /// Makes the cluster and starts its server.
    ///
    /// # Errors
    /// The reason why there are no programs for it, or no account.
    ///
    /// # Panics
    /// If the programs are there and fail.
    pub async fn start(self) -> Result<Cluster, String> {
        let programs = self.programs.clone().map_or_else(services::postgres_programs, Ok)?;
        let mut cluster = Cluster::nowhere(programs, services::account()?, self.below.as_deref());
        if self.is_stranger || cluster.copy_template().is_err() {
            cluster.run("initdb", &[&INITDB[..], &["-N", "-D", "DATA"]].concat());
        }
        cluster.set(&SETTINGS);
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        cluster.set(&settings);
        cluster.variables = self.variables;
        cluster.launch().await;
        Ok(cluster)
    }
}

impl Cluster {
    /// One with these settings that runs; `None`, with the reason printed, where there are no programs for it.
    pub async fn start(settings: &[&str]) -> Option<Cluster> {
        match Wanted::default().settings(settings).start().await {
            Ok(cluster) => Some(cluster),
            Err(reason) => {
                crate::suite::skip("what needs a server of its own", &reason);
                None
            }
        }
    }

    /// A folder without a cluster.
    fn nowhere(programs: PathBuf, account: Option<(u32, u32)>, below: Option<&Path>) -> Cluster {
        let below = below.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = TempDir::with_prefix_in("postrider-cluster-", below).expect("a folder");
        if let Some((user, group)) = account {
            chown(folder.path(), Some(user), Some(group)).expect("the folder is given away");
        }
        let port = free_ports(1).expect("a free port")[0];
        Cluster { folder, programs, account, port, server: None, variables: Vec::new() }
    }

    /// Begins with a copy of what `initdb` made for all tests with the same programs.
    ///
    /// # Errors
    /// There is none, and none can be made: the folder is as it was.
    fn copy_template(&self) -> Result<(), String> {
        let initdb = self.programs.join("initdb");
        let asked = Command::new(&initdb).arg("--version").output().map_err(shown)?;
        // `initdb (PostgreSQL) 15.18 (Debian …)`
        let version = String::from_utf8_lossy(&asked.stdout).into_owned();
        let number = version.split_whitespace().nth(2).ok_or("initdb does not say its version")?;
        let (initdb, how) = (initdb.display().to_string(), INITDB.join(" "));
        let account = format!("{:?}", self.account);
        // It writes into the settings which zone is the machine's.
        let zone = std::env::var("TZ").unwrap_or_default();
        let from = [&*initdb, &*version, &*how, &*account, &*zone];
        Template::of(&format!("cluster-{number}"), &from)
            .copy(&self.data(), |half| self.make_template(half))
    }

    /// Makes a cluster for others to be copied from. It may outlive a crash of the machine, so it is written to the disk.
    fn make_template(&self, half: &Path) -> Result<(), String> {
        if let Some((user, group)) = self.account {
            chown(half, Some(user), Some(group)).map_err(shown)?;
        }
        let ended = self.command("initdb", &INITDB).arg("-D").arg(half).status().map_err(shown)?;
        match ended.success() {
            true => Ok(()),
            false => Err(format!("initdb: {ended}\n{}", self.tail())),
        }
    }

    /// A standby that streams from this server, as an application of this name.
    ///
    /// It begins with a copy of the files while all processes stand still, which is what a crash would leave: the packages of
    /// other majors have no `pg_basebackup`.
    ///
    /// # Panics
    /// If the server does not run, or its files cannot be copied.
    pub async fn standby(&self, name: &str) -> Cluster {
        let mut standby = Cluster::nowhere(self.programs.clone(), self.account, None);
        self.signal("-STOP");
        let copied = Command::new("cp").arg("-a").args([self.data(), standby.data()]).status();
        self.signal("-CONT");
        assert!(copied.expect("cp runs").success(), "the files of the primary are copied");
        fs::remove_file(standby.data().join("postmaster.pid")).expect("the primary's process");
        standby.follow_as(self, &format!(" application_name={name}"));
        standby.launch().await;
        standby
    }

    /// Its address.
    pub fn url(&self) -> String {
        self.address("127.0.0.1", "")
    }

    /// As it is reached by this name of the host, with more of the address.
    pub fn address(&self, host: &str, rest: &str) -> String {
        format!("postgres://postgres@{host}:{}/postgres{rest}", self.port)
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Who runs the server, if that is another than who runs the test.
    pub fn account(&self) -> Option<(u32, u32)> {
        self.account
    }

    /// The folder for what a test writes with the server's programs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Adds lines to the settings, which count from the next start on.
    pub fn set(&self, settings: &[&str]) {
        let path = self.data().join("postgresql.conf");
        let mut file = File::options().append(true).open(path).expect("the settings");
        for setting in settings {
            writeln!(file, "{setting}").expect("a line");
        }
    }

    /// Leaves a file where the server finds it, for the server's eyes alone.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.data().join(name);
        fs::write(&path, text).expect("the file is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("permissions");
        if let Some((user, group)) = self.account {
            chown(&path, Some(user), Some(group)).expect("the file is given away");
        }
        path
    }

    /// Has this cluster follow another server from its next start on.
    pub fn follow(&self, primary: &Cluster) {
        self.follow_as(primary, "");
    }

    fn follow_as(&self, primary: &Cluster, name: &str) {
        let port = primary.port;
        let line = format!("primary_conninfo = 'host=127.0.0.1 port={port} user=postgres{name}'");
        self.set(&[&line, "recovery_target_timeline = 'latest'"]);
        self.write("standby.signal", "");
    }

    /// Whether a program is there; the packages of other majors have only the server's.
    pub fn has(&self, program: &str) -> bool {
        let there = self.programs.join(program).exists();
        if !there {
            crate::suite::skip(program, "it is not among the server's programs");
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
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, program: &str, args: &[&str]) {
        let ended = self.command(program, args).status().expect("the program starts");
        assert!(ended.success(), "{program} {args:?}: {ended}\n{}", self.tail());
    }

    fn tail(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Starts the server and waits until it takes connections.
    ///
    /// # Panics
    /// If it does not within 90 s.
    pub async fn launch(&mut self) {
        let port = self.port.to_string();
        let sockets = self.folder.path().display().to_string();
        let args = ["-D", "DATA", "-p", &port, "-k", &sockets, "-c", "listen_addresses=127.0.0.1"];
        let mut command = self.command("postgres", &args);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let server = command.spawn().expect("the server starts");
        let own = server.id().to_string();
        self.server = Some(server);
        let began = Instant::now();
        while !self.is_ready(&own) {
            assert!(began.elapsed() < PATIENCE, "the server does not answer\n{}", self.tail());
            // waits: a server that starts tells nobody when it is ready
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// By what it writes of itself: its number, and in the eighth line how far it is.
    fn is_ready(&self, own: &str) -> bool {
        let state = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = state.lines().map(str::trim);
        lines.next() == Some(own) && matches!(lines.nth(6), Some("ready" | "standby"))
    }

    /// Stops the server: `immediate` leaves everything to recovery, `fast` writes it out.
    pub fn stop(&mut self, mode: &str) {
        let Some(mut server) = self.server.take() else { return };
        let signal = if mode == "immediate" { "-QUIT" } else { "-INT" };
        if !tell(signal, &[server.id().to_string()]) {
            _ = server.kill();
        }
        // One that stands still would never hear of it. Its other processes are ended by the first one.
        tell("-CONT", &[server.id().to_string()]);
        _ = server.wait();
    }

    /// Sends every process of the server a signal by its name: `-STOP` has all of it stand still, and `-CONT` go on.
    ///
    /// # Panics
    /// If it does not run, or cannot be told.
    pub fn signal(&self, name: &str) {
        let first = self.server.as_ref().expect("it runs").id().to_string();
        // Each has a group of its own. The first one first: while it stands still it starts no others.
        assert!(tell(name, std::slice::from_ref(&first)), "{name} is sent to the server");
        let all = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output().expect("processes");
        let all = String::from_utf8_lossy(&all.stdout).into_owned();
        let of_first = |line: &str| {
            let (process, parent) = line.trim().split_once(char::is_whitespace)?;
            (parent.trim() == first).then(|| process.to_owned())
        };
        let others: Vec<String> = all.lines().filter_map(of_first).collect();
        // Some of them may just have ended.
        tell(name, &others);
    }

    /// Whether its server is there: one that cannot write its log ends by itself.
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| matches!(server.try_wait(), Ok(None)))
    }

    /// An immediate stop, and a start with recovery.
    pub async fn crash(&mut self) {
        self.stop("immediate");
        self.launch().await;
    }
}

/// Whether all of these processes were sent the signal.
fn tell(signal: &str, processes: &[String]) -> bool {
    let told = Command::new("kill").arg(signal).args(processes).stderr(Stdio::null()).status();
    told.is_ok_and(|ended| ended.success())
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop("immediate");
    }
}
