//! What a consumer holds: the partitions that are its own, with their windows, shared by the thread that reads and
//! those who settle.
//!
//! Invariant: a partition that is given up is not committed beyond what is settled, and nothing is settled in it
//! afterwards.

mod hand_out;
mod limits;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::subscription::Receipt;
use postrider_core::{Delivery, Error, ErrorKind, Result};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::limits::Limits;
use crate::aside::Aside;
use crate::record::Record;
use crate::stuck::Places;
use crate::subscription::SubscriptionSettings;
use crate::window::Window;

/// A topic and one of its partitions.
pub(crate) type Place = (Arc<str>, i32);

/// What is to be committed of a partition: an offset, and what stands beside it.
pub(crate) type Mark = (Place, (i64, String));

struct Held {
    window: Window,
    /// What was committed last, as far as is known.
    committed: Option<(i64, String)>,
    /// It is being given up: nothing more is handed out.
    leaving: bool,
    paused: bool,
}

#[derive(Default)]
struct Inner {
    held: BTreeMap<Place, Held>,
    /// The partition that handed out last: the next one begins, so that none with a long backlog keeps others waiting.
    served: Option<Place>,
    /// Where the record of a receipt is.
    open: HashMap<u64, (Place, i64)>,
    drawn: u64,
    joined: bool,
    trouble: Option<Error>,
    /// No server could be reached, and nobody was told yet that it can be again.
    down: bool,
    /// That is to be told.
    back: bool,
    /// Partitions that transactions of others hold up, and where.
    held_up: Vec<(Place, i64)>,
}

/// See the module.
pub(crate) struct Holdings {
    group: Arc<str>,
    visibility: Duration,
    /// Records of one partition that may wait here.
    window_max: usize,
    /// Bytes of all partitions that may wait here, in equal parts.
    bytes_max: usize,
    inner: Mutex<Inner>,
    /// Something may be handed out, or somebody has to be told of trouble.
    changed: Notify,
    /// Something was settled or given back.
    settled: Condvar,
}

