//! RabbitMQ, with everything that it needs to stand beside another one: a node name, a port mapper,
//! and folders of its own.

use std::process::Command;
use std::time::Duration;

use super::place::Place;
use super::{Service, daemon, package, port, probe};

/// Where the system's package has the program that does not change accounts by itself.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
/// Two cores, no waiting in circles, and its own traffic on loopback.
const ERLANG: &str = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none \
    -kernel inet_dist_use_interface {127,0,0,1}";
/// How a client of AMQP 0-9-1 begins.
const GREETING: &[u8] = b"AMQP\0\0\x09\x01";

/// See the module.
pub(crate) struct Rabbit;

impl Service for Rabbit {
    fn name(&self) -> &'static str {
        "rabbit"
    }

    fn purpose(&self) -> &'static str {
        "RabbitMQ"
    }

    fn offset(&self) -> u16 {
        72
    }

    fn reusable(&self) -> Option<String> {
        serves(5672).then(|| url(5672))
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        if !std::path::Path::new(PROGRAM).exists() {
            package::system(place, &["rabbitmq-server"])?;
        }
        let home = place.home()?;
        let port = port::choose(place, "client", self.offset())?;
        let text = format!(
            "listeners.tcp.1 = 127.0.0.1:{port}\nloopback_users = none\n\
             disk_free_limit.absolute = 50MB\nvm_memory_high_watermark.absolute = 1GB\n"
        );
        let configuration = place.write("rabbitmq.conf", &text)?;
        let plugins = place.write("plugins", "[].\n")?;
        let distribution = port::choose(place, "distribution", 73)?;
        let mapper = port::choose(place, "mapper", 69)?;
        let mut command = Command::new(PROGRAM);
        command
            // Says to the script that it may become the server instead of watching over it.
            .env("RUNNING_UNDER_SYSTEMD", "1")
            .env("RABBITMQ_NODENAME", "postrider@localhost")
            .env("RABBITMQ_DIST_PORT", distribution.to_string())
            .env("ERL_EPMD_PORT", mapper.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_CONFIG_FILE", configuration)
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", plugins)
            .env("RABBITMQ_MNESIA_BASE", home.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", home.join("log"))
            .env("RABBITMQ_PID_FILE", home.join("process"))
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", ERLANG);
        daemon::start(place, &command)?;
        daemon::ready(place, Duration::from_secs(120), || serves(port))?;
        Ok(url(port))
    }

    /// Killed, and its port mapper with it: an ordinary end takes it six seconds, and what it
    /// confirmed survives either way.
    fn stop(&self, place: &Place) -> Result<(), String> {
        daemon::stop(place, "KILL")?;
        if let Some(mapper) = place.read("mapper.port") {
            let kill =
                Command::new("epmd").env("ERL_EPMD_PORT", mapper.trim()).arg("-kill").output();
            // Where none is left to kill, that is what was wanted.
            drop(kill);
        }
        Ok(())
    }
}

fn serves(port: u16) -> bool {
    probe::has(&probe::ask(port, GREETING), b"capabilities")
}

fn url(port: u16) -> String {
    format!("amqp://guest:guest@127.0.0.1:{port}/%2f")
}
