//! Strike: what an incident does to the world.

use std::time::Duration;

use postrider_core::source::DefinitionChange;
use postrider_core::{Destination, DestinationId, Invariant, Match, OutboxSource, Start, Tick};
use postrider_relay::Input;

use crate::agenda::{Act, Agenda};
use crate::app::{App, TYPES};
use crate::incident::{Change, What};
use crate::now;
use crate::relay;
use crate::world::World;

impl World {
    /// Does what is on the agenda.
    pub(crate) fn strike(&mut self, act: &Act, at: Tick, agenda: &mut Agenda) {
        match act {
            Act::Incident(number) => {
                let what = self.shared.scenario.incidents[*number].what.clone();
                self.shared.story.tell("world", || format!("strikes: {what:?}"));
                self.struck.insert(*number);
                self.befall(&what, *number, at, agenda);
            }
            Act::Checkpoint(number) => {
                let standby = (self.shared.kernel.now(), self.shared.store.checkpoint());
                self.standbys.insert(*number, standby);
            }
            Act::StartRelay(slot) => {
                self.end_relay(*slot);
                self.start_relay(*slot);
            }
            Act::Replace(slot) => {
                self.drain_relay(*slot);
                agenda.add(at + Duration::from_secs(12), Act::StartRelay(*slot));
            }
            Act::ResumeRelay(slot) => {
                if let Some((process, _)) = self.relays.get(slot) {
                    self.shared.kernel.resume(process.process);
                }
            }
            Act::StartApp(number) => {
                if let Some(app) = self.apps.get(number) {
                    self.shared.kernel.kill(app.process);
                    let app = App::start(&self.shared, *number, app.next_life());
                    self.apps.insert(*number, app);
                }
            }
            Act::StartConsumer(slot) => {
                if let Some(customers) = &mut self.customers {
                    customers.replace(*slot);
                }
            }
            Act::ResumeConsumer(slot) => {
                if let Some(customers) = &self.customers {
                    customers.pause(*slot, false);
                }
            }
            Act::StartServer => {
                self.shared.server.start();
                self.apply_again();
            }
            Act::FreeDisk => {
                self.shared.store.set_full(false);
                self.apply_again();
            }
            Act::AllowWrites => {
                self.shared.store.set_read_only(false);
                self.apply_again();
            }
        }
    }

    fn befall(&mut self, what: &What, number: usize, at: Tick, agenda: &mut Agenda) {
        let after = |ms: u64| at + Duration::from_millis(ms);
        let kernel = &self.shared.kernel;
        self.shared.weather.count(what.name());
        match *what {
            What::KillRelay { relay, steps, again_ms } => {
                if let Some((process, _)) = self.relays.get(&relay) {
                    kernel.kill_after(process.process, steps);
                }
                agenda.add(after(1_000 + again_ms), Act::StartRelay(relay));
            }
            What::DrainRelay { relay, again_ms } => {
                self.drain_relay(relay);
                agenda.add(after(again_ms), Act::StartRelay(relay));
            }
            What::PauseRelay { relay, steps, for_ms } => {
                if let Some((process, _)) = self.relays.get(&relay) {
                    kernel.pause_after(process.process, steps);
                }
                agenda.add(after(for_ms), Act::ResumeRelay(relay));
            }
            What::CutRelay { relay, for_ms } => {
                if let Some((process, _)) = self.relays.get(&relay) {
                    relay::cut(process, after(for_ms).0);
                }
            }
            What::JumpClock { relay, by_ms } => {
                if let Some((process, _)) = self.relays.get(&relay) {
                    process.clock.jump(by_ms * 1_000);
                }
            }
            What::KillApp { app, steps, again_ms } => {
                if let Some(process) = self.apps.get(&app) {
                    kernel.kill_after(process.process, steps);
                }
                agenda.add(after(1_000 + again_ms), Act::StartApp(app));
            }
            What::BrokerDown { place, for_ms } => {
                self.at(place, |place| place.down_until(after(for_ms)));
            }
            What::TopicDown { place, topic, for_ms } => {
                let topic = TYPES[usize::from(topic) % TYPES.len()];
                self.at(place, |place| place.topic_down_until(topic, after(for_ms)));
            }
            What::TopicSick { place, topic, for_ms } => {
                let topic = TYPES[usize::from(topic) % TYPES.len()];
                self.at(place, |place| place.topic_sick_until(topic, after(for_ms)));
            }
            What::TopicLimps { place, topic, for_ms } => {
                let topic = TYPES[usize::from(topic) % TYPES.len()];
                self.at(place, |place| place.topic_limps_until(topic, after(for_ms)));
            }
            What::TopicStrict { place, topic, for_ms } => {
                let topic = TYPES[usize::from(topic) % TYPES.len()];
                self.at(place, |place| place.topic_strict_until(topic, after(for_ms)));
            }
            What::TopicGone { place, topic } => {
                let topic = TYPES[usize::from(topic) % TYPES.len()];
                self.at(place, |place| place.topic_gone(topic));
            }
            What::ForgetDedup { place } => self.at(place, |place| place.memory.forget_seen()),
            _ if self.befall_consumer(what, at, agenda) => {}
            _ => self.befall_server(what, number, at, agenda),
        }
    }

