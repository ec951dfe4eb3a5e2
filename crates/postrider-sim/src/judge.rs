//! The checkers: what the store and the brokers hold, written down as a history, and judged by the
//! same rules as every other test.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::operate::RequestState;
use postrider_core::waiting::{Counts, WaitingState};
use postrider_core::{DestinationId, EventId, Invariant, KeyHash, OutboxSource};
use postrider_history::{Commit, Delivery, History, Record, Standing, check};
use postrider_testkit::memory::CommittedRow;

use crate::app::{TYPES, short};
use crate::now;
use crate::owed::Owed;
use crate::shared::Shared;

/// Whether everything that was committed is delivered, or visibly dead, or was never to come: what
/// must be so at last.
pub fn at_rest(shared: &Shared) -> Result<(), String> {
    for place in shared.all_places() {
        if let (Ok(id), false) = (DestinationId::new(place.name()), place.owed().removed)
            && let Ok(counts) =
                now(shared.store.counts(&id)).unwrap_or_else(|| Ok(Counts::default()))
            && counts.retrying + counts.held + counts.disabled > 0
        {
            return Err(format!("{counts:?} at {}", place.name()));
        }
    }
    let committed = shared.store.committed_rows();
    for place in shared.all_places() {
        let (Ok(id), owed) = (DestinationId::new(place.name()), place.owed()) else { continue };
        if owed.removed {
            continue;
        }
        let mut visible: BTreeSet<_> = BTreeSet::new();
        let mut dead_keys: BTreeSet<_> = BTreeSet::new();
        for row in shared.store.waiting(&id) {
            match row.state {
                WaitingState::Dead if row.holds_key => _ = dead_keys.insert(row.key_hash),
                WaitingState::Dead => {}
                WaitingState::Discarded if shared.is_discarded(&place.born, row.row.id) => {}
                WaitingState::Parked if dead_keys.contains(&row.key_hash) => {}
                state => {
                    let event = short(row.row.id);
                    return Err(format!("{event} is {state:?} at {}: {row:?}", place.name()));
                }
            }
            visible.insert(row.row.id);
        }
        // What a range stands for waits behind the dead letter of its key; else somebody is to read it.
        let ranged = ranged(shared, &id);
        let parked = committed.iter().filter(|row| {
            ranged.contains(&row.row.id) && dead_keys.contains(&KeyHash::of(&row.key))
        });
        visible.extend(parked.map(|row| row.row.id));
        for row in committed.iter().filter(|row| is_owed(&owed, row)) {
            let let_go = shared.is_discarded(&place.born, row.row.id);
            if !let_go && !visible.contains(&row.row.id) && !place.has(row.row.id) {
                return Err(format!("{} is not at {} yet", short(row.row.id), place.name()));
            }
        }
    }
    Ok(())
}

/// What ranges of a destination stand for.
fn ranged(shared: &Shared, id: &DestinationId) -> BTreeSet<EventId> {
    shared.store.ranged(id).into_iter().map(|row| row.id).collect()
}

/// Whether a destination is owed an event.
fn is_owed(owed: &Owed, row: &CommittedRow) -> bool {
    let kind = row.event.as_ref().map(|event| &*event.event_type);
    let takes = |kind: &str| owed.types.contains(&kind);
    !owed.removed && row.position > owed.after && kind.is_none_or(takes)
}

/// The history of a world, as its store and its brokers have it.
pub fn history(shared: &Shared) -> History {
    let mut history = History::new();
    let places: Vec<_> =
        shared.all_places().into_iter().map(|place| (place.owed(), place)).collect();
    for row in shared.store.committed_rows().iter() {
        let owing = places.iter().filter(|(owed, place)| {
            is_owed(owed, row) && !shared.is_discarded(&place.born, row.row.id)
        });
        history.push(Record::Commit(Commit {
            id: row.row.id,
            source: String::new(),
            key: row.key.to_string(),
            order: row.position,
            destinations: Some(owing.map(|(_, place)| place.name().to_string()).collect()),
            unserialised: shared.is_unserialised(row.row.id),
        }));
    }
    for id in shared.lost() {
        history.push(Record::Commit(Commit {
            id,
            source: String::new(),
            key: "lost".to_owned(),
            order: 0,
            destinations: Some(BTreeSet::new()),
            unserialised: true,
        }));
    }
    for id in shared.rolled_back() {
        history.push(Record::Rollback { id });
    }
    let rows = shared.store.committed_rows();
    let positions: BTreeMap<EventId, u64> =
        rows.iter().map(|row| (row.row.id, row.position)).collect();
    for (owes, place) in &places {
        let deliveries = place.memory.published().into_iter().zip(place.sent());
        for (order, (published, sent)) in (1..).zip(deliveries) {
            history.push(Record::Delivery(Delivery {
                destination: place.name().to_string(),
                id: published.event.id,
                order,
                // A mark excuses only what somebody asked for.
                late: (published.marks.late && shared.may_be_late(&place.born, published.event.id))
                    || (published.marks.replay && shared.is_rewound(&place.born))
                    // What was there before the destination comes with a rewind alone, and was never
                    // sent before: it is no replay, and newer ones may have come first.
                    || (shared.is_rewound(&place.born)
                        && positions.get(&published.event.id).is_some_and(|at| *at <= owes.after))
                    || shared.had_moved_on(&place.born, published.event.id, sent),
                at_ms: None,
            }));
        }
        let Ok(id) = DestinationId::new(place.name()) else { continue };
        // What is not owed holds nobody's key: in a rolling deploy an old relay may read what a new
        // one has passed by, and cannot know its route.
        let owed: BTreeSet<EventId> =
            rows.iter().filter(|row| is_owed(owes, row)).map(|row| row.row.id).collect();
        for row in shared.store.waiting(&id) {
            // Nor does what was let go, on a server that another one took over from: what followed it
            // came by then.
            let let_go = shared.is_discarded(&place.born, row.row.id) && shared.has_forgotten();
            let holds = row.holds_key && owed.contains(&row.row.id) && !let_go;
            history.wait(&place.name(), row.row.id, Standing::from(row.state), holds);
        }
        for id in ranged(shared, &id).intersection(&owed) {
            history.wait(&place.name(), *id, Standing::Parked, true);
        }
    }
    history
}

