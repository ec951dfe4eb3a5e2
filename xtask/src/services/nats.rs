//! NATS with JetStream, on files.

use std::process::Command;
use std::time::Duration;

use super::place::Place;
use super::{Service, daemon, package, port, probe};

/// What a server tells of itself as soon as somebody connects.
const JETSTREAM: &[u8] = b"\"jetstream\":true";

/// See the module.
pub(crate) struct Nats;

impl Service for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn purpose(&self) -> &'static str {
        "NATS with JetStream"
    }

    fn offset(&self) -> u16 {
        22
    }

    fn reusable(&self) -> Option<String> {
        serves(4222).then(|| url(4222))
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        let program = package::program(place, "nats-server", "nats-server")?;
        let port = port::choose(place, "client", self.offset())?;
        let store = place.home()?.join("jetstream");
        let text = format!(
            "listen: 127.0.0.1:{port}\njetstream {{\n  store_dir: {:?}\n  max_mem: 256MB\n  \
             max_file: 4GB\n}}\n",
            store.display().to_string()
        );
        let path = place.write("nats.conf", &text)?;
        daemon::start(place, Command::new(program).arg("-c").arg(path))?;
        daemon::ready(place, Duration::from_secs(20), || serves(port))?;
        Ok(url(port))
    }
}

fn serves(port: u16) -> bool {
    probe::has(&probe::ask(port, b""), JETSTREAM)
}

fn url(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}
