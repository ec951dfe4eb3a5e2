//! Redis, in memory alone.

use std::process::Command;
use std::time::Duration;

use super::place::Place;
use super::{Service, daemon, package, port, probe};

/// See the module.
pub(crate) struct Redis;

impl Service for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn purpose(&self) -> &'static str {
        "Redis, in memory"
    }

    fn offset(&self) -> u16 {
        79
    }

    /// Its last database: the first ones are likely to be somebody's.
    fn reusable(&self) -> Option<String> {
        serves(6379).then(|| format!("{}/9", url(6379)))
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        let program = package::program(place, "redis-server", "redis-server")?;
        let port = port::choose(place, "client", self.offset())?;
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
        command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(place.home()?);
        daemon::start(place, &command)?;
        daemon::ready(place, Duration::from_secs(20), || serves(port))?;
        Ok(url(port))
    }
}

fn serves(port: u16) -> bool {
    probe::ask(port, b"PING\r\n").starts_with(b"+PONG")
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}
