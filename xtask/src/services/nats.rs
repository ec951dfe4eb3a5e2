//! NATS with JetStream, on files: the version of the system's packages. The program of the current one stands beside it, for
//! the tests that start servers of their own.

use std::path::PathBuf;
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

    fn facts(&self, place: &Place) -> Vec<(&'static str, String)> {
        match current(place) {
            Ok(folder) => vec![("CURRENT_BIN", folder.display().to_string())],
            Err(reason) => {
                place.say(format!("no current nats-server: {reason}"));
                Vec::new()
            }
        }
    }
}

/// The folder with the current version's program.
fn current(place: &Place) -> Result<PathBuf, String> {
    let folder = package::unreleased(place, "nats-server")?.join("usr/sbin");
    // It was made for a newer system than this may be.
    package::complete(Command::new(folder.join("nats-server")).arg("--version"))?;
    Ok(folder)
}

fn serves(port: u16) -> bool {
    probe::has(&probe::ask(port, b""), JETSTREAM)
}

fn url(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}
