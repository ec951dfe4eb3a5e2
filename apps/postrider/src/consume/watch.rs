//! Watching a sidecar run: signals in, progress and troubles out.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use postrider_core::Subscription;
use postrider_inbox::{ConsumerHandle, Health, Stats};
use tokio::sync::watch;

use super::gate::Gate;
use super::once::{Once, Over};
use super::reload::{self, Reloader, Reread};
use super::sidecar::Tally;
use super::switch::Switch;
use crate::failure::{Exit, Failure};
use crate::pace::Pace;
use crate::signals::{Asked, Signals};
use crate::terminal::count;

/// How often the line on the terminal is written: often enough to look alive.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// How long a trouble lasts before it is told, so that what passes by itself stays unsaid.
const TROUBLE_AFTER: Duration = Duration::from_secs(1);

/// How often a trouble that lasts is told again, with its new numbers.
const TROUBLE_EVERY: Duration = Duration::from_secs(60);

/// A running sidecar.
pub(super) struct Watched {
    pub(super) consumer: ConsumerHandle,
    pub(super) gate: Arc<Gate>,
    pub(super) tally: Arc<Tally>,
    pub(super) endpoint: String,
    /// Says that it stops.
    pub(super) stop: watch::Sender<bool>,
    /// Where a reload puts another connection.
    pub(super) switch: Arc<Switch>,
}

/// When it stops.
pub(super) struct Limits {
    /// How long calls may go on after a signal.
    pub(super) drain: Duration,
    /// Whether it stops when there is nothing left to do.
    pub(super) once: Option<Once>,
}

/// A reload that waits for its servers.
type Reloading = Pin<Box<dyn Future<Output = Result<(Reread, Arc<dyn Subscription>), Failure>>>>;

/// Watches until it has stopped, and passes signals on.
pub(super) async fn until_stopped(
    watched: &Watched,
    mut signals: Signals,
    limits: Limits,
    reloader: &mut Reloader<'_>,
) -> Exit {
    let Limits { drain, mut once } = limits;
    let mut watch = Watch::new();
    let mut ticks = tokio::time::interval(SHOW_EVERY);
    let mut draining = false;
    let mut exit = Exit::Success;
    let mut reloading: Option<Reloading> = None;
    loop {
        tokio::select! {
            () = watched.consumer.stopped() => break,
            asked = signals.next() => match asked {
                Asked::Reload if draining => {}
                Asked::Reload => reloading = begin(reloader),
                Asked::Terminate | Asked::Interrupt if draining => {
                    exit = Exit::Aborted;
                    watch.pace.progress.note("aborting the calls; their events come again");
                    watched.consumer.abort();
                }
                Asked::Terminate | Asked::Interrupt => {
                    draining = true;
                    reloading = None;
                    watched.stop.send_replace(true);
                    let calls = watched.consumer.stats().in_work;
                    watch.pace.progress.note(&format!(
                        "stopping: nothing new is taken, {calls} calls may finish within {drain:?}"
                    ));
                    watched.consumer.drain(drain);
                }
            },
            connected = connected(&mut reloading) => {
                reloading = None;
                match connected {
                    Ok((read, subscription)) => {
                        watched.switch.exchange(subscription);
                        reloader.accept(read);
                    }
                    Err(failure) => reload::say_that_nothing_changed(&failure),
                }
            }
            _ = ticks.tick() => {
                watch.look(watched, draining);
                let over = once.as_mut().filter(|_| !draining).and_then(|once| {
                    let is_well = trouble(watched).is_none();
                    let over = once.look(Instant::now(), &watched.consumer.stats(), is_well)?;
                    Some((over, once.stuck_after()))
                });
                if let Some((over, stuck_after)) = over {
                    let ended = watch.end(watched, over, stuck_after);
                    (draining, reloading, exit) = (true, None, ended);
                    watched.stop.send_replace(true);
                    watched.consumer.drain(drain);
                }
            }
        }
    }
    if !draining {
        watch.pace.progress.note("the engine stopped by itself; what it held comes again");
        exit = Exit::Failure;
    }
    let stats = watched.consumer.stats();
    watch.pace.progress.note(&watch.summary(watched, &stats));
    exit
}

/// Reads the configuration again; what takes another connection is begun.
fn begin(reloader: &mut Reloader<'_>) -> Option<Reloading> {
    match reloader.read() {
        Ok(read) if reloader.is_another(&read) => Some(Box::pin(read.connect())),
        Ok(read) => {
            reloader.accept(read);
            None
        }
        Err(failure) => {
            reload::say_that_nothing_changed(&failure);
            None
        }
    }
}

/// What came of a reload; never, if there is none.
async fn connected(
    reloading: &mut Option<Reloading>,
) -> Result<(Reread, Arc<dyn Subscription>), Failure> {
    match reloading {
        Some(reloading) => reloading.await,
        None => std::future::pending().await,
    }
}

/// What was seen so far.
struct Watch {
    pace: Pace,
    /// The cause of the trouble, and when it began.
    trouble: Option<(String, Instant)>,
    /// The cause that was told, and when.
    told: Option<(String, Instant)>,
}

impl Watch {
    fn new() -> Watch {
        Watch { pace: Pace::new(), trouble: None, told: None }
    }

    fn look(&mut self, watched: &Watched, draining: bool) {
        let now = Instant::now();
        let stats = watched.consumer.stats();
        self.pace.measure(stats.done);
        self.tell_trouble(watched, now);
        let line = self.line(watched, &stats, draining);
        self.pace.show(&line, stats.done);
    }

