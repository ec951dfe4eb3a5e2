//! Random calls of several relays on the lease table of any source.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::source::{FetchedRow, RenewRequest};
use postrider_core::waiting::{Passed, Settlement, SettlementPart};
use postrider_core::{Cursor, ErrorKind, EventId, Lease, OutboxSource, RelayId};
use proptest::prelude::*;

use super::lease::Table;
use super::{Broken, Effort, Met, Rule, answered, explore, holds, units};
use crate::suite::StoreHarness;
use crate::suite::relay::{Relay, a, event};

/// Relays beside each other.
const RELAYS: u8 = 3;
/// Events in the outbox: what settlements move cursors over.
const EVENTS: u32 = 40;

/// A call of a relay, or time that passes. What it is about is picked among the leases there are.
#[derive(Clone, Debug)]
enum Call {
    Acquire { relay: u8, wanted: u16, lease: u32, free_for: u32 },
    ProveDead { relay: u8, which: u8, lease: u32 },
    Renew { relay: u8, lease: u32 },
    Release { relay: u8, which: u8 },
    Settle { relay: u8, which: u8 },
    Pass { span: u32 },
}

/// What a run must have met.
const SITUATIONS: [&str; 12] = [
    "granted what was free",
    "taken over",
    "taken over again",
    "taken over after a cursor moved",
    "taken over from one that was proved dead",
    "renewed",
    "renewed after its end",
    "a stale lease was not renewed",
    "let go",
    "a stale lease was let go",
    "settled",
    "a stale lease settled nothing",
];

fn call() -> impl Strategy<Value = Call> {
    let relay = 0..RELAYS;
    let wanted = prop_oneof![3 => Just(u16::MAX), 1 => 0u16..4];
    let free_for = prop_oneof![4 => Just(0u32), 1 => 1u32..4];
    let acquire = (relay.clone(), wanted, 1u32..5, free_for);
    prop_oneof![
        5 => acquire.prop_map(|(relay, wanted, lease, free_for)| {
            Call::Acquire { relay, wanted, lease, free_for }
        }),
        1 => (relay.clone(), any::<u8>(), 1u32..5)
            .prop_map(|(relay, which, lease)| Call::ProveDead { relay, which, lease }),
        4 => (relay.clone(), 1u32..5).prop_map(|(relay, lease)| Call::Renew { relay, lease }),
        2 => (relay.clone(), any::<u8>()).prop_map(|(relay, which)| Call::Release { relay, which }),
        3 => (relay, any::<u8>()).prop_map(|(relay, which)| Call::Settle { relay, which }),
        4 => (1u32..4).prop_map(|span| Call::Pass { span }),
    ]
}

/// Calls that meet every situation once, whatever is random later.
fn script() -> Vec<Call> {
    let acquire = |relay| Call::Acquire { relay, wanted: u16::MAX, lease: 2, free_for: 0 };
    let pass = |span| Call::Pass { span };
    vec![
        acquire(0),
        Call::Renew { relay: 0, lease: 2 },
        pass(3),
        Call::Renew { relay: 0, lease: 2 },
        pass(3),
        acquire(1),
        Call::Renew { relay: 0, lease: 2 },
        Call::Release { relay: 0, which: 0 },
        Call::Settle { relay: 0, which: 0 },
        pass(3),
        acquire(0),
        Call::ProveDead { relay: 2, which: 0, lease: 2 },
        Call::ProveDead { relay: 2, which: 130, lease: 2 },
        Call::Settle { relay: 2, which: 0 },
        pass(3),
        acquire(1),
        Call::Release { relay: 1, which: 0 },
        Call::Acquire { relay: 2, wanted: 1, lease: 1, free_for: 1 },
        pass(2),
        Call::Acquire { relay: 2, wanted: 1, lease: 1, free_for: 1 },
    ]
}

