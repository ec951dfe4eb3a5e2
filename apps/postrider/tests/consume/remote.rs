//! Sidecars of a group that consumes from a server: what is the same whatever server it is.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker, Event, Format, Marks, Outcome, Outgoing};
use tokio::process::Command;

use crate::endpoint::{Endpoint, Plan};
use crate::sidecar::Sidecar;
use crate::stage::{Stage, order};

/// How long a server may take to come to rest.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server with orders on it, a place for dead letters, and a stage.
pub(crate) trait Remote {
    fn stage(&self) -> &Stage;

    /// Where orders are published.
    fn broker(&self) -> &dyn Broker;

    /// To which topic or subject.
    fn topic(&self) -> &str;

    /// What stands behind `--from`.
    fn from(&self) -> String;

    /// The kind, as the table of the connection is called.
    fn kind(&self) -> &str;

    /// Waits until the group has settled everything.
    async fn settled(&self);

    async fn publish(&self, event: &Event) {
        let outgoing = Outgoing {
            event: Arc::new(event.clone()),
            topic: Arc::from(self.topic()),
            format: Format::Structured,
            layout: None,
            marks: Marks::default(),
            attempt: 1,
        };
        let begun = std::time::Instant::now();
        // A server that has just begun may be slow at first.
        while !matches!(
            self.broker().publish(std::slice::from_ref(&outgoing)).await.as_deref(),
            Ok([Outcome::Acked])
        ) {
            assert!(begun.elapsed() < PATIENCE, "it is not taken");
        }
    }

    async fn place(&self, key: &str) -> Event {
        let event = order(key);
        self.publish(&event).await;
        self.stage().was_placed(event.id, event.key());
        event
    }

    /// The command of a sidecar, with a lease that soon ends where none is given.
    fn command(&self, from: &str, endpoint: &Endpoint, more: &[&str]) -> Command {
        let lease: &[&str] = if more.contains(&"--lease") { &[] } else { &["--lease", "1s"] };
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command
            .args(["consume", "--inbox", "sqlite://billing.db", "--to", &endpoint.url()])
            .args(["--from", from])
            .args(lease)
            .args(more);
        self.placed(command)
    }

    /// The same command in the folder of the stage, and with nothing of this test's environment.
    fn placed(&self, mut command: Command) -> Command {
        command.current_dir(self.stage().folder.path());
        for name in postrider_testkit::services::variables() {
            command.env_remove(name);
        }
        command
    }

    /// A configuration with more lines about the connection.
    fn configuration(&self, more: &str) -> String {
        format!(
            "[consume.billing]\nfrom = \"{}\"\ninbox = \"sqlite://billing.db\"\n\
             endpoint = \"http://127.0.0.1:9\"\nlease = \"1s\"\ntimeout = \"900ms\"\n\
             [consume.billing.{}]\n{more}\n",
            self.from(),
            self.kind()
        )
    }

    /// The same with a lease that a busy machine does not outlive: what is in work is nobody else's.
    fn lasting_configuration(&self, more: &str) -> String {
        let short = "lease = \"1s\"\ntimeout = \"900ms\"";
        self.configuration(more).replace(short, "lease = \"30s\"\ntimeout = \"25s\"")
    }

    /// Starts a sidecar of the group, and waits until it receives.
    async fn sidecar(&self, endpoint: &Endpoint, more: &[&str]) -> Sidecar {
        let more = [&["--group", "billing"], more].concat();
        let mut sidecar = Sidecar::start(self.command(&self.from(), endpoint, &more));
        sidecar.hear("receiving").await;
        sidecar
    }

    /// Sidecars are killed again and again while orders come, some of them twice.
    async fn kill_again_and_again(&self, orders: usize, more: &[&str]) -> Endpoint {
        let endpoint =
            Endpoint::start(|_, _| Plan::After(Duration::from_millis(20), Box::new(Plan::done())))
                .await;
        let mut again = Vec::new();
        for round in 0..5_usize {
            for number in 0..orders {
                let placed = self.place(&(number % 11).to_string()).await;
                if number % 5 == 0 {
                    again.push(placed);
                }
            }
            let sidecar = self.sidecar(&endpoint, &[&["--concurrency", "4"], more].concat()).await;
            endpoint.called((5 + 3 * round).max(endpoint.calls().len() + 1)).await;
            sidecar.kill().await;
        }
        for event in &again {
            self.publish(event).await;
        }
        let sidecar = self.sidecar(&endpoint, more).await;
        self.settled().await;
        let ended = sidecar.stop().await;
        assert_eq!(self.stage().processed().len(), 5 * orders);
        assert!(!ended.text.contains(" 0 duplicates"), "{}", ended.text);
        endpoint
    }
}
