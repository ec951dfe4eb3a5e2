//! An application: transactions that overlap with others, and end in every way a transaction can.
//!
//! A writer owns the row of a key before it enqueues an event of that key, as the design asks, except
//! where the seed says that it forgets to: those events are exempt from INV-3, and nothing else is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::{ErrorKind, EventId, NewEvent, Result, Tick};
use postrider_testkit::memory::MemoryStore;

use crate::broker::Poison;
use crate::dice::Dice;
use crate::exec::ProcessNo;
use crate::shared::Shared;

/// Event types, and with them topics: the endpoints of a destination.
pub const TYPES: [&str; 3] = ["order.placed", "order.paid", "order.sent"];

/// How long an application waits for an answer.
const SILENCE: Duration = Duration::from_secs(8);
/// How often a transaction is tried again.
const TRIES_MAX: u32 = 200;

/// An application that runs, or ran.
#[derive(Clone, Debug)]
pub struct AppProcess {
    /// Its process.
    pub process: ProcessNo,
    life: Life,
    done: Arc<AtomicU64>,
}

/// How far an application has come in its lives before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    number: u64,
    /// Transactions that it has ended.
    done: u64,
}

impl AppProcess {
    /// What it begins with when it starts again.
    pub fn next_life(&self) -> Life {
        Life { number: self.life.number + 1, done: self.done.load(Ordering::Relaxed) }
    }
}

/// An application.
#[derive(Debug)]
pub struct App {
    shared: Arc<Shared>,
    name: String,
    number: u8,
    life: Life,
    store: MemoryStore,
    dice: Dice,
    events: u64,
}

/// The rows that a transaction owns; they are free when it ends, however it ends.
struct Rows<'a>(&'a Shared, Vec<u64>);

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        self.1.iter().for_each(|key| self.0.unlock(*key));
    }
}

/// What a transaction writes: the same again when it is tried again.
struct Plan {
    /// Key, id, and format of each.
    events: Vec<(u64, EventId, u16)>,
    roll_back: bool,
    linger: Option<Duration>,
    forgets_rows: bool,
}

impl App {
    /// Starts an application, or starts it again.
    pub fn start(shared: &Arc<Shared>, number: u8, life: Life) -> AppProcess {
        let name = format!("app-{number}.{}", life.number);
        let line = shared.line(&name, Arc::default(), SILENCE);
        let app = App {
            store: shared.store.on(Arc::new(line)),
            dice: shared.dice(&name),
            shared: Arc::clone(shared),
            name,
            number,
            life,
            events: 0,
        };
        shared.note_writing(number, true);
        let done = Arc::new(AtomicU64::new(life.done));
        let process = AppProcess { process: shared.process(), life, done: Arc::clone(&done) };
        shared.kernel.spawn(process.process, app.run(done));
        process
    }