/// Plays random calls on fresh stores and compares every answer with the model.
///
/// # Errors
/// The rule that was broken, the shortest calls that show it, and the seed.
pub fn leases_follow_their_model<H: StoreHarness>(effort: Effort) -> Result<(), String> {
    explore(effort, script(), call(), &SITUATIONS, async |calls, met| {
        let harness = H::start().await;
        let mut play = Play::start(&harness, met).await?;
        for call in calls {
            play.perform(&harness, call).await?;
        }
        Ok(())
    })
}

/// A relay with every lease it was ever granted: a zombie forgets nothing.
struct Player {
    source: Arc<dyn OutboxSource>,
    owner: RelayId,
    leases: Vec<Lease>,
}

/// The rows of one partition as its first owner read them, and how many are settled.
struct Stream {
    cursors: Vec<Cursor>,
    rows: Vec<FetchedRow>,
    settled: usize,
}

struct Play<'a> {
    unit: Duration,
    table: Table,
    players: Vec<Player>,
    streams: Vec<Stream>,
    met: &'a Met,
}

impl<'a> Play<'a> {
    /// A store with events, whose partitions were all owned once and let go.
    async fn start<H: StoreHarness>(harness: &H, met: &'a Met) -> Result<Play<'a>, Broken> {
        let mut first = Relay::idle(harness).await;
        let events = (0..EVENTS).map(|n| event(&n.to_string(), n)).collect();
        answered(harness.commit(events).await, "commit")?;
        let unit = harness.unit();
        let partitions = answered(first.source.open().await, "open")?.partitions;
        let mut table = Table::new(partitions, unit / 8);
        let request = first.request(units(unit, 1, 2));
        let acquired = answered(first.source.acquire(&request).await, "acquire")?;
        table.acquired(&request, &acquired, met)?;
        first.leases = acquired.granted.into_iter().map(|granted| granted.lease).collect();
        let mut streams = Vec::new();
        for lease in &first.leases {
            let start = answered(first.source.load(lease, &a()).await, "load")?.cursor;
            let rows = first.read_from(lease, &a(), start.clone(), EVENTS).await;
            let mut cursors = vec![start];
            cursors.extend(rows.iter().map(|row| row.cursor.clone()));
            streams.push(Stream { cursors, rows, settled: 0 });
        }
        answered(first.source.release(&first.leases).await, "release")?;
        table.released(&first.leases, met);
        let player =
            |_| Player { source: harness.source(), owner: RelayId::mint(), leases: Vec::new() };
        Ok(Play { unit, table, players: (0..RELAYS).map(player).collect(), streams, met })
    }

    async fn perform<H: StoreHarness>(&mut self, harness: &H, call: &Call) -> Result<(), Broken> {
        match *call {
            Call::Acquire { relay, wanted, lease, free_for } => {
                let free_for = match free_for {
                    0 => Duration::ZERO,
                    whole => units(self.unit, whole, 1),
                };
                self.acquire(relay, wanted, lease, free_for, None).await
            }
            Call::ProveDead { relay, which, lease } => {
                let all: Vec<Lease> =
                    self.players.iter().flat_map(|player| player.leases.clone()).collect();
                // Of anybody's leases, most of them old ones: a proof is about one of them only.
                let dead = pick(&all, which).cloned();
                self.acquire(relay, u16::MAX, lease, Duration::ZERO, dead).await
            }
            Call::Renew { relay, lease } => self.renew(relay, lease).await,
            Call::Release { relay, which } => self.release(relay, which).await,
            Call::Settle { relay, which } => self.settle(relay, which).await,
            Call::Pass { span } => {
                harness.pass(self.unit * span).await;
                self.table.now += self.unit * span;
                Ok(())
            }
        }
    }

    async fn acquire(
        &mut self,
        relay: u8,
        wanted: u16,
        lease: u32,
        free_for: Duration,
        dead: Option<Lease>,
    ) -> Result<(), Broken> {
        let player = &mut self.players[usize::from(relay)];
        let request = AcquireRequest {
            owner: player.owner.clone(),
            lease_duration: units(self.unit, lease, 2),
            wanted,
            free_for,
            presence: None,
            current: true,
            dead,
        };
        let answer = answered(player.source.acquire(&request).await, "acquire")?;
        player.leases.extend(answer.granted.iter().map(|granted| granted.lease.clone()));
        self.table.acquired(&request, &answer, self.met)
    }

    /// Asks for everything it ever had.
    async fn renew(&mut self, relay: u8, lease: u32) -> Result<(), Broken> {
        let player = &self.players[usize::from(relay)];
        let lease_duration = units(self.unit, lease, 2);
        let request = RenewRequest {
            owner: player.owner.clone(),
            leases: player.leases.clone(),
            lease_duration,
            current: true,
        };
        let kept = answered(player.source.renew(&request).await, "renew")?.kept;
        self.table.renewed(&request.leases, &kept, lease_duration, self.met)
    }

    async fn release(&mut self, relay: u8, which: u8) -> Result<(), Broken> {
        let player = &self.players[usize::from(relay)];
        let Some(lease) = pick(&player.leases, which) else { return Ok(()) };
        let leases = [lease.clone()];
        answered(player.source.release(&leases).await, "release")?;
        self.table.released(&leases, self.met);
        Ok(())
    }

    /// Settles the next row under a lease that may be anything, and looks whether that moved what it
    /// may move, and nothing else.
    async fn settle(&mut self, relay: u8, which: u8) -> Result<(), Broken> {
        let player = &self.players[usize::from(relay)];
        let Some(lease) = pick(&player.leases, which).cloned() else { return Ok(()) };
        let stands = self.table.row(lease.partition).is_of(&lease);
        let stream = &mut self.streams[usize::from(lease.partition.0)];
        let mut part = SettlementPart::new(a());
        if let Some(row) = stream.rows.get(stream.settled) {
            let from = stream.cursors[stream.settled].clone();
            part.cursor = Some((from, row.cursor.clone()));
            part.passed.push((row.row, Passed::Acked));
        }
        let moves = part.cursor.is_some();
        let settlement = Settlement { lease: lease.clone(), parts: vec![part] };
        let answer = player.source.settle(&settlement).await;
        if !stands {
            let kind = answer.as_ref().err().map(postrider_core::Error::kind);
            self.met.note("a stale lease settled nothing");
            return holds(Rule::StaleIsRefused, kind == Some(ErrorKind::Fenced), || {
                format!("{answer:?} to a settlement under {lease:?}")
            });
        }
        answered(answer, "settle")?;
        if moves {
            stream.settled += 1;
            self.met.note("settled");
            self.table.cursor_moved(lease.partition);
        }
        self.compare_unsettled(relay, &lease).await
    }

    /// A new reading hands out what is not settled, and nothing else.
    async fn compare_unsettled(&self, relay: u8, lease: &Lease) -> Result<(), Broken> {
        let player = &self.players[usize::from(relay)];
        let (source, owner) = (Arc::clone(&player.source), player.owner.clone());
        let reader = Relay { source, owner, leases: Vec::new() };
        let start = answered(reader.source.load(lease, &a()).await, "load")?.cursor;
        let read = reader.read_from(lease, &a(), start, EVENTS).await;
        let read: BTreeSet<EventId> = read.iter().map(|row| row.row.id).collect();
        let stream = &self.streams[usize::from(lease.partition.0)];
        let open = stream.rows[stream.settled..].iter();
        let open: BTreeSet<EventId> = open.map(|row| row.row.id).collect();
        holds(Rule::StaleIsRefused, read == open, || {
            format!("{} events are open after {} settlements", read.len(), stream.settled)
        })
    }
}

/// One of them, the latest most often.
fn pick(leases: &[Lease], which: u8) -> Option<&Lease> {
    let back = if which < 128 { usize::from(which) % 4 } else { usize::from(which) };
    let index = leases.len().checked_sub(1)?;
    leases.get(index - back % leases.len())
}
