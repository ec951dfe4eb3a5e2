//! A Kafka server of a test's own: Apache Kafka from its published artifacts, one broker that is its own
//! controller, on loopback, on free ports, in a folder of its own, and killed at the end.
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

/// How long a server may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// A machine for tests starts servers more often than it runs them.
const JAVA: [&str; 4] =
    ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m", "-XX:-UsePerfData"];
/// Any id will do: no two of these clusters meet.
const CLUSTER: &str = "cG9zdHJpZGVyLXRlc3Qta2";
/// One of everything. A short session lets a killed broker register again at once; without a delay a new group
/// need not wait three seconds for more members. Topics are made by whoever needs them.
const PROPERTIES: &str = "process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=CLIENT
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=500
log.cleaner.dedupe.buffer.size=4194304
";
/// What the server says when clients are let in.
const STARTED: &str = "Kafka Server started";
const LOG: &str = "rootLogger.level=warn
rootLogger.appenderRef.o.ref=o
logger.s.name=kafka.server.KafkaRaftServer
logger.s.level=info
appender.o.type=Console
appender.o.name=o
appender.o.layout.type=PatternLayout
appender.o.layout.pattern=%d %p %m (%c)%n
";

/// A server, with what it keeps.
#[derive(Debug)]
pub struct KafkaServer {
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
}

/// The folder with the server's artifacts.
///
/// # Errors
///
/// The reason why there is none, with the command that mends it.
pub fn artifacts() -> Result<PathBuf, String> {
    let advice = "`cargo x services up kafka` fetches it";
    let folder = crate::services::folder()?.join("cache");
    let found = fs::read_dir(&folder).into_iter().flatten();
    let complete = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("kafka-") && !name.ends_with(".part") && path.is_dir()
    };
    let newest = found.filter_map(|entry| Some(entry.ok()?.path())).filter(complete).max();
    let jars = newest.ok_or_else(|| format!("Kafka's artifacts are not here; {advice}"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    match path.split(':').any(|folder| Path::new(folder).join("java").is_file()) {
        true => Ok(jars),
        false => Err(format!("java is not installed; {advice}")),
    }
}

impl KafkaServer {
    /// Starts one. More lines of properties win over its own; clients come by the listener `CLIENT`. Users that
    /// prove a password instead of sending it are given as `SCRAM-SHA-256=[name=N,password=P]`.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be, for the skip of the test.
    pub fn start(properties: &str, users: &[&str]) -> Result<KafkaServer, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let jars = artifacts()?;
        let shown = |error: io::Error| error.to_string();
        let free = || TcpListener::bind("127.0.0.1:0").map_err(shown);
        // Both at once, so that they differ.
        let listeners = [free()?, free()?];
        let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        let client = port(&listeners[0]).map_err(shown)?;
        let controller = port(&listeners[1]).map_err(shown)?;
        drop(listeners);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("postrider-kafka-{}-{number}-{client}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).map_err(shown)?;
        let mut server = KafkaServer { folder, port: client, child: None };
        let text = format!(
            "{PROPERTIES}controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=CLIENT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=CLIENT://127.0.0.1:{client}\nlog.dirs={}\n{properties}\n",
            server.folder.join("data").display()
        );
        fs::write(server.properties(), text).map_err(shown)?;
        fs::write(server.folder.join("log4j2.properties"), LOG).map_err(shown)?;
        server.format(&jars, users)?;
        server.run()?;
        Ok(server)
    }

    fn properties(&self) -> PathBuf {
        self.folder.join("server.properties")
    }

    fn java(&self, jars: &Path) -> Command {
        let mut command = Command::new("java");
        command
            .args(JAVA)
            .arg(format!(
                "-Dlog4j2.configurationFile={}",
                self.folder.join("log4j2.properties").display()
            ))
            .args(["-cp", &format!("{}/*", jars.display())])
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command
    }

    /// Prepares the folder of what the server keeps.
    fn format(&self, jars: &Path, users: &[&str]) -> Result<(), String> {
        let mut command = self.java(jars);
        command.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]);
        command.arg(self.properties());
        for user in users {
            command.args(["--add-scram", user]);
        }
        let output = command.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into()),
        }
    }

    /// Starts the program on what it kept, and waits until it answers.
    ///
    /// # Errors
    ///
    /// What the server wrote.
    pub fn run(&mut self) -> Result<(), String> {
        let shown = |error: io::Error| error.to_string();
        let jars = artifacts()?;
        let log = File::create(self.folder.join("log")).map_err(shown)?;
        let errors = log.try_clone().map_err(shown)?;
        let mut command = self.java(&jars);
        command.arg("kafka.Kafka").arg(self.properties()).stdout(log).stderr(errors);
        let child = self.child.insert(command.spawn().map_err(shown)?);
        let begun = Instant::now();
        loop {
            let ended = child.try_wait().map_err(shown)?.is_some();
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            if log.contains(STARTED) {
                return Ok(());
            }
            if ended || begun.elapsed() > PATIENCE {
                return Err(format!("the server does not answer: {log}"));
            }
            // waits: a foreign process gives no signal when it is ready
            sleep(Duration::from_millis(20));
        }
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

    /// The folder of the server, for files that its properties name.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for KafkaServer {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