    /// What happens to a consumer. Says whether it was that.
    fn befall_consumer(&self, what: &What, at: Tick, agenda: &mut Agenda) -> bool {
        let after = |ms: u64| at + Duration::from_millis(ms);
        let customers = self.customers.as_ref();
        match *what {
            What::KillConsumer { consumer, steps, again_ms } => {
                customers.inspect(|customers| customers.kill(consumer, steps));
                agenda.add(after(1_000 + again_ms), Act::StartConsumer(consumer));
            }
            What::PauseConsumer { consumer, for_ms } => {
                customers.inspect(|customers| customers.pause(consumer, true));
                agenda.add(after(for_ms), Act::ResumeConsumer(consumer));
            }
            What::JumpConsumer { consumer, by_ms } => {
                customers.inspect(|customers| customers.jump(consumer, by_ms * 1_000));
            }
            _ => return false,
        }
        true
    }

    fn befall_server(&mut self, what: &What, number: usize, at: Tick, agenda: &mut Agenda) {
        let after = |ms: u64| at + Duration::from_millis(ms);
        let (server, store) = (&self.shared.server, &self.shared.store);
        match *what {
            What::CrashServer { for_ms } => {
                server.stop();
                store.crash();
                agenda.add(after(for_ms), Act::StartServer);
            }
            What::FailOver { for_ms, .. } => {
                server.stop();
                if let Some((since, standby)) = self.standbys.remove(&number) {
                    self.shared.note_forgotten(since);
                    let lost = store.fail_over(standby);
                    self.shared.story.tell("world", || format!("lost with the server: {lost:?}"));
                    self.shared.note_lost(lost);
                    self.shared.note_leases_void();
                }
                agenda.add(after(for_ms), Act::StartServer);
            }
            What::DiskFull { for_ms } => {
                store.set_full(true);
                agenda.add(after(for_ms), Act::FreeDisk);
            }
            What::ReadOnly { for_ms } => {
                store.set_read_only(true);
                agenda.add(after(for_ms), Act::AllowWrites);
            }
            What::Deploy { .. } if self.cannot_apply() => {
                // An operator tries again when the server takes it.
                self.struck.remove(&number);
                agenda.add(after(2_000), Act::Incident(number));
            }
            What::Deploy { change, each_ms } => self.deploy(change, each_ms, at, agenda),
            _ => {}
        }
    }

    /// Whether the server refuses what changes the destinations.
    fn cannot_apply(&self) -> bool {
        let nothing = now(self.shared.store.apply(&DefinitionChange::default()));
        self.shared.server.is_down() || nothing.is_none_or(|done| done.is_err())
    }

    fn at(&self, place: u8, act: impl FnOnce(&crate::broker::Place)) {
        let places = self.shared.all_places();
        if let Some(place) = places.get(usize::from(place) % places.len().max(1)) {
            act(place);
        }
    }

    fn drain_relay(&self, slot: u8) {
        if let Some((relay, _)) = self.relays.get(&slot) {
            relay.orders.put(Input::Drain);
        }
    }

    fn end_relay(&self, slot: u8) {
        if let Some((relay, _)) = self.relays.get(&slot) {
            self.shared.kernel.kill(relay.process);
        }
    }

    /// What a server had lost of the definitions is applied again. A destination that is back under an
    /// old name is renamed again, so that it goes on where it stood.
    pub(crate) fn apply_again(&mut self) {
        if self.cannot_apply() {
            return;
        }
        self.rename_again();
        let Some(Ok(there)) = now(self.shared.store.destinations()) else { return };
        let ours = |id: &DestinationId| self.definitions.iter().any(|ours| ours.id == *id);
        let gone = there.rows.iter().map(|row| &row.definition.id);
        let gone = gone.filter(|id| id.as_str() != Destination::UNROUTED && !ours(id));
        let mut change = DefinitionChange { remove: gone.cloned().collect(), ..Default::default() };
        for definition in &self.definitions {
            let row = there.rows.iter().find(|row| row.definition.id == definition.id);
            if row.is_none_or(|row| row.definition != *definition) {
                change.put.push((definition.clone(), Start::Now));
            }
            if let (None, Some(place)) = (row, self.shared.place(definition.id.as_str())) {
                place.begins_after(self.shared.store.committed_len() as u64);
            }
        }
        _ = now(self.shared.store.apply(&change));
    }

    fn rename_again(&self) {
        let Some(Ok(there)) = now(self.shared.store.destinations()) else { return };
        let ids = || there.rows.iter().map(|row| &row.definition.id);
        for ours in self.definitions.iter().map(|definition| &definition.id) {
            let place = self.shared.place(ours.as_str()).map(|place| place.born.clone());
            let same = |id: &&DestinationId| {
                let other = self.shared.place(id.as_str());
                other.is_some_and(|other| Some(&other.born) == place.as_ref())
            };
            if let Some(old) = ids().find(same).filter(|old| *old != ours) {
                self.shared.weather.count("renamed_again");
                self.shared.story.tell("world", || format!("renames {old} to {ours} again"));
                _ = self.shared.store.rename(old, ours);
            }
        }
    }

