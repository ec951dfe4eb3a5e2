//! Hold: an endpoint that refuses every event of one type is given no more of it than a probe; they wait as held.
//!
//! Keeps INV-1 and INV-5: what refuses a whole type (a schema that nobody registered, a right that was taken away) is mended
//! once, and not by redriving each of its events; other types flow, and the cursor waits for none of them.
//!
//! Where some of a type are taken, those that are refused are to blame themselves: one of the type that is acknowledged ends
//! the count, and lets all of it go again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::waiting::{Placement, Reason, WaitingChange, WaitingRow};
use postrider_core::{DeadKeyPolicy, DestinationId, Event, Fault, KeyHash, Tick, planted, reach};

use crate::attempt::attempted;
use crate::flow::Flow;
use crate::judge::Judgement;
use crate::lane::{Entry, Lane, Origin};
use crate::machine::{BatchItem, Machine};
use crate::notice::Notice;
use crate::outlet::Outlet;
use crate::retake::Retaken;
use crate::settings::Settings;

/// Types of which refusals are counted at once, of one destination. Beyond, those of further types are dead letters.
const TYPES_MAX: usize = 256;

/// For how long those of which one was refused are not forgotten for others.
const LATELY: Duration = Duration::from_secs(60);

/// What comes back late at most when a type is taken again. Five minutes, as after an outage.
const AWAY_MAX: Duration = Duration::from_secs(300);

/// How long after its last probe was due a type that nobody tries any more counts as held: longer than anything of it stays in
/// the store.
const KEPT: Duration = Duration::from_secs(330);

/// The types of one destination of which something was refused since one of them was taken last, by topic and type.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    counted: BTreeMap<Arc<str>, BTreeMap<Box<str>, Hold>>,
    /// Those that were held, and taken again since: what of them is refused now is to blame itself.
    taken: BTreeSet<(Arc<str>, Box<str>)>,
}

/// One of them.
#[derive(Debug)]
struct Hold {
    /// Of which keys; as many as decide.
    keys: BTreeSet<KeyHash>,
    refused: u32,
    /// When one was last.
    at: Tick,
    open: Option<Open>,
}

/// All of it is refused.
#[derive(Debug)]
struct Open {
    since: Tick,
    /// When one is sent next.
    probe_at: Tick,
    /// When one is that was just read: what waits may be nothing but poison, and take every turn for hours.
    fresh_at: Tick,
    /// How long after the one before at least. It doubles with each that is sent, and not with its answer: that may take longer.
    pause: Duration,
    pause_max: Duration,
    /// How many were put back since then.
    crowd: u32,
    /// What was answered last.
    said: String,
}

impl Open {
    /// How long what is not sent stays in the store at most: a quarter of the time that it has been, so that many cost little;
    /// and where there are few, so short that there is one for each probe.
    fn away(&self, now: Tick) -> Duration {
        let turns = self.pause.saturating_mul(self.crowd.saturating_add(1));
        (now.since(self.since) / 4).min(AWAY_MAX).min(turns).max(self.probe_at.since(now))
    }

    /// One is sent now, in the turn of those that were just read or in that of all.
    fn probe(&mut self, fresh: bool, now: Tick) {
        self.pause = (self.pause * 2).min(self.pause_max);
        let next = now + self.pause;
        match fresh {
            true => self.fresh_at = next,
            false => (self.probe_at, self.crowd) = (next, 0),
        }
    }

    /// How long one of a key does: they come back one after the other, and not all between two probes. None sooner than in half
    /// of the time: the same few would come back each time, and cost as much as all others.
    fn apart(&mut self, key: KeyHash, now: Tick) -> Duration {
        self.crowd = self.crowd.saturating_add(1);
        let most = self.away(now);
        let least = self.probe_at.since(now).max(most / 2);
        least
            + most
                .saturating_sub(least)
                .mul_f64(f64::from((key.0 >> 32) as u32) / f64::from(u32::MAX))
    }
}

impl Holds {
    fn get(&self, topic: &str, of: &Event) -> Option<&Hold> {
        self.counted.get(topic)?.get(&*of.event_type)
    }

    fn open(&self, topic: &str, of: &Event) -> Option<&Open> {
        self.get(topic, of)?.open.as_ref()
    }

    fn open_mut(&mut self, topic: &str, of: &Event) -> Option<&mut Open> {
        self.counted.get_mut(topic)?.get_mut(&*of.event_type)?.open.as_mut()
    }

    /// Where something is counted, or there is room to.
    fn counted(&mut self, topic: &Arc<str>, of: &Event, now: Tick) -> Option<&mut Hold> {
        if self.get(topic, of).is_none() && self.types() >= TYPES_MAX {
            // Those of which nothing was refused lately may be counted anew. Not all that are not open: of more types than that,
            // refused in turn, none would ever be.
            for types in self.counted.values_mut() {
                types.retain(|_, hold| hold.open.is_some() || now < hold.at + LATELY);
            }
            self.counted.retain(|_, types| !types.is_empty());
            if self.types() >= TYPES_MAX {
                return None;
            }
        }
        let types = self.counted.entry(Arc::clone(topic)).or_default();
        let new = Hold { keys: BTreeSet::new(), refused: 0, at: now, open: None };
        Some(types.entry(Box::from(&*of.event_type)).or_insert(new))
    }

