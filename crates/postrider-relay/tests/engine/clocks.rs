//! Clocks that run apart, jump, and step back: the relay's wall clock decides nothing, the
//! database's clock decides when a lease ends and nothing else, and ids decide no order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::{BoxFuture, Broker, Clock, EventId, OutboxSource, Tick, Timestamp};
use postrider_relay::{Ending, Relay, Settings, State, SystemClock, Target};
use postrider_testkit::fault::{BrokerAction, FaultySource, Gate};
use postrider_testkit::memory::{MemoryBroker, MemoryClock, MemoryStore};

use crate::world::{World, event, everything, id, now, number};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A world whose database has a clock of its own.
struct Apart {
    world: World,
    database: MemoryClock,
    committed: u64,
}

impl Apart {
    fn new(partitions: u16) -> Apart {
        let mut world = World::new(partitions, vec![everything("all")]);
        let database = MemoryClock::new();
        // So that it can be set back.
        database.advance(3 * HOUR);
        world.store = MemoryStore::new(partitions, database.clone());
        world.source = Arc::new(FaultySource::new(Arc::new(world.store.clone())));
        now(world.store.register(&[everything("all")])).expect("the definitions");
        Apart { world, database, committed: 0 }
    }

    fn commit(&mut self, events: u64) {
        let numbers = self.committed..self.committed + events;
        self.world.commit(numbers.map(|n| event(n % 7, n)).collect());
        self.committed += events;
    }

    /// Lets time pass, of which the database's clock sees so many percent.
    fn run_for(&mut self, span: Duration, percent: u32) {
        // Nobody looks closely at what takes many minutes.
        let slice = if span > 60 * SECOND { SECOND } else { Duration::from_millis(100) };
        let end = self.world.clock.elapsed() + span;
        while self.world.clock.elapsed() < end {
            self.world.run_for(slice);
            self.database.advance(slice * percent / 100);
        }
    }

    /// So many seconds with events in each.
    fn work(&mut self, seconds: u32, percent: u32) {
        for _ in 0..seconds {
            self.commit(5);
            self.run_for(SECOND, percent);
        }
    }

    fn leases_lost(&self) -> u64 {
        self.world.healths().iter().map(|health| health.leases_lost).sum()
    }

    /// Everything has arrived, and every promise held on the way.
    fn judge(&mut self) {
        self.run_for(30 * SECOND, 100);
        assert_eq!(self.world.delivered("all") as u64, self.committed);
        assert_eq!(self.world.store.settled(&id("all")).len() as u64, self.committed);
        self.world.check("all");
    }
}

/// A relay at work, and another that joins it, beside a database whose clock sees so many percent.
fn drift(percent: u32) -> Apart {
    let mut apart = Apart::new(4);
    for _ in 0..3 {
        apart.world.start(Target::Forever);
        apart.work(40, percent);
    }
    apart
}

/// F12: relays whose clocks run a twentieth faster or slower than the database's lose no lease, and
/// deliver nothing twice.
#[test]
fn clocks_that_drift_apart_cost_nothing() {
    for percent in [95, 105] {
        let mut apart = drift(percent);
        assert_eq!(apart.leases_lost(), 0, "{percent} %");
        apart.judge();
        assert_eq!(apart.world.duplicates("all"), 0, "{percent} %");
    }
}

/// The control of the test before: a database that sees twenty times as much time lets leases end
/// under their owners, who notice; no order is broken by that either.
#[test]
fn a_clock_that_races_is_seen() {
    let mut apart = drift(2_000);
    assert!(apart.leases_lost() > 0);
    apart.judge();
}

/// F13, R033: the database's clock jumps past every lease, again and again, with an answer of the
/// broker under way: a relay that asks then takes over early, the owner is refused, no order is
/// broken.
#[test]
fn a_step_forward_past_the_leases_moves_ownership_and_nothing_else() {
    let mut apart = Apart::new(1);
    apart.world.settings.window.page_rows_max = 4;
    apart.world.start(Target::Forever);
    for round in 0..12 {
        apart.work(5, 100);
        let gate = Gate::new();
        let broker = &apart.world.place("all").broker;
        broker.script.then([BrokerAction::HoldAnswer(gate.clone())]);
        apart.commit(20);
        apart.world.settle_down();
        let lost = apart.leases_lost();
        assert_eq!(lost, 0, "the control");
        apart.database.advance(HOUR);
        apart.world.start(Target::Forever);
        // Less than a lease of the owner's own time.
        apart.run_for(Duration::from_millis(1_500 + 900 * (round % 4)), 100);
        gate.open();
        apart.work(6, 100);
        assert_eq!(apart.leases_lost(), 1, "round {round}: the lease ended early");
        apart.world.kill(0);
    }
    apart.judge();
}

/// F13: the database's clock steps back by an hour under an owner at work: it keeps its lease, and
/// nothing comes twice.
#[test]
fn a_step_back_does_not_disturb_the_owner() {
    let mut apart = Apart::new(2);
    apart.world.start(Target::Forever);
    apart.world.start(Target::Forever);
    for back in [10 * 60 * SECOND, HOUR] {
        apart.work(10, 100);
        apart.database.step_back(back);
        apart.work(40, 100);
    }
    assert_eq!(apart.leases_lost(), 0);
    apart.judge();
    assert_eq!(apart.world.duplicates("all"), 0);
}