    async fn run(mut self, done: Arc<AtomicU64>) {
        let scenario = &self.shared.scenario;
        let (count, span_ms) = (u64::from(scenario.transactions), scenario.span_ms);
        let pause_ms = 2 * span_ms / (count + 1);
        for _ in self.life.done..count {
            // What was to come after the faults comes at once.
            let left = (Tick(0) + Duration::from_millis(span_ms)).since(self.shared.kernel.now());
            let pause = Duration::from_micros(self.dice.below(pause_ms * 1_000)).min(left);
            self.shared.kernel.sleep(pause).await;
            let plan = self.plan();
            self.carry_through(&plan).await;
            done.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.note_writing(self.number, false);
    }

    fn plan(&mut self) -> Plan {
        let (keys, weather) = (u64::from(self.shared.scenario.keys), &self.shared.weather);
        let dice = &mut self.dice;
        let roll_back = weather.strikes(dice, "roll_back", |rates| rates.roll_back);
        let linger = weather
            .strikes(dice, "linger", |rates| rates.linger)
            .then(|| Duration::from_millis(dice.between(1_000, 40_000)));
        let forgets_rows = !weather.is_calm() && dice.chance(300);
        let count = dice.between(1, 6);
        let mut events = Vec::new();
        for _ in 0..count {
            self.events += 1;
            let writer = (u128::from(self.number) + 1) << 16 | u128::from(self.life.number);
            let id = EventId::from_u128(writer << 32 | u128::from(self.events));
            let newer = weather.strikes(dice, "newer_format", |rates| rates.newer_format);
            events.push((dice.below(keys), id, if newer { 2 } else { 1 }));
        }
        for (_, id, _) in &events {
            if weather.strikes(dice, "poison", |rates| rates.poison) {
                let how = if dice.chance(5_000) { Poison::Refused } else { Poison::Fails };
                let places = self.shared.all_places();
                dice.pick(&places).poison(*id, how);
            }
            if forgets_rows {
                self.shared.note_unserialised(*id);
            }
        }
        Plan { events, roll_back, linger, forgets_rows }
    }

    /// Tries a transaction until it is known to be committed, or rolled back on purpose.
    async fn carry_through(&mut self, plan: &Plan) {
        for _ in 0..TRIES_MAX {
            let mut keys: Vec<u64> = plan.events.iter().map(|(key, ..)| *key).collect();
            keys.sort_unstable();
            keys.dedup();
            let shared = Arc::clone(&self.shared);
            let mut rows = Rows(&shared, Vec::new());
            for key in keys.into_iter().filter(|_| !plan.forgets_rows) {
                while !shared.try_lock(key) {
                    shared.kernel.sleep(Duration::from_millis(5)).await;
                }
                rows.1.push(key);
            }
            match self.write(plan).await {
                Ok(()) => return,
                // It was committed before, and the answer was lost.
                Err(error) if error.kind() == ErrorKind::Conflict && self.is_committed(plan) => {
                    self.tell(|| "finds that it was committed".to_owned());
                    return;
                }
                Err(error) => self.tell(|| format!("tries again: {error}")),
            }
            drop(rows);
            let pause = Duration::from_millis(self.dice.between(5, 500));
            self.shared.kernel.sleep(pause).await;
        }
    }

    /// What an application can look up in its own tables.
    fn is_committed(&self, plan: &Plan) -> bool {
        plan.events.iter().all(|(_, id, _)| self.shared.store.is_committed(*id))
    }

    async fn write(&mut self, plan: &Plan) -> Result<()> {
        let mut transaction = self.store.begin_on().await?;
        for (key, id, format) in &plan.events {
            let kind = TYPES[usize::try_from(id.as_u128() % 3).unwrap_or_default()];
            let event = NewEvent::new("order", key.to_string(), kind).id(*id).json(key)?;
            transaction.enqueue_on(event, *format).await?;
        }
        if let Some(linger) = plan.linger {
            self.tell(|| format!("keeps its transaction open for {linger:?}"));
            self.shared.kernel.sleep(linger).await;
        }
        if plan.roll_back {
            self.tell(|| format!("rolls back {}", list(plan)));
            transaction.roll_back();
            plan.events.iter().for_each(|(_, id, _)| self.shared.note_rolled_back(*id));
            return Ok(());
        }
        self.tell(|| format!("asks to commit {}", list(plan)));
        transaction.commit_on().await?;
        self.tell(|| "has committed".to_owned());
        Ok(())
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        self.shared.story.tell(&self.name, what);
    }
}

/// An event as the story names it: who wrote it, in which life, and which it was. `#t` is of the
/// trickle when the faults are over, `#x` a handler's own.
pub fn short(id: EventId) -> String {
    let bits = id.as_u128();
    match bits >> 48 {
        writer @ 1..=0xff => {
            format!("#{}.{}.{}", writer - 1, bits >> 32 & 0xffff, bits & 0xffff_ffff)
        }
        _ if bits >> 80 == 1 => format!("#t{}", bits & 0xffff_ffff),
        _ => format!("#x{:08x}", bits & 0xffff_ffff),
    }
}

fn list(plan: &Plan) -> String {
    let events: Vec<String> =
        plan.events.iter().map(|(key, id, _)| format!("{} of order/{key}", short(*id))).collect();
    events.join(", ")
}