    fn types(&self) -> usize {
        self.counted.values().map(BTreeMap::len).sum()
    }

    /// One of a type was taken: since when it was held, if it was, and how many had been refused.
    fn took(&mut self, topic: &Arc<str>, of: &Event) -> Option<(Tick, u32)> {
        let types = self.counted.get_mut(topic)?;
        let hold = types.remove(&*of.event_type)?;
        if types.is_empty() {
            self.counted.remove(topic);
        }
        let open = hold.open?;
        if self.taken.len() >= TYPES_MAX {
            self.taken.clear();
        }
        self.taken.insert((Arc::clone(topic), Box::from(&*of.event_type)));
        Some((open.since, hold.refused))
    }

    /// Whether an event that was held by an owner before is refused once more: its type is held again at once, unless one of it
    /// was taken since.
    fn is_again(&self, topic: &Arc<str>, entry: &Entry) -> bool {
        let held = matches!(entry.origin, Origin::Waiting { held: true, .. });
        held && !self.taken.contains(&(Arc::clone(topic), Box::from(&*entry.event.event_type)))
    }

    /// Those that are held, with what was answered.
    pub(crate) fn held(&self, now: Tick) -> impl Iterator<Item = (&str, &str, &str)> {
        self.counted.iter().flat_map(move |(topic, types)| {
            let all = types.iter().map(move |(of, hold)| (&**topic, &**of, hold.stands(now)));
            all.filter_map(|(topic, of, open)| Some((topic, of, &*open?.said)))
        })
    }

    /// Since when some are.
    pub(crate) fn since(&self, now: Tick) -> Option<Tick> {
        let all = self.counted.values().flat_map(BTreeMap::values);
        all.filter_map(|hold| Some(hold.stands(now)?.since)).min()
    }
}

impl Hold {
    /// What is open of it, and not long left alone: its events may all have been erased, or go elsewhere.
    fn stands(&self, now: Tick) -> Option<&Open> {
        self.open.as_ref().filter(|open| now < open.probe_at.max(open.fresh_at) + KEPT)
    }
}

impl Outlet {
    /// Hears what became of an event. What an operator is to hear of it.
    pub(crate) fn hears(
        &mut self,
        entry: &Entry,
        judgement: &Judgement,
        now: Tick,
        settings: &Settings,
    ) -> Option<Notice> {
        // Of every event that is delivered: where nothing is refused it costs nothing.
        let concerns = match judgement {
            Judgement::Delivered => !self.holds.counted.is_empty(),
            judgement => matches!(judgement, Judgement::Refused { .. }),
        };
        if !concerns {
            return None;
        }
        let topic = Arc::clone(&self.endpoint(entry.endpoint).topic);
        let destination = self.definition.id.clone();
        match judgement {
            Judgement::Delivered => {
                let (since, refused) = self.holds.took(&topic, &entry.event)?;
                reach!(TypeTaken);
                let (of, away) = (entry.event.event_type.to_string(), now.since(since));
                Some(Notice::TypeTaken { destination, topic, event_type: of, refused, away })
            }
            Judgement::Refused { fault } => {
                let pause_max = settings.pause_max.min(self.capabilities.pause_max);
                let again = self.holds.is_again(&topic, entry);
                let hold = self.holds.counted(&topic, &entry.event, now)?;
                (hold.refused, hold.at) = (hold.refused.saturating_add(1), now);
                let said = attempted(0, Reason::Held, fault.to_string()).detail;
                if let Some(open) = &mut hold.open {
                    open.said = said;
                    return None;
                }
                if hold.keys.len() <= settings.held_keys as usize {
                    hold.keys.insert(entry.event.key_hash());
                }
                let few = hold.keys.len() <= settings.held_keys as usize;
                if !again && (few || hold.refused <= settings.held_rows) {
                    return None;
                }
                reach!(TypeHeldAgain, if again);
                reach!(TypeHeld);
                let (pause, refused) = (settings.pause_min.min(pause_max), hold.refused);
                let (probe_at, detail) = (now + pause, said.clone());
                hold.open = Some(Open {
                    since: now,
                    probe_at,
                    fresh_at: probe_at,
                    pause,
                    pause_max,
                    crowd: 0,
                    said,
                });
                let event_type = entry.event.event_type.to_string();
                self.holds.taken.remove(&(Arc::clone(&topic), Box::from(&*event_type)));
                Some(Notice::TypeHeld { destination, topic, event_type, refused, detail })
            }
            _ => None,
        }
    }

    /// Whether an event is of a type that its endpoint refuses: not the next in a batch.
    pub(crate) fn is_held(&self, entry: &Entry) -> bool {
        !self.holds.counted.is_empty()
            && self.holds.open(&self.endpoint(entry.endpoint).topic, &entry.event).is_some()
    }