/// F13: the owner dies and the database's clock steps back: its lease ends late by the step, not
/// later, and then all goes on.
#[test]
fn a_lease_of_the_dead_ends_late_by_the_step() {
    let mut apart = Apart::new(1);
    apart.world.start(Target::Forever);
    apart.work(5, 100);
    apart.world.start(Target::Forever);
    apart.work(5, 100);
    apart.world.kill(0);
    apart.database.step_back(HOUR);
    apart.commit(5);
    apart.run_for(HOUR - SECOND, 100);
    let health = apart.world.healths().remove(0);
    assert_eq!(health.state, State::Standby, "the lease stands by the database's clock");
    apart.run_for(apart.world.settings.lease + 2 * SECOND, 100);
    apart.judge();
}

/// The time that a server of wrong time gives: at each look another step of ten minutes or an hour.
#[derive(Default)]
struct Jumping {
    looks: AtomicU64,
}

impl Clock for Jumping {
    fn tick(&self) -> Tick {
        SystemClock.tick()
    }

    fn now(&self) -> Timestamp {
        const STEPS_MINUTES: [i64; 4] = [10, -10, 0, -60];
        let look = self.looks.fetch_add(1, Ordering::SeqCst) as usize;
        let step = STEPS_MINUTES[look % STEPS_MINUTES.len()] * 60_000_000;
        Timestamp::from_micros(SystemClock.now().as_micros() + step)
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(span)
    }
}

/// F12: whatever a relay's wall clock says, also an hour back, no lease is lost, and nothing comes
/// twice or in another order.
#[tokio::test(flavor = "multi_thread")]
async fn the_wall_clock_decides_nothing() {
    let clock = MemoryClock::running();
    let store = MemoryStore::new(2, clock.clone());
    let memory = MemoryBroker::new(clock);
    let jumping = Arc::new(Jumping::default());
    let source: Arc<dyn OutboxSource> = Arc::new(store.clone());
    let broker: Arc<dyn Broker> = Arc::new(memory.clone());
    let relay = Relay::builder(source)
        .destination(everything("all"), broker)
        .settings(Settings::with_lease(Duration::from_secs(30)))
        .clock(Arc::clone(&jumping) as Arc<dyn Clock>)
        .start()
        .await
        .unwrap();
    let mut health = relay.health();
    for burst in 0..20u64 {
        let numbers = burst * 10..(burst + 1) * 10;
        let delivered = numbers.end;
        store.commit(numbers.map(|n| event(n % 5, n)).collect()).unwrap();
        relay.nudge();
        health.wait_for(|health| health.delivered >= delivered).await.unwrap();
    }
    relay.drain();
    let report = relay.stopped().await;
    assert_eq!(report.ending, Some(Ending::Drained));
    assert_eq!((report.health.leases_lost, report.health.fenced), (0, 0));
    assert!(jumping.looks.load(Ordering::SeqCst) > 4, "nobody looked at the clock");
    let numbers: Vec<u64> = memory.published().iter().map(|one| number(&one.event)).collect();
    assert_eq!(numbers.len(), 200, "nothing came twice");
    for key in 0..5 {
        assert!(numbers.iter().copied().filter(|n| n % 5 == key).eq((key..200).step_by(5)));
    }
}

/// An id as a producer mints it whose clock stands so many minutes before a moment of 2026.
fn minted(minutes_before: u64, n: u64) -> EventId {
    const MOMENT_MILLIS: u64 = 1_767_225_600_000;
    const VERSION_7: u128 = 0x7 << 76;
    const VARIANT: u128 = 0b10 << 62;
    let time = u128::from(MOMENT_MILLIS - minutes_before * 60_000);
    EventId::from_u128(time << 80 | VERSION_7 | VARIANT | u128::from(n))
}

/// F12: a producer's clock steps back by ten minutes and by an hour, so its ids do: events arrive in
/// the order of their commits.
#[test]
fn ids_that_go_back_change_no_order() {
    let mut world = World::simple();
    world.start(Target::Forever);
    let mut ids = Vec::new();
    for n in 0..60u64 {
        let id = minted([0, 10, 60][(n / 20) as usize], 60 - n);
        ids.push(id);
        world.commit(vec![event(n % 3, n).id(id)]);
        if n % 7 == 0 {
            world.run_for(Duration::from_millis(300));
        }
    }
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    assert!(ids.iter().rev().eq(&sorted), "the control: by id it would be the other way round");
    world.run_until(Duration::from_secs(30), |world| world.delivered("all") == 60);
    for key in 0..3 {
        let published = world.place("all").memory.published();
        let of_key = published.iter().map(|one| number(&one.event)).filter(|n| n % 3 == key);
        assert!(of_key.eq((key..60).step_by(3)), "key {key}");
    }
    world.check("all");
}
