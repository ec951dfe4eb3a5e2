//! Apache Kafka itself, as one broker that is its own controller, from its published artifacts.
//!
//! One on the standard port is reused if it shows that it can do the same: that it answers says nothing on whether
//! transactions work with the replication it was told. Tests start servers of their own with what is fetched and prepared here.

mod capable;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::place::Place;
use super::{Preparation, Service, daemon, package, port, probe};

pub(super) const VERSION: &str = "4.2.0";
/// Where others have theirs.
const STANDARD: u16 = 9092;
/// Where ours has it.
const OFFSET: u16 = 92;
/// For one that was just started to make or load its own topics. Where none listens, nothing is waited for.
const LOADING: Duration = Duration::from_secs(20);
/// Gives the broker a log; without one it is silent.
const LOGGING: &str = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3";
/// A machine for tests has more services than memory, and starts them more often than it runs them.
const JAVA: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m"];
/// Any id will do, always the same: a cluster is formatted once.
const CLUSTER: &str = "cG9zdHJpZGVyLWRldi1rYQ";
/// One broker, so one replica of everything. A short session lets a killed broker register again at
/// once; without a delay a new group need not wait three seconds for more members. Topics are made
/// by whoever needs them: that one does not exist is a case to test.
pub(super) const PROPERTIES: &str = "process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=500
";
const LOG: &str = "rootLogger.level=warn
rootLogger.appenderRef.o.ref=o
appender.o.type=Console
appender.o.name=o
appender.o.layout.type=PatternLayout
appender.o.layout.pattern=%d %p %m (%c)%n
";
/// Asks which requests are known, version 0: length, key 18, version, number, name of the client.
const API_VERSIONS: &[u8] = b"\0\0\0\x0f\0\x12\0\0\0\0\0\x01\0\x05probe";

/// How long the server may take to answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// See the module.
pub(crate) struct Kafka;

impl Service for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn purpose(&self) -> &'static str {
        "Apache Kafka, one broker"
    }

    fn offset(&self) -> u16 {
        OFFSET
    }

    fn reusable(&self) -> Option<String> {
        capable::is_capable(STANDARD, LOADING).then(|| url(STANDARD))
    }

    /// Tests want to kill theirs, and one that idles takes more than many a test.
    fn preparation(&self) -> Option<Preparation> {
        Some(|place| prepare(place).map(drop))
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        let (command, port) = prepare(place)?;
        daemon::start(place, &command)?;
        daemon::ready(place, PATIENCE, || answers(port))?;
        Ok(url(port))
    }
}

/// Fetches it, formats its folder, and keeps its classes: the command that starts a server, and the port that it has then.
fn prepare(place: &Place) -> Result<(Command, u16), String> {
    package::program(place, "java", "default-jre-headless")?;
    let broker = format!("org.apache.kafka:kafka_2.13:{VERSION}");
    let jars = package::maven(place, &format!("kafka-{VERSION}"), &[&broker, LOGGING])?;
    let port = port::choose(place, "client", OFFSET)?;
    let controller = port::choose(place, "controller", 93)?;
    let data = place.home()?.join("data");
    let text = format!(
        "{PROPERTIES}controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={}\n",
        data.display()
    );
    let properties = place.write("server.properties", &text)?;
    let log = place.write("log4j2.properties", LOG)?;
    if !data.join("meta.properties").exists() {
        let mut format = place.command("java")?;
        format.args(java(&jars, &log)).arg("kafka.tools.StorageTool").arg("format");
        package::complete(format.args(["-t", CLUSTER, "-c"]).arg(&properties))?;
    }
    if !archive(&jars).exists() {
        learn(place, &jars, &log, &properties, port)?;
    }
    let mut command = Command::new("java");
    command.args(java(&jars, &log)).arg("kafka.Kafka").arg(&properties);
    Ok((command, port))
}

/// Whether a server of Kafka is there. Answers begin with their length and the number of the request.
fn answers(port: u16) -> bool {
    probe::ask(port, API_VERSIONS).get(4..8) == Some(&[0, 0, 0, 1])
}

fn url(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Where the classes of a server are kept as its program has loaded and verified them: a start with them takes two thirds
/// of the processor's time, and tests start a hundred servers. Java that finds none, or one of another Java, goes without.
fn archive(jars: &Path) -> PathBuf {
    jars.join("classes.jsa")
}

/// Runs the server once, for its classes: they are written when it ends. Without them everything works, so what goes
/// wrong there is no failure.
///
/// # Errors
/// The server is not found capable. It is one as we want it, so it is the question that is wrong, and would refuse any.
fn learn(
    place: &Place,
    jars: &Path,
    log: &Path,
    properties: &Path,
    port: u16,
) -> Result<(), String> {
    place.say("keeping its classes, for faster starts");
    let half = place.home().map(|home| home.join("classes.jsa"));
    let mut is_capable = true;
    let written = half.and_then(|half| {
        let mut command = Command::new("java");
        command.arg(format!("-XX:ArchiveClassesAtExit={}", half.display()));
        command.args(java(jars, log)).arg("kafka.Kafka").arg(properties);
        daemon::start(place, &command)?;
        daemon::ready(place, PATIENCE, || answers(port))?;
        is_capable = capable::is_capable(port, PATIENCE);
        daemon::stop(place, "TERM")?;
        // Who asks in vain asks again the next time.
        let archived = match is_capable {
            true => fs::rename(&half, archive(jars)).map_err(|error| error.to_string()),
            false => Err("it is not found capable".to_owned()),
        };
        // Nothing of a try that failed is left.
        archived.inspect_err(|_| _ = fs::remove_file(&half))
    });
    if let Err(reason) = written {
        place.say(format!("its classes are not kept: {reason}"));
    }
    is_capable.then_some(()).ok_or_else(|| "a server as ours would not be reused".to_owned())
}

fn java(jars: &Path, log: &Path) -> Vec<String> {
    let mut arguments: Vec<String> = JAVA.map(str::to_owned).to_vec();
    if archive(jars).exists() {
        arguments.push(format!("-XX:SharedArchiveFile={}", archive(jars).display()));
    }
    arguments.push(format!("-Dlog4j2.configurationFile={}", log.display()));
    arguments.extend(["-cp".to_owned(), format!("{}/*", jars.display())]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_has_the_length_that_it_says() {
        let length = u32::from_be_bytes(API_VERSIONS[..4].try_into().unwrap());
        assert_eq!(length as usize, API_VERSIONS.len() - 4);
    }
}