    /// Whether an event is held, and it is not time for a probe: for how long it stays in the store.
    pub(crate) fn keeps_away(
        &mut self,
        endpoint: u32,
        event: &Event,
        now: Tick,
    ) -> Option<Duration> {
        if self.holds.counted.is_empty() {
            return None;
        }
        let open = self.holds.open_mut(&self.endpoints[endpoint as usize].topic, event)?;
        let away = now < open.probe_at || planted!(HeldForEver);
        away.then(|| open.apart(event.key_hash(), now))
    }

    /// Whether the head of a lane is held: for how long it goes back to the store. Not if it is the next probe.
    pub(crate) fn holds_back(&mut self, head: &Entry, now: Tick) -> Option<Duration> {
        if self.holds.counted.is_empty() {
            return None;
        }
        let topic = &self.endpoints[head.endpoint as usize].topic;
        let open = self.holds.open_mut(topic, &head.event)?;
        let fresh = matches!(head.origin, Origin::Stream(_)) && now >= open.fresh_at;
        if (now < open.probe_at && !fresh) || planted!(HeldForEver) {
            return Some(open.apart(head.event.key_hash(), now));
        }
        reach!(TypeProbed);
        open.probe(fresh, now);
        None
    }

    /// Where an event was refused of a type that is held: for how long it stays in the store, a little longer than others,
    /// so that the next probe is another's.
    fn held_for(&self, head: &Entry, now: Tick) -> Option<Duration> {
        let open = self.holds.open(&self.endpoint(head.endpoint).topic, &head.event)?;
        Some(open.away(now) + open.pause / 8)
    }

    /// What was answered of the type of an event.
    fn said_of(&self, endpoint: u32, event: &Event) -> String {
        let open = self.holds.open(&self.endpoint(endpoint).topic, event);
        open.map_or_else(String::new, |open| open.said.clone())
    }
}

impl Flow {
    /// Lets a lane whose head is held wait in the store.
    pub(crate) fn hold(&mut self, key: KeyHash, delay: Duration, outlet: &Outlet, now: Tick) {
        let head = self.lanes.get(&key).and_then(Lane::head);
        let Some(head) = head else { return };
        reach!(EventHeld);
        match head.origin {
            Origin::Stream(_) => {
                let attempted =
                    attempted(0, Reason::Held, outlet.said_of(head.endpoint, &head.event));
                self.spill(key, Some(Placement::Retry { delay, attempted }), now);
            }
            // One that was promoted, or failed before, waits as held from now on.
            Origin::Waiting { attempts, late, suspect: false, held: false } => {
                let said = outlet.said_of(head.endpoint, &head.event);
                let attempted = attempted(attempts, Reason::Held, said);
                let change = WaitingChange::Retry { row: head.row, delay, attempted };
                self.change(key, !late, change, now);
                self.spill(key, None, now);
            }
            Origin::Waiting { .. } => _ = self.postpone(key, delay, now),
        }
    }
}

impl Flow {
    /// Lets a row that was due wait as held. It stands in no lane meanwhile: it would be the only probe of an endpoint that is
    /// down, and not be sent.
    pub(crate) fn hold_row(
        &mut self,
        row: &WaitingRow,
        endpoint: u32,
        delay: Duration,
        outlet: &Outlet,
        now: Tick,
    ) -> Retaken {
        reach!(EventHeld);
        if row.held || row.suspect {
            return self.put_back(row, delay, now);
        }
        let attempted = attempted(row.attempts, Reason::Held, outlet.said_of(endpoint, &row.event));
        self.end_turn(row, WaitingChange::Retry { row: row.row, delay, attempted }, now)
    }
}

impl Machine {
    /// The head of a lane was refused for good: it gives up at once, but for the policy that never does; or it waits, because
    /// all of its type is refused.
    pub(crate) fn refuse_head(
        &mut self,
        destination: &DestinationId,
        item: &BatchItem,
        fault: &Fault,
    ) {
        let now = self.now;
        let Some(outlet) = self.outlets.get_mut(destination) else { return };
        let flow = self.owned.get_mut(&item.partition).and_then(|owned| owned.flow(destination));
        let head = flow.as_ref().and_then(|flow| flow.lanes.get(&item.key)?.head());
        let Some(head) = head else { return };
        let route = outlet.route(head.route);
        let (policy, delay_max) = (route.dead_key, route.retry.delay_max);
        let attempts = match head.origin {
            Origin::Stream(_) => 0,
            Origin::Waiting { attempts, .. } => attempts,
        };
        let (delay, attempted) = match outlet.held_for(head, now) {
            Some(delay) => {
                reach!(EventHeld);
                self.stats.count_endpoint_failure(destination);
                (Some(delay), attempted(attempts, Reason::Held, fault.to_string()))
            }
            None => {
                reach!(EventRefused);
                outlet.moved(now, &self.settings);
                self.stats.count_failure(destination);
                let halts = policy == DeadKeyPolicy::Halt;
                let attempted = attempted(attempts + 1, Reason::Rejected, fault.to_string());
                (halts.then_some(delay_max), attempted)
            }
        };
        self.give_up_or_retry(destination, item, delay, attempted, policy);
    }
}

#[cfg(test)]
mod tests;
