//! Mosquitto, an MQTT broker; it keeps nothing on the disk.

use std::process::Command;
use std::time::Duration;

use super::place::Place;
use super::{Service, daemon, package, port, probe};

/// CONNECT of MQTT 3.1.1: clean session, ten seconds of patience, the client "prb".
const CONNECT: &[u8] = b"\x10\x0f\0\x04MQTT\x04\x02\0\x0a\0\x03prb";
/// CONNACK: no session, accepted.
const ACCEPTED: &[u8] = b"\x20\x02\0\0";

/// See the module.
pub(crate) struct Mqtt;

impl Service for Mqtt {
    fn name(&self) -> &'static str {
        "mqtt"
    }

    fn purpose(&self) -> &'static str {
        "Mosquitto, an MQTT broker"
    }

    fn offset(&self) -> u16 {
        83
    }

    fn reusable(&self) -> Option<String> {
        serves(1883).then(|| url(1883))
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        let program = package::program(place, "mosquitto", "mosquitto")?;
        let port = port::choose(place, "client", self.offset())?;
        let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n");
        let path = place.write("mosquitto.conf", &text)?;
        daemon::start(place, Command::new(program).arg("-c").arg(path))?;
        daemon::ready(place, Duration::from_secs(20), || serves(port))?;
        Ok(url(port))
    }
}

fn serves(port: u16) -> bool {
    probe::ask(port, CONNECT) == ACCEPTED
}

fn url(port: u16) -> String {
    format!("mqtt://127.0.0.1:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_has_the_length_that_it_says() {
        assert_eq!(usize::from(CONNECT[1]), CONNECT.len() - 2);
    }
}
