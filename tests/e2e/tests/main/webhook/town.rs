//! A town: a stage whose events go to a partner, who has an endpoint for each tenant.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use postrider_core::EventId;
use postrider_e2e::PARTNERS;
use serde_json::Value;
use tokio::net::TcpSocket;

use crate::process::{Ended, Process};
use crate::stage::{Stage, number};

/// Endpoints, unless a test wants other ones.
pub(crate) const TENANTS: u64 = 4;

/// An address of this machine at which nobody listens, and which nobody else is given while this is
/// held: who connects is refused, and a child of ours may listen there.
pub(crate) struct Held {
    pub(crate) address: SocketAddr,
    _socket: TcpSocket,
}

impl Held {
    pub(crate) fn new() -> Held {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option");
        socket.set_reuseport(true).expect("an option");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        Held { address: socket.local_addr().expect("an address"), _socket: socket }
    }
}

/// What the partner recorded of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) endpoint: String,
    pub(crate) id: EventId,
    pub(crate) key: String,
    pub(crate) attempt: u64,
    pub(crate) late: bool,
}

pub(crate) struct Town {
    pub(crate) stage: Stage,
    pub(crate) partner: Held,
    pub(crate) tenants: u64,
}

impl Town {
    pub(crate) fn new() -> Town {
        Town { stage: Stage::new(), partner: Held::new(), tenants: TENANTS }
    }

    /// Commits so many orders of 24 customers, who belong to the tenants.
    pub(crate) async fn produce(&self, count: u32, more: &[&str]) -> Ended {
        let tenants = self.tenants.to_string();
        let args = [&["--tenants", &tenants, "--keys", "24"], more].concat();
        self.stage.produce(count, &args).await
    }

    /// Starts the partner, and waits until he listens.
    pub(crate) async fn receiver(&self, more: &[&str]) -> Process {
        self.receiver_at(self.partner.address, more).await
    }

    pub(crate) async fn receiver_at(&self, address: SocketAddr, more: &[&str]) -> Process {
        let address = address.to_string();
        self.stage.play("receiver", &[&["--address", address.as_str()], more].concat()).await
    }

    /// Starts a relay, and waits until it runs. Its requests have time, unless a test says otherwise.
    pub(crate) async fn relay(&self, more: &[&str]) -> Process {
        let mut relay = self.relay_with(more);
        relay.ready().await;
        relay
    }

    fn relay_with(&self, more: &[&str]) -> Process {
        let (to, tenants) = (self.partner.address.to_string(), self.tenants.to_string());
        let args = ["--to", &to, "--tenants", &tenants];
        let times = ["--lease-ms", "10000", "--deadline-ms", "3000"];
        self.stage.start("hooks", &[&args, &times, more].concat())
    }

    /// Delivers everything that is committed, with a fresh relay that stops by itself.
    pub(crate) async fn drain(&self) -> Ended {
        let ended = self.relay_with(&["--once", "yes"]).ended().await;
        assert_eq!(ended.code, Some(0), "the drain: {:#?}", ended.heard);
        ended
    }

    /// Listens to a relay until its cursor has passed so many events.
    pub(crate) async fn until_passed(&self, relay: &mut Process, count: u64) {
        let what = format!("{count} events are passed");
        self.stage.until(relay, &what, || self.position() == count).await;
    }

    /// How far the store says the partners are settled.
    pub(crate) fn position(&self) -> u64 {
        let statement =
            "select coalesce(max(position), 0) from outbox_cursor where destination = ?1";
        let shop = self.stage.shop();
        let position: i64 =
            shop.query_row(statement, [PARTNERS], |row| row.get(0)).expect("a position");
        position.cast_unsigned()
    }

    /// How many events stand in `waiting` under a condition.
    pub(crate) fn waiting(&self, condition: &str) -> i64 {
        let statement = format!(
            "select count(*) from outbox_waiting where destination = '{PARTNERS}' and {condition}"
        );
        number(&self.stage.shop(), &statement)
    }

    /// What the partner recorded, in his order. A last line without its end is none: it was never
    /// answered.
    pub(crate) fn records(&self) -> Vec<Recorded> {
        let text = std::fs::read_to_string(&self.stage.files.received).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(read).collect()
    }

    /// How often each event was recorded.
    pub(crate) fn times(&self) -> BTreeMap<EventId, u64> {
        let mut times = BTreeMap::new();
        self.records().iter().for_each(|record| *times.entry(record.id).or_default() += 1);
        times
    }

    /// Records beyond the first of each event.
    pub(crate) fn duplicates(&self) -> u64 {
        self.times().values().map(|times| times - 1).sum()
    }
}

fn read(line: &str) -> Recorded {
    let line: Value = serde_json::from_str(line).expect("a record");
    let text = |name: &str| line[name].as_str().expect("a text").to_owned();
    Recorded {
        endpoint: text("endpoint"),
        id: text("id").parse().expect("an id"),
        key: text("key"),
        attempt: line["attempt"].as_u64().expect("a number"),
        late: line["late"].as_bool().expect("a flag"),
    }
}
