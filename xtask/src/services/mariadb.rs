//! MariaDB with a binary log in row format, and an account `app` that may do everything.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::place::Place;
use super::{Service, daemon, package, port, probe};

/// Small, with every column of every row in the binary log, and names of columns as well.
pub(super) const OPTIONS: [&str; 13] = [
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--server-id=1",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--gtid-strict-mode=ON",
    "--innodb-flush-log-at-trx-commit=2",
    "--sync-binlog=0",
    "--innodb-buffer-pool-size=128M",
    "--performance-schema=OFF",
    "--max-connections=300",
];
const ACCOUNT: &str = "create user if not exists app@'%' identified by 'app'; \
    grant all on *.* to app@'%'; create database if not exists app";

/// See the module.
pub(crate) struct MariaDb;

impl Service for MariaDb {
    fn name(&self) -> &'static str {
        "mariadb"
    }

    fn purpose(&self) -> &'static str {
        "MariaDB with a binary log in row format"
    }

    fn offset(&self) -> u16 {
        6
    }

    fn reusable(&self) -> Option<String> {
        let app = ["-h127.0.0.1", "-P3306", "-uapp", "-papp"];
        let rows = probe::answers(3306)
            && query(&app, "select @@binlog_format").is_some_and(|format| format == "ROW");
        rows.then(|| url(3306))
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        let program = package::program(place, "mariadbd", "mariadb-server")?;
        let home = place.home()?;
        let (data, socket) = (home.join("data"), home.join("socket"));
        if !data.join("made").exists() {
            let _ = fs::remove_dir_all(&data);
            place.say("making a data folder");
            let mut make = place.command("mariadb-install-db")?;
            make.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
            make.arg("--skip-test-db").arg(format!("--datadir={}", data.display()));
            package::complete(&mut make)?;
            fs::write(data.join("made"), "").map_err(|error| error.to_string())?;
        }
        let port = port::choose(place, "sql", self.offset())?;
        let mut command = Command::new(program);
        command.arg("--no-defaults").args(OPTIONS).arg(format!("--port={port}"));
        command.arg(format!("--datadir={}", data.display()));
        command.arg(format!("--socket={}", socket.display()));
        command.arg(format!("--pid-file={}", home.join("process").display()));
        daemon::start(place, &command)?;
        let root = ["-h127.0.0.1".to_owned(), format!("-P{port}"), "-uroot".to_owned()];
        let root: Vec<&str> = root.iter().map(String::as_str).collect();
        daemon::ready(place, Duration::from_secs(60), || query(&root, "select 1").is_some())?;
        query(&root, ACCOUNT).ok_or("its account for tests could not be made")?;
        Ok(url(port))
    }
}

/// What the statement answers; nothing where it fails.
fn query(options: &[&str], statement: &str) -> Option<String> {
    let output = Command::new("mariadb")
        .args(["--no-defaults", "--protocol=tcp", "--connect-timeout=2", "-NBe", statement])
        .args(options)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn url(port: u16) -> String {
    format!("mysql://app:app@127.0.0.1:{port}/app")
}