/// Judges a world at its end.
pub fn judge(shared: &Shared) {
    let verdict = check(&history(shared));
    if let Some(violation) = verdict.violations.first() {
        shared.broke(violation.invariant, violation.to_string());
    }
    look_for_misdeeds(shared);
    judge_requests(shared);
}

/// INV-7: nobody writes that an event is dead by an attempt from before it was redriven.
pub fn look_at_undoing(shared: &Shared, name: &str, id: EventId) {
    let Some(place) = shared.place(name) else { return };
    for (request, born, _, asked) in shared.redriven().into_iter().filter(|(_, _, of, _)| *of == id)
    {
        let done = |state: RequestState| state.finished && state.skipped == 0;
        if born == place.born
            && shared.lost().is_empty()
            && !shared.went_with_server(asked)
            && shared.store.request(request).is_ok_and(done)
            && place.tried_last(id).is_none_or(|sent| sent < asked)
        {
            let what = format!("{} was redriven at {born} by request {request}", short(id));
            shared.broke(Invariant::Truth, format!("{what}, and is dead again by an old attempt"));
        }
    }
}

/// INV-7: what a request says was redriven was sent again.
fn judge_requests(shared: &Shared) {
    for (request, born, id, asked) in shared.redriven() {
        let Ok(state) = shared.store.request(request) else { continue };
        let Some(place) = shared.place(&born) else { continue };
        // After another server took over, numbers name other events.
        let owed = place.owed();
        // Nor is what no route takes any more sent by anybody.
        let rerouted = TYPES.iter().any(|kind| !owed.types.contains(kind));
        // A request that went with the server left its number to another one.
        let gone = !shared.lost().is_empty() || shared.went_with_server(asked);
        let undone = gone || owed.removed || rerouted;
        let done = state.finished && state.skipped == 0;
        if !done || undone || shared.is_discarded(&born, id) {
            continue;
        }
        // Behind another of its key it waits for that one first.
        let parked = DestinationId::new(place.name()).is_ok_and(|at| {
            let mut rows = shared.store.waiting(&at).into_iter();
            rows.any(|row| row.row.id == id && row.state == WaitingState::Parked)
                || ranged(shared, &at).contains(&id)
        });
        if !parked && place.tried_last(id).is_none_or(|sent| sent < asked) {
            let what = format!("request {request} says that {} was redriven at {born}", short(id));
            shared.broke(Invariant::Truth, format!("{what}, and it was not sent since"));
        }
    }
}

/// INV-6: what waits is as much as may, by what each relay knows of the others, and what windows held.
pub fn look_at_what_waits(shared: &Shared) {
    let scenario = &shared.scenario;
    let Some(bound) = shared.waiting_max() else { return };
    let windows = u64::from(scenario.partitions) * u64::from(scenario.window_rows);
    let most = u64::from(scenario.relays) * bound + windows;
    for place in shared.all_places() {
        let Ok(id) = DestinationId::new(place.name()) else { continue };
        let counts = now(shared.store.counts(&id)).and_then(Result::ok).unwrap_or_default();
        if counts.total() > most {
            let what = format!("{counts:?} wait at {id}, and {most} may");
            shared.broke(Invariant::Bounded, what);
        }
    }
}

/// What the store's own ledger of grants says: a write under an old token, two owners, a token twice.
pub fn look_for_misdeeds(shared: &Shared) {
    for misdeed in shared.store.misdeeds() {
        shared.broke(Invariant::KeyOrder, misdeed);
    }
}
