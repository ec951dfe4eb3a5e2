//! Deliveries that wait for a session, and who of them go together.
//!
//! Invariants: nobody waits for company: whoever is there when a session is free goes. A delivery hears a verdict
//! of its group only after the group's commit, and is done again alone, by itself, after anything else; so a
//! group that is lost on the way, or a runtime that ends, loses nobody. Bounded: who waits is in a call that
//! the engine bounds, one task gathers, and a group holds a session.
//!
//! The engine has one delivery of a key in work, so no two of a key are in a group of one consumer's, and the order
//! within a group is free. Nothing here relies on it: the same event twice in a group is done once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::inbox::Verdict;
use postrider_core::{Error, Event, Result};
use tokio::sync::oneshot;
use tracing::Span;

use crate::leaving::Permit;
use crate::transactional::Work;

/// The largest group: with a millisecond for each, rows are locked for a quarter of a second.
pub(crate) const GROUP_MAX: usize = 256;

/// So many deliveries without a failure double the size of groups again. Where every group fails, this is how
/// rarely one is tried.
const GROW_AFTER: usize = 64;

/// So many times as long as a group took in vain, the next ones stay small: what such groups cost is then a twentieth at
/// most, whatever ends them.
const SMALL_FOR: u32 = 20;

/// How often the ready tasks have their turn before a group leaves: they may be about to come.
const TURNS: usize = 4;

/// A delivery that waits.
pub(crate) struct Seat {
    pub(crate) event: Arc<Event>,
    /// Of the delivery: where the handler is traced.
    pub(crate) span: Span,
    pub(crate) tell: oneshot::Sender<Told>,
}

/// What a delivery hears.
pub(crate) enum Told {
    /// The group was committed, or whether it was is not known.
    Is(Result<Verdict>),
    /// Nothing of the group was kept, or it has none: it is done alone, under this permit if it has one already.
    Alone(Option<Permit>),
}

/// How a group ended.
pub(crate) enum Ended {
    /// It was committed; a verdict for each, in its order.
    Committed(Vec<Verdict>),
    /// Nothing of it was kept.
    Apart,
    /// There is no database.
    Failed(Error),
    /// It is not known whether it was committed.
    Unknown(Error),
}

/// Where the deliveries of one handler gather.
pub(crate) struct Groups {
    shared: Arc<Shared>,
}

struct Shared {
    work: Arc<Work>,
    waiting: Mutex<Waiting>,
}

struct Waiting {
    seats: VecDeque<Seat>,
    /// Somebody is about to take them.
    gathering: bool,
    pace: Pace,
}

/// How large groups are now.
struct Pace {
    size: usize,
    max: usize,
    /// Deliveries since a group failed, or since they grew.
    sound: usize,
    /// They do not grow before.
    small_until: Option<Instant>,
}

impl Groups {
    pub(crate) fn new(work: &Arc<Work>, group_max: usize) -> Groups {
        let pace = Pace::new(group_max);
        let waiting = Waiting { seats: VecDeque::new(), gathering: false, pace };
        Groups { shared: Arc::new(Shared { work: Arc::clone(work), waiting: Mutex::new(waiting) }) }
    }

    /// Acts on an event together with those that wait at the same moment.
    pub(crate) async fn receive(&self, event: &Arc<Event>) -> Result<Verdict> {
        let (tell, told) = oneshot::channel();
        let seat = Seat { event: Arc::clone(event), span: Span::current(), tell };
        if self.shared.lock().sit(seat) {
            // Made before the task: one that never has its turn ends the gathering as well.
            tokio::spawn(gather(Gathering { shared: Arc::clone(&self.shared), ended: false }));
        }
        let work = &self.shared.work;
        let permit = match told.await {
            Ok(Told::Is(answer)) => return answer,
            Ok(Told::Alone(Some(permit))) => permit,
            // Or the group is gone, and what became of it is in the database.
            Ok(Told::Alone(None)) | Err(_) => work.permit().await?,
        };
        work.receive(&permit, event).await
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Says whether somebody has to gather.
    fn sit(&mut self, seat: Seat) -> bool {
        if self.seats.len() == self.seats.capacity() {
            // Before it grows.
            self.seats.retain(|seat| !seat.tell.is_closed());
        }
        self.seats.push_back(seat);
        !std::mem::replace(&mut self.gathering, true)
    }

    /// Those who go next, in the order in which all groups lock their markers; nobody, and the gathering ends.
    fn take(&mut self) -> Vec<Seat> {
        let mut group = Vec::new();
        while group.len() < self.pace.size {
            match self.seats.pop_front() {
                Some(seat) if seat.tell.is_closed() => {}
                Some(seat) => group.push(seat),
                None => break,
            }
        }
        group.sort_by(|a, b| (&a.event.source, a.event.id).cmp(&(&b.event.source, b.event.id)));
        self.gathering = !group.is_empty();
        group
    }
}

impl Pace {
    fn new(max: usize) -> Pace {
        Pace { size: max, max, sound: 0, small_until: None }
    }