impl Holdings {
    /// After others, tokens go on where theirs ended.
    pub(crate) fn after(settings: &SubscriptionSettings, before: Option<&Holdings>) -> Holdings {
        let drawn = before.map_or(0, |before| before.lock().drawn);
        Holdings {
            group: Arc::from(&*settings.group),
            visibility: settings.visibility,
            window_max: settings.unsettled_max,
            bytes_max: settings.unsettled_bytes_max,
            inner: Mutex::new(Inner { drawn, ..Inner::default() }),
            changed: Notify::new(),
            settled: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group has given us these, besides what we have, each with what a member before had put aside, and with where the
    /// library says that reading stands: that is of another time, if it is anywhere.
    pub(crate) fn take_over(&self, places: Vec<(Place, Aside)>, stale: &Places) {
        let mut inner = self.lock();
        for (place, aside) in places {
            let mut window = Window::behind(aside);
            window.stand_at(stale.get(&place).copied().flatten());
            let held = Held { window, committed: None, leaving: false, paused: false };
            inner.held.insert(place, held);
        }
        inner.joined = true;
        drop(inner);
        self.changed.notify_waiters();
    }

    /// Hands out nothing more of these, and waits until what is handed out is settled, or not ours any more. What
    /// to commit of them.
    pub(crate) fn finish(&self, places: &[Place], patience: Duration) -> Vec<Mark> {
        let until = std::time::Instant::now() + patience;
        let mut inner = self.lock();
        for place in places {
            if let Some(held) = inner.held.get_mut(place) {
                held.leaving = true;
            }
        }
        loop {
            let now = Instant::now();
            let away =
                |place: &Place| inner.held.get(place).is_some_and(|it| it.window.is_away(now));
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || !places.iter().any(away) {
                break;
            }
            // What runs out by itself tells nobody.
            let nap = left.min(Duration::from_millis(50));
            inner = self
                .settled
                .wait_timeout(inner, nap)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(inner, _)| inner);
        }
        let settled = |place: &Place| Some((place.clone(), inner.held.get(place)?.window.mark()?));
        places.iter().filter_map(settled).collect()
    }

    /// These topics are gone: nothing of them is committed, and nothing can be settled.
    pub(crate) fn let_go(&self, topics: &[String]) {
        let is_gone = |place: &&Place| topics.iter().any(|topic| **topic == *place.0);
        let places: Vec<Place> = self.lock().held.keys().filter(is_gone).cloned().collect();
        self.give_up(&places);
    }

    /// These are not ours any more.
    pub(crate) fn give_up(&self, places: &[Place]) {
        let mut inner = self.lock();
        for place in places {
            inner.held.remove(place);
        }
        inner.open.retain(|_, (place, _)| !places.contains(place));
    }

    /// A record was read. Whether its partition has read enough with it.
    pub(crate) fn push(&self, place: &Place, record: Record) -> bool {
        let mut inner = self.lock();
        let limits = self.limits(&inner);
        let mut is_full = false;
        if let Some(held) = inner.held.get_mut(place) {
            if held.window.push(record) {
                held.committed = None;
            }
            is_full = !held.paused && limits.are_reached(&held.window);
        }
        drop(inner);
        self.changed.notify_waiters();
        is_full
    }

    fn limits(&self, inner: &Inner) -> Limits {
        Limits {
            records: self.window_max,
            bytes: (self.bytes_max / inner.held.len().max(1)).max(1),
        }
    }

    /// What is settled and not known to be committed.
    pub(crate) fn uncommitted(&self) -> Vec<Mark> {
        let newer = |(place, held): (&Place, &Held)| {
            let mark = held.window.mark().filter(|mark| held.committed.as_ref() != Some(mark))?;
            Some((place.clone(), mark))
        };
        self.lock().held.iter().filter_map(newer).collect()
    }

    /// The group has these.
    pub(crate) fn committed(&self, marks: &[Mark]) {
        let mut inner = self.lock();
        for (place, mark) in marks {
            if let Some(held) = inner.held.get_mut(place) {
                held.committed = Some(mark.clone());
            }
        }
    }

    /// Partitions that have read enough for now, and those that have room again.
    pub(crate) fn flow(&self) -> (Vec<Place>, Vec<Place>) {
        let (mut full, mut free) = (Vec::new(), Vec::new());
        let mut inner = self.lock();
        let limits = self.limits(&inner);
        for (place, held) in &mut inner.held {
            if !held.paused && limits.are_reached(&held.window) {
                held.paused = true;
                full.push(place.clone());
            } else if held.paused && limits.leave_room(&held.window) {
                held.paused = false;
                free.push(place.clone());
            }
        }
        (full, free)
    }

    /// Somebody has to be told.
    pub(crate) fn complain(&self, error: Error) {
        let mut inner = self.lock();
        inner.back = false;
        inner.trouble = Some(error);
        drop(inner);
        self.changed.notify_waiters();
    }

    /// So far was read of these, with what is no record.
    pub(crate) fn pass(&self, positions: &Places) {
        let mut inner = self.lock();
        for (place, position) in positions {
            if let Some(held) = inner.held.get_mut(place) {
                held.window.pass(*position);
            }
        }
    }

    /// Transactions of others hold up these, and no more.
    pub(crate) fn are_held_up(&self, places: Vec<(Place, i64)>) {
        self.lock().held_up = places;
    }

    /// See [`are_held_up`](Self::are_held_up).
    pub(crate) fn held_up(&self) -> Vec<(Place, i64)> {
        self.lock().held_up.clone()
    }

    /// No server can be reached.
    pub(crate) fn is_down(&self) {
        self.lock().down = true;
    }

    /// The servers answer. Where none could be reached, who receives is told so by an answer without a delivery: in a
    /// topic in which nothing happens there is no other.
    pub(crate) fn is_up(&self) {
        let mut inner = self.lock();
        if std::mem::take(&mut inner.down) {
            inner.back = true;
            drop(inner);
            self.changed.notify_waiters();
        }
    }

    /// Returns when the group has let us in.
    ///
    /// # Errors
    /// What is in the way.
    pub(crate) async fn joined(&self) -> Result<()> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut inner = self.lock();
                if let Some(error) = inner.trouble.take() {
                    return Err(error);
                }
                if inner.joined {
                    return Ok(());
                }
            }
            changed.await;
        }
    }

    /// Waits for deliveries, and hands out up to `max`.
    ///
    /// # Errors
    /// What went wrong since the last call.
    pub(crate) async fn receive(&self, max: usize) -> Result<Vec<Delivery>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let due = {
                let mut inner = self.lock();
                if let Some(error) = inner.trouble.take() {
                    return Err(error);
                }
                let out = inner.hand_out(&self.group, self.visibility, max.max(1));
                if !out.is_empty() || std::mem::take(&mut inner.back) {
                    return Ok(out);
                }
                inner.held.values().filter_map(|held| held.window.next_due()).min()
            };
            match due {
                None => changed.await,
                Some(due) => tokio::select! {
                    () = changed => {}
                    // waits: until a delivery runs out, or its delay is over
                    () = tokio::time::sleep_until(due) => {}
                },
            }
        }
    }

    /// The record of a delivery that is ours.
    ///
    /// # Errors
    /// `Fenced` if it is not any more.
    pub(crate) fn find(&self, receipt: Receipt) -> Result<(Place, Record)> {
        let inner = self.lock();
        let found = inner.open.get(&receipt.message).and_then(|(place, offset)| {
            let window = &inner.held.get(place)?.window;
            let record = window.find(*offset, receipt.token, Instant::now())?;
            Some((place.clone(), record.clone()))
        });
        found.ok_or_else(fenced)
    }

    /// It was put aside as a dead letter.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn put_aside(&self, receipt: Receipt) -> Result<()> {
        self.within(receipt, |window, offset, now| window.put_aside(offset, receipt.token, now))?;
        self.lock().open.remove(&receipt.message);
        Ok(())
    }

    /// It is done.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn settle(&self, receipt: Receipt) -> Result<()> {
        self.within(receipt, |window, offset, now| window.settle(offset, receipt.token, now))?;
        self.lock().open.remove(&receipt.message);
        Ok(())
    }

    /// It comes again.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn give_back(&self, receipt: Receipt, delay: Duration, counted: bool) -> Result<()> {
        self.within(receipt, |window, offset, now| {
            window.give_back(offset, receipt.token, now, delay, counted)
        })
    }

    /// It stays ours.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn extend(&self, receipt: Receipt, by: Duration) -> Result<()> {
        self.within(receipt, |window, offset, now| window.extend(offset, receipt.token, now, by))
    }

    fn within(
        &self,
        receipt: Receipt,
        change: impl FnOnce(&mut Window, i64, Instant) -> bool,
    ) -> Result<()> {
        let mut inner = self.lock();
        let (place, offset) = inner.open.get(&receipt.message).cloned().ok_or_else(fenced)?;
        let held = inner.held.get_mut(&place).ok_or_else(fenced)?;
        let changed = change(&mut held.window, offset, Instant::now());
        drop(inner);
        if !changed {
            return Err(fenced());
        }
        self.settled.notify_all();
        self.changed.notify_waiters();
        Ok(())
    }
}

fn fenced() -> Error {
    Error::new(ErrorKind::Fenced, "settle delivery").message(
        "its visibility ended, or its partition went to another consumer; it comes again, and nothing was settled",
    )
}

#[cfg(test)]
mod tests;