    /// There is nothing left to do: what the run comes to.
    fn end(&mut self, watched: &Watched, over: Over, stuck_after: Duration) -> Exit {
        let stats = watched.consumer.stats();
        if over == Over::Stuck {
            let why = trouble(watched).map_or_else(String::new, |(cause, _)| format!(": {cause}"));
            self.pace.progress.note(&format!("nothing was settled for {stuck_after:?}{why}"));
        }
        match over {
            Over::Empty if stats.rejected == 0 => Exit::Success,
            Over::Empty | Over::Stuck => Exit::Remaining,
        }
    }

    fn tell_trouble(&mut self, watched: &Watched, now: Instant) {
        let Some((cause, text)) = trouble(watched) else {
            self.trouble = None;
            if self.told.take().is_some() {
                self.pace.progress.note("going on");
            }
            return;
        };
        let begun = match &self.trouble {
            Some((known, begun)) if *known == cause => *begun,
            _ => {
                self.trouble = Some((cause, now));
                return;
            }
        };
        let again = match &self.told {
            Some((told, at)) if *told == cause => now >= *at + TROUBLE_EVERY,
            _ => now >= begun + TROUBLE_AFTER,
        };
        if again {
            self.pace.progress.note(&text);
            self.told = Some((cause, now));
        }
    }

    fn line(&self, watched: &Watched, stats: &Stats, draining: bool) -> String {
        let state = match () {
            () if draining => "draining".to_owned(),
            () if trouble(watched).is_some() => "held up".to_owned(),
            () => state(stats),
        };
        let seconds = self.pace.started.elapsed().as_secs();
        format!(
            "{state} · {} delivered · {}/s · {} duplicates · {} failed · {} dead · {seconds} s",
            count(stats.done),
            count(self.pace.rate),
            count(stats.duplicates),
            count(failed(&watched.tally, stats)),
            count(stats.rejected),
        )
    }

    fn summary(&self, watched: &Watched, stats: &Stats) -> String {
        let mut text = format!(
            "{} delivered in {:.1} s, {} duplicates, {} failed attempts, {} dead letters",
            count(stats.done),
            self.pace.started.elapsed().as_secs_f64(),
            count(stats.duplicates),
            count(failed(&watched.tally, stats)),
            count(stats.rejected),
        );
        let lost = watched.tally.lost.load(Ordering::Relaxed);
        if lost > 0 {
            text.push_str(&format!(", {} claims lost", count(lost)));
        }
        text
    }
}

/// What it is at, where nothing is known to hold it up. What it gave back is to be done yet, though nothing is in hand: after
/// an outage of the inbox a claim that could not be ended keeps its key for the rest of its lease.
fn state(stats: &Stats) -> String {
    match (stats.in_work, stats.away) {
        (0, 0) => "nothing to do".to_owned(),
        (0, away) => format!("waiting for {} given back", count(away)),
        _ => "working".to_owned(),
    }
}

/// Calls that failed, whether they counted or not.
fn failed(tally: &Tally, stats: &Stats) -> u64 {
    stats.retried + tally.uncounted.load(Ordering::Relaxed)
}

/// That nothing begins beside events which may stop this process.
fn suspects(stats: &Stats) -> Option<(String, String)> {
    let cause = "an event that may stop this process is tried alone";
    let text = || {
        format!(
            "{cause} ({} of them in hand, {} at work): nothing else begins until it has ended",
            count(stats.suspects),
            count(stats.in_work)
        )
    };
    (stats.suspects > 0).then(|| (cause.to_owned(), text()))
}

/// What holds events up: the cause, and the same with numbers.
pub(super) fn trouble(watched: &Watched) -> Option<(String, String)> {
    match watched.consumer.health() {
        Health::StoreDown { detail } => {
            let text = format!("inbox: {detail}; events wait, none counted");
            return Some((text.clone(), text));
        }
        Health::BrokerDown { detail } => {
            let text = format!("broker: {detail}");
            return Some((text.clone(), text));
        }
        Health::Ready | Health::Draining | Health::Stopped => {}
    }
    let Some(trouble) = watched.gate.trouble() else {
        return suspects(&watched.consumer.stats()).or_else(|| {
            let text = format!("broker: {}", watched.switch.hindrance()?);
            Some((text.clone(), text))
        });
    };
    // What a body says may differ at every call, and is no other cause.
    let fault = trouble.fault.split(": ").next().unwrap_or_default();
    let cause = format!("endpoint {}: {fault}", watched.endpoint);
    let text = format!("{cause}, {} in a row; events wait, none counted", count(trouble.in_a_row));
    Some((cause, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-8: what was given back and waits for its claim is not nothing.
    #[test]
    fn what_was_given_back_is_still_to_do() {
        let mut stats = Stats::default();
        assert_eq!(state(&stats), "nothing to do");
        stats.away = 3;
        assert_eq!(state(&stats), "waiting for 3 given back");
        stats.in_work = 1;
        assert_eq!(state(&stats), "working");
    }

    /// Nothing stands still in silence.
    #[test]
    fn who_is_tried_alone_is_named() {
        let mut stats = Stats::default();
        assert_eq!(suspects(&stats), None);
        (stats.suspects, stats.in_work) = (2, 7);
        let (cause, text) = suspects(&stats).unwrap();
        assert!(
            text.starts_with(&cause) && text.contains("2 of them in hand, 7 at work"),
            "{text}"
        );
    }
}