    fn grow(&mut self, deliveries: usize, now: Instant) {
        self.sound += deliveries;
        let is_time = self.small_until.is_none_or(|until| now >= until);
        if self.size < self.max && self.sound >= GROW_AFTER && is_time {
            self.size = (2 * self.size).min(self.max);
            self.sound = 0;
        }
    }

    /// Groups are of `size` at most after one that took `lost` in vain. Of several that fail at once, as in a
    /// deadlock, each says what is too large, and they do not add up.
    fn shrink(&mut self, size: usize, lost: Duration, now: Instant) {
        self.size = self.size.min(size).max(1);
        self.sound = 0;
        self.small_until = self.small_until.max(now.checked_add(SMALL_FOR * lost));
    }
}

/// Ends the gathering if its task is dropped with a runtime: those who wait go alone.
struct Gathering {
    shared: Arc<Shared>,
    ended: bool,
}

impl Drop for Gathering {
    fn drop(&mut self) {
        if !self.ended {
            let mut waiting = self.shared.lock();
            waiting.gathering = false;
            waiting.seats.clear();
        }
    }
}

/// Sends a group into each session that is free, until nobody waits.
async fn gather(mut gathering: Gathering) {
    let shared = Arc::clone(&gathering.shared);
    loop {
        let Ok(permit) = shared.work.permit().await else { return };
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        let mut group = {
            let mut waiting = shared.lock();
            let group = waiting.take();
            match group.len() {
                0 => {
                    // Under the lock: whoever comes from now on begins anew.
                    gathering.ended = true;
                    return;
                }
                1 => waiting.pace.grow(1, Instant::now()),
                _ => {}
            }
            group
        };
        if group.len() > 1 {
            tokio::spawn(run(Arc::clone(&shared), permit, group));
        } else if let Some(alone) = group.pop() {
            // A permit that nobody hears of is free again.
            _ = alone.tell.send(Told::Alone(Some(permit)));
        }
    }
}

/// Does a group, and tells everybody.
async fn run(shared: Arc<Shared>, permit: Permit, mut group: Vec<Seat>) {
    let begun = Instant::now();
    let ended = shared.work.together(&mut group).await;
    let (now, lost) = (Instant::now(), begun.elapsed());
    match &ended {
        Ended::Committed(_) => shared.lock().pace.grow(group.len(), now),
        Ended::Apart => shared.lock().pace.shrink(group.len() / 2, lost, now),
        // One of them may have a commit without an end, and each group with it would hold its neighbours' markers for
        // so long.
        Ended::Unknown(_) => shared.lock().pace.shrink(1, lost, now),
        Ended::Failed(_) => {}
    }
    drop(permit);
    let tells = group.into_iter().map(|seat| seat.tell);
    // Whoever went away meanwhile does not hear it, and finds the marker when it comes again.
    match ended {
        Ended::Committed(verdicts) => {
            for (tell, verdict) in tells.zip(verdicts) {
                _ = tell.send(Told::Is(Ok(verdict)));
            }
        }
        Ended::Apart => tells.for_each(|tell| _ = tell.send(Told::Alone(None))),
        Ended::Failed(error) | Ended::Unknown(error) => {
            tells.for_each(|tell| _ = tell.send(Told::Is(Err(error.repeated()))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sit(waiting: &mut Waiting, source: &str, number: u128) -> oneshot::Receiver<Told> {
        let id = postrider_core::EventId::from_u128(number);
        let mut event = Event::new(id, "order", "42", "order.placed");
        event.source = Arc::from(source);
        let (tell, told) = oneshot::channel();
        waiting.sit(Seat { event: Arc::new(event), span: Span::none(), tell });
        told
    }

    fn waiting(size: usize) -> Waiting {
        let pace = Pace::new(size);
        Waiting { seats: VecDeque::new(), gathering: false, pace }
    }

    /// In whatever order they come, all groups lock their markers in one: none waits for one that waits for it.
    #[test]
    fn a_group_goes_in_the_order_of_all_groups() {
        let mut waiting = waiting(16);
        let came = [("/shop", 3), ("/depot", 9), ("/shop", 1), ("/shop", 2), ("/depot", 4)];
        let told: Vec<_> =
            came.iter().map(|(source, number)| sit(&mut waiting, source, *number)).collect();
        let group = waiting.take();
        let order: Vec<_> =
            group.iter().map(|seat| (&*seat.event.source, seat.event.id.as_u128())).collect();
        assert_eq!(order, [("/depot", 4), ("/depot", 9), ("/shop", 1), ("/shop", 2), ("/shop", 3)]);
        assert!(waiting.take().is_empty() && !waiting.gathering, "nobody is left");
        drop(told);
    }

    /// A task that never had its turn, as where its runtime ends, leaves nobody waiting for it.
    #[test]
    fn a_gathering_that_never_began_is_over() {
        let address = "postgres://app@127.0.0.1/shop";
        let handler = postrider_core::HandlerName::new("billing").unwrap();
        let receiver = crate::Transactional::new(address, handler, |_, _| {
            Box::pin(async { Ok(Verdict::Done) })
        });
        let receiver = receiver.unwrap();
        let groups = Groups::new(&receiver.work, 16);
        let (tell, mut told) = oneshot::channel();
        let event = Arc::new(Event::new(postrider_core::EventId::from_u128(1), "a", "1", "t"));
        assert!(groups.shared.lock().sit(Seat { event, span: Span::none(), tell }));
        let shared = Arc::clone(&groups.shared);
        drop(gather(Gathering { shared, ended: false }));
        assert!(!groups.shared.lock().gathering);
        assert!(told.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
    }

    /// Who went away is in no group and takes up no room; what there is no room for goes next.
    #[test]
    fn a_group_is_of_those_who_still_wait() {
        let mut waiting = waiting(2);
        let mut told: Vec<_> = (0..6).map(|number| sit(&mut waiting, "/shop", number)).collect();
        _ = told.remove(1);
        let mut take = || waiting.take().iter().map(|seat| seat.event.id.as_u128()).collect();
        let groups: [Vec<u128>; 3] = std::array::from_fn(|_| take());
        assert_eq!(groups, [vec![0, 2], vec![3, 4], vec![5]]);
        for number in 0..10_000 {
            drop(sit(&mut waiting, "/shop", number));
        }
        assert!(waiting.seats.capacity() < 64, "{}", waiting.seats.capacity());
    }

    fn paced(max: usize) -> (Pace, Instant) {
        (Pace::new(max), Instant::now())
    }

    /// Groups that fail are halved, down to none, and come back by what goes well.
    #[test]
    fn a_failure_halves_groups_and_what_goes_well_doubles_them() {
        let (mut pace, now) = paced(16);
        let sizes: Vec<usize> = (0..5)
            .map(|_| {
                pace.shrink(pace.size / 2, Duration::ZERO, now);
                pace.size
            })
            .collect();
        assert_eq!(sizes, [8, 4, 2, 1, 1]);
        let mut deliveries = 0;
        while pace.size < 16 {
            pace.grow(1, now);
            deliveries += 1;
        }
        assert_eq!(deliveries, 4 * GROW_AFTER);
        (0..1_000).for_each(|_| pace.grow(16, now));
        assert_eq!(pace.size, 16, "and no further");
    }

    /// Eight that fail in one deadlock had one size that was too large, and not eight.
    #[test]
    fn failures_of_one_moment_do_not_add_up() {
        let (mut pace, now) = paced(16);
        (0..8).for_each(|_| pace.shrink(8, Duration::ZERO, now));
        assert_eq!(pace.size, 8);
    }

    /// Where every group of more than eight is in vain, and takes a tenth of a second, a twentieth of the time is lost: not what it
    /// would be if sixty-four deliveries, a few milliseconds, let them grow again.
    #[test]
    fn what_is_lost_in_vain_is_a_twentieth() {
        let (mut pace, begin) = paced(16);
        let (sound, vain) = (Duration::from_millis(2), Duration::from_millis(100));
        let (mut now, mut lost) = (begin, Duration::ZERO);
        while now < begin + Duration::from_secs(60) {
            if pace.size > 8 {
                now += vain;
                lost += vain;
                pace.shrink(pace.size / 2, vain, now);
            } else {
                now += sound;
                pace.grow(pace.size, now);
            }
        }
        let share = lost.as_secs_f64() / (now - begin).as_secs_f64();
        assert!(share > 0.04 && share < 0.051, "{share}: it is tried again, and costs no more");
    }
}
