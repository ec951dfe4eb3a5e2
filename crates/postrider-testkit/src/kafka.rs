//! A Kafka server of a test's own: Apache Kafka from its published artifacts, one broker that is its own
//! controller, on loopback, on free ports, in a folder of its own, and killed at the end.
//!
//! Invariant: the process is gone, and its folder too, when the value is dropped.

#[cfg(feature = "kafka")]
mod group;
#[cfg(feature = "kafka")]
mod raw;
#[cfg(feature = "kafka")]
mod topics;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[cfg(feature = "kafka")]
pub use topics::Stored;

use crate::own_server::{OwnServer, derefs, free_ports, shown};
use crate::template::Template;

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
    process: OwnServer,
    port: u16,
    controller: u16,
    /// No file may be larger than so many bytes.
    file_max: Option<u64>,
    /// More settings of a test's own client.
    #[cfg(feature = "kafka")]
    client: Vec<(String, String)>,
}

derefs!(KafkaServer);

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
    /// Starts one. More lines of properties win over its own, but for its role, its number, and its folder; clients come by
    /// the listener `CLIENT`. Users that prove a password instead of sending it are given as
    /// `SCRAM-SHA-256=[name=N,password=P]`.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be, for the skip of the test.
    pub fn start(properties: &str, users: &[&str]) -> Result<KafkaServer, String> {
        let ports = free_ports(2)?;
        KafkaServer::of("", properties, users, (ports[0], ports[1]))
    }

    /// Starts one with a second listener, on `port`, whose clients are told to come by `advertised`: another port of
    /// this machine, behind which somebody carries to the first.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn behind(port: u16, advertised: u16) -> Result<KafkaServer, String> {
        KafkaServer::known_as(port, &format!("127.0.0.1:{advertised}"))
    }

    /// The same with clients who are told to come by a host and a port.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn known_as(port: u16, advertised: &str) -> Result<KafkaServer, String> {
        let ports = free_ports(2)?;
        let [client, controller] = ports[..] else { return Err("no ports".to_owned()) };
        let properties = format!(
            "listener.security.protocol.map=CLIENT:PLAINTEXT,FAR:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             listeners=CLIENT://127.0.0.1:{client},FAR://127.0.0.1:{port},\
             CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=CLIENT://127.0.0.1:{client},FAR://{advertised}\n"
        );
        KafkaServer::of("", &properties, &[], (client, controller))
    }

    /// Starts another server of this one's cluster, with a number from 2 on.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn join(&self, number: u32) -> Result<KafkaServer, String> {
        let port = free_ports(1)?[0];
        let role = format!("process.roles=broker\nnode.id={number}\n");
        KafkaServer::of(&role, "", &[], (port, self.controller))
    }

    fn of(
        role: &str,
        properties: &str,
        users: &[&str],
        (port, controller): (u16, u16),
    ) -> Result<KafkaServer, String> {
        let jars = artifacts()?;
        let process = OwnServer::new("kafka")?;
        let mut server = KafkaServer {
            process,
            port,
            controller,
            file_max: None,
            #[cfg(feature = "kafka")]
            client: Vec::new(),
        };
        let alone = role.is_empty();
        let own =
            if alone { format!(",CONTROLLER://127.0.0.1:{controller}") } else { String::new() };
        let text = format!(
            "{PROPERTIES}{role}controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=CLIENT://127.0.0.1:{port}{own}\n\
             advertised.listeners=CLIENT://127.0.0.1:{port}\n"
        );
        let all = format!("{text}log.dirs={}\n{properties}\n", server.data().display());
        fs::write(server.properties(), all).map_err(shown)?;
        fs::write(server.folder().join("log4j2.properties"), LOG).map_err(shown)?;
        server.prepare(&jars, &text, role, users)?;
        server.run()?;
        Ok(server)
    }

    fn properties(&self) -> PathBuf {
        self.folder().join("server.properties")
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    fn java(&self, jars: &Path) -> Command {
        let mut command = Command::new("java");
        if let Some(bytes) = self.file_max {
            // The shell counts in blocks of 512 bytes.
            let limited = format!("ulimit -f {} && exec \"$@\"", bytes / 512);
            command = Command::new("sh");
            command.args(["-c", &limited, "sh", "java"]);
        }
        // Among them `cargo x services` keeps their classes, loaded and verified: most of a start's time.
        let classes = jars.join("classes.jsa");
        if classes.exists() {
            command.arg(format!("-XX:SharedArchiveFile={}", classes.display()));
        }
        command
            .args(JAVA)
            .arg(format!(
                "-Dlog4j2.configurationFile={}",
                self.folder().join("log4j2.properties").display()
            ))
            .args(["-cp", &format!("{}/*", jars.display())])
            .current_dir(self.folder())
            .stdin(Stdio::null());
        command
    }

    /// Prepares the folder of what the server keeps: a copy of one that was formatted for the same role and users, which
    /// takes no Java.
    fn prepare(&self, jars: &Path, text: &str, role: &str, users: &[&str]) -> Result<(), String> {
        let data = self.data();
        let make = |half: &Path| self.format(jars, text, users, half);
        match formatted(jars, role, users).copy(&data, make) {
            Ok(()) => Ok(()),
            Err(_) => self.format(jars, text, users, &data),
        }
    }

    /// Formats a folder, by these properties.
    fn format(&self, jars: &Path, text: &str, users: &[&str], folder: &Path) -> Result<(), String> {
        let properties = self.folder().join("format.properties");
        fs::write(&properties, format!("{text}log.dirs={}\n", folder.display())).map_err(shown)?;
        let mut command = self.java(jars);
        command.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]).arg(properties);
        for user in users {
            command.args(["--add-scram", user]);
        }
        succeed(command)
    }

    /// Starts the program on what it kept, and waits until it answers.
    ///
    /// # Errors
    ///
    /// What the server wrote.
    pub fn run(&mut self) -> Result<(), String> {
        let mut command = self.java(&artifacts()?);
        command.arg("kafka.Kafka").arg(self.properties());
        self.process.spawn(command, PATIENCE, |log| log.contains(STARTED))
    }

    /// What the next run of the program finds: a disk on which no file can be larger than so many bytes, or one with
    /// room. Its index files have 10 MiB from the beginning.
    pub fn limit_files(&mut self, bytes: Option<u64>) {
        self.file_max = bytes;
    }

    /// Changes settings of the cluster with the server's own tool, like
    /// `--alter --add-config producer_byte_rate=1000 --entity-type clients --entity-default`.
    ///
    /// # Errors
    ///
    /// What the tool wrote.
    pub fn configure(&self, words: &[&str]) -> Result<(), String> {
        let mut command = self.java(&artifacts()?);
        command.args(["kafka.admin.ConfigCommand", "--bootstrap-server", &self.address()]);
        command.args(words);
        succeed(command)
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// The folder that servers of this version, this role, and with these users begin with. Where they listen says nothing of it.
/// It stands beside the jars and not among them: Java takes those in the order of their folder, and their classes are kept for
/// that order.
fn formatted(jars: &Path, role: &str, users: &[&str]) -> Template {
    let version = jars.file_name().unwrap_or_default().to_string_lossy();
    let from = [&[CLUSTER, PROPERTIES, role][..], users].concat();
    Template::of(&format!("formatted-{version}"), &from)
}

/// Runs a tool to its end.
fn succeed(mut command: Command) -> Result<(), String> {
    let output = command.output().map_err(shown)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_formatted_for_a_version_a_role_and_users() {
        let of = |jars: &str, role: &str, users: &[&str]| {
            format!("{:?}", formatted(Path::new(jars), role, users))
        };
        let joe = "SCRAM-SHA-256=[name=joe,password=sesame]";
        let usual = of("/a/kafka-1", "", &[]);
        assert_eq!(usual, of("/b/kafka-1", "", &[]));
        let others = [
            of("/a/kafka-2", "", &[]),
            of("/a/kafka-1", "node.id=2\n", &[]),
            of("/a/kafka-1", "", &[joe]),
        ];
        for other in others {
            assert_ne!(usual, other);
        }
        // What names the folder of the artifacts begins otherwise.
        assert!(usual.contains("formatted-kafka-1"), "{usual}");
    }
}