    /// The last destination has another name, in the store and for relays that start from now on. Its
    /// broker is the same.
    fn rename_last(&mut self) {
        let Some(last) = self.definitions.last_mut() else { return };
        let Some(place) = self.shared.place(last.id.as_str()) else { return };
        let from = last.id.clone();
        let to = DestinationId::new(place.next_name()).expect("invariant: a valid name");
        self.shared.weather.count("renamed");
        self.shared.story.tell("world", || format!("renames {from} to {to}"));
        if let Err(error) = self.shared.store.rename(&from, &to) {
            self.shared.broke(Invariant::Progress, format!("cannot rename: {error}"));
        }
        self.shared.rename_place(from.as_str(), to.as_str());
        last.id = to;
    }

    /// The operator applies other definitions, and the relays are replaced one by one.
    fn deploy(&mut self, change: Change, each_ms: u64, at: Tick, agenda: &mut Agenda) {
        self.apply_again();
        let mut definitions = DefinitionChange::default();
        match change {
            Change::Rename => self.rename_last(),
            Change::Add => {
                let definition = self.build_place();
                if let Some(place) = self.shared.place(definition.id.as_str()) {
                    place.begins_after(self.shared.store.committed_len() as u64);
                }
                definitions.put.push((definition.clone(), Start::Now));
                self.definitions.push(definition);
            }
            Change::Remove if self.definitions.len() > 1 => {
                if let Some(gone) = self.definitions.pop() {
                    self.shared.remove_place(gone.id.as_str());
                    definitions.remove.push(gone.id);
                }
            }
            Change::Remove => {}
            Change::Routes => {
                if let Some(last) = self.definitions.last_mut() {
                    *last = narrowed(last);
                    if let Some(place) = self.shared.place(last.id.as_str()) {
                        place.takes_only(&TYPES[..2]);
                    }
                    definitions.put.push((last.clone(), Start::Now));
                }
            }
        }
        if let Some(Err(error)) = now(self.shared.store.apply(&definitions)) {
            self.shared.broke(Invariant::Progress, format!("cannot apply: {error}"));
        }
        self.version += 1;
        let slots: Vec<u8> = self.relays.keys().copied().collect();
        for (index, slot) in (1..).zip(slots) {
            agenda.add(at + Duration::from_millis(each_ms * index), Act::Replace(slot));
        }
    }
}

/// The same destination for two of the types.
fn narrowed(definition: &Destination) -> Destination {
    let Some(route) = definition.routes.first() else { return definition.clone() };
    let only = |kind: &str| route.clone().only(Match::event_type(kind));
    let routes = TYPES[..2].iter().map(|kind| only(kind)).collect();
    Destination::new(definition.id.clone(), definition.kind.clone(), routes)
}

#[cfg(test)]
mod tests {
    use crate::incident::{Change, Incident, What};
    use crate::outcome::Outcome;
    use crate::scenario::Scenario;
    use crate::world::{Options, run};

    /// Enough to meet every kind of store.
    const SEEDS: u64 = 20;

    /// A world in which only this strikes, besides its rates. A server that is lost is not judged with
    /// consumers.
    fn world(seed: u64, incidents: Vec<Incident>) -> Outcome {
        let mut scenario = Scenario::of(seed);
        scenario.consumers = 0;
        scenario.span_ms = 60_000;
        scenario.incidents = incidents;
        run(&scenario, &Options::default())
    }

    fn rename(at_ms: u64, each_ms: u64) -> Incident {
        Incident { at_ms, what: What::Deploy { change: Change::Rename, each_ms } }
    }

    #[test]
    fn a_destination_that_is_renamed_again_and_again_loses_nothing() {
        for seed in 0..SEEDS {
            let renames = [(4_000, 7_000), (10_000, 20_000), (16_000, 3_000), (30_000, 15_000)];
            let outcome = world(seed, renames.map(|(at, each)| rename(at, each)).to_vec());
            assert_eq!(outcome.failure, None, "seed {seed}");
            assert_eq!(outcome.tally.faults.get("renamed"), Some(&4), "seed {seed}");
        }
    }

    #[test]
    fn a_rename_that_goes_with_a_server_is_done_again() {
        for seed in 0..SEEDS {
            let fail_over = What::FailOver { lag_ms: 4_000, for_ms: 6_000 };
            let fail_over = Incident { at_ms: 12_500, what: fail_over };
            let incidents = vec![rename(10_000, 9_000), rename(11_500, 9_000), fail_over];
            let outcome = world(seed, incidents);
            assert_eq!(outcome.failure, None, "seed {seed}");
            assert_eq!(outcome.tally.faults.get("renamed_again"), Some(&1), "seed {seed}");
        }
    }
}
