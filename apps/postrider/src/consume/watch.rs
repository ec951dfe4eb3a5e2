//! Watching a sidecar run: signals in, progress and troubles out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use postrider_inbox::{ConsumerHandle, Health, Stats};
use tokio::sync::watch;

use super::gate::Gate;
use super::sidecar::Tally;
use crate::failure::Exit;
use crate::signals::Signals;
use crate::terminal::{Progress, count};

/// How often the line on the terminal is written: often enough to look alive.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// How often a log file gets a line while events move.
const LOG_EVERY: Duration = Duration::from_secs(10);

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
}

/// Watches until it has stopped, and passes signals on.
pub(super) async fn until_stopped(watched: Watched, mut signals: Signals, drain: Duration) -> Exit {
    let mut watch = Watch::new();
    let mut ticks = tokio::time::interval(SHOW_EVERY);
    let mut draining = false;
    let mut exit = Exit::Success;
    loop {
        tokio::select! {
            () = watched.consumer.stopped() => break,
            _ = signals.next() => {
                watched.stop.send_replace(true);
                if draining {
                    exit = Exit::Aborted;
                    watch.progress.note("aborting the calls; their events come again");
                    watched.consumer.abort();
                } else {
                    draining = true;
                    let calls = watched.consumer.stats().in_work;
                    watch.progress.note(&format!(
                        "stopping: nothing new is taken, {calls} calls may finish within {drain:?}"
                    ));
                    watched.consumer.drain(drain);
                }
            }
            _ = ticks.tick() => watch.look(&watched, draining),
        }
    }
    if !draining {
        watch.progress.note("the engine stopped by itself; what it held comes again");
        exit = Exit::Failure;
    }
    let stats = watched.consumer.stats();
    watch.progress.note(&watch.summary(&watched, &stats));
    exit
}

/// What was seen so far.
struct Watch {
    progress: Progress,
    started: Instant,
    /// Where the rate is measured from.
    since: (Instant, u64),
    rate: u64,
    logged: (Instant, u64),
    /// The cause of the trouble, and when it began.
    trouble: Option<(String, Instant)>,
    /// The cause that was told, and when.
    told: Option<(String, Instant)>,
}

impl Watch {
    fn new() -> Watch {
        let now = Instant::now();
        Watch {
            progress: Progress::new(),
            started: now,
            since: (now, 0),
            rate: 0,
            logged: (now, 0),
            trouble: None,
            told: None,
        }
    }

    fn look(&mut self, watched: &Watched, draining: bool) {
        let now = Instant::now();
        let stats = watched.consumer.stats();
        self.measure(&stats, now);
        self.tell_trouble(watched, now);
        let line = self.line(watched, &stats, draining);
        if self.progress.is_live() {
            self.progress.show(&line);
        } else if now >= self.logged.0 + LOG_EVERY {
            if stats.done > self.logged.1 {
                self.progress.note(&line);
            }
            self.logged = (now, stats.done);
        }
    }

    /// The rate of about the last second.
    fn measure(&mut self, stats: &Stats, now: Instant) {
        let (then, done) = self.since;
        let span = now - then;
        if span >= Duration::from_secs(1) {
            let more = stats.done.saturating_sub(done);
            self.rate = (more as f64 / span.as_secs_f64()).round() as u64;
            self.since = (now, stats.done);
        }
    }

    fn tell_trouble(&mut self, watched: &Watched, now: Instant) {
        let Some((cause, text)) = trouble(watched) else {
            self.trouble = None;
            if self.told.take().is_some() {
                self.progress.note("going on");
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
            self.progress.note(&text);
            self.told = Some((cause, now));
        }
    }

    fn line(&self, watched: &Watched, stats: &Stats, draining: bool) -> String {
        let state = match () {
            () if draining => "draining",
            () if trouble(watched).is_some() => "held up",
            () if stats.in_work > 0 => "working",
            () => "nothing to do",
        };
        let seconds = self.started.elapsed().as_secs();
        format!(
            "{state} · {} delivered · {}/s · {} duplicates · {} failed · {} dead · {seconds} s",
            count(stats.done),
            count(self.rate),
            count(stats.duplicates),
            count(failed(&watched.tally, stats)),
            count(stats.rejected),
        )
    }

    fn summary(&self, watched: &Watched, stats: &Stats) -> String {
        let mut text = format!(
            "{} delivered in {:.1} s, {} duplicates, {} failed attempts, {} dead letters",
            count(stats.done),
            self.started.elapsed().as_secs_f64(),
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

/// Calls that failed, whether they counted or not.
fn failed(tally: &Tally, stats: &Stats) -> u64 {
    stats.retried + tally.uncounted.load(Ordering::Relaxed)
}

/// What holds events up: the cause, and the same with numbers.
fn trouble(watched: &Watched) -> Option<(String, String)> {
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
    let trouble = watched.gate.trouble()?;
    // What a body says may differ at every call, and is no other cause.
    let fault = trouble.fault.split(": ").next().unwrap_or_default();
    let cause = format!("endpoint {}: {fault}", watched.endpoint);
    let text = format!("{cause}, {} in a row; events wait, none counted", count(trouble.in_a_row));
    Some((cause, text))
}
