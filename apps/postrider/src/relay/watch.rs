//! Watching a relay run: signals in, progress and troubles out.

use std::time::{Duration, Instant};

use postrider_relay::{Blocker, Health, RelayHandle, Report, State};

use crate::pace::Pace;
use crate::signals::{Asked, Signals};
use crate::terminal::count;

/// How often the line on the terminal is written: often enough to look alive.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// How long a trouble lasts before it is told, so that what passes by itself stays unsaid.
const TROUBLE_AFTER: Duration = Duration::from_secs(1);

/// How a relay ran.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) report: Report,
    pub(crate) took: Duration,
    /// A second signal stopped it at once.
    pub(crate) aborted: bool,
}

/// Watches until the relay has stopped, and passes signals on: a SIGHUP to `reload`.
pub(crate) async fn until_stopped(
    handle: RelayHandle,
    mut signals: Signals,
    mut reload: impl FnMut(),
) -> Ended {
    let started = Instant::now();
    let mut health = handle.health();
    let mut watch = Watch::new();
    let mut ticks = tokio::time::interval(SHOW_EVERY);
    let mut draining = false;
    let mut aborted = false;
    loop {
        tokio::select! {
            // The sender goes with the relay.
            changed = health.changed() => if changed.is_err() { break },
            asked = signals.next() => match asked {
                Asked::Interrupt if draining => {
                    aborted = true;
                    handle.abort();
                }
                Asked::Interrupt | Asked::Terminate => {
                    draining = true;
                    watch.pace.progress.note("stopping: finishing what is under way");
                    handle.drain();
                }
                Asked::Reload => reload(),
            },
            _ = ticks.tick() => watch.look(&health.borrow(), draining),
        }
    }
    drop(watch);
    let report = handle.stopped().await;
    Ended { report, took: started.elapsed(), aborted }
}

/// What was seen so far.
struct Watch {
    pace: Pace,
    trouble: Option<(String, Instant)>,
    told: String,
    /// That was while others moved.
    in_part: bool,
}

impl Watch {
    fn new() -> Watch {
        Watch { pace: Pace::new(), trouble: None, told: String::new(), in_part: false }
    }

    fn look(&mut self, health: &Health, draining: bool) {
        let now = Instant::now();
        self.pace.measure(health.delivered);
        self.tell_trouble(health, now);
        let line = self.line(health, draining);
        self.pace.show(&line, health.delivered);
    }

    fn tell_trouble(&mut self, health: &Health, now: Instant) {
        let told = blockers(health);
        let causes = told.iter().map(|blocker| cause(blocker)).collect::<Vec<_>>().join("; ");
        if causes.is_empty() {
            self.trouble = None;
            if !std::mem::take(&mut self.told).is_empty() {
                self.pace.progress.note("going on");
            }
            return;
        }
        match &self.trouble {
            Some((known, since)) if *known == causes => {
                let in_part = health.state == State::Moving;
                let news = self.told != causes || (self.in_part && !in_part);
                if now >= *since + TROUBLE_AFTER && news {
                    let named: Vec<String> = told.iter().map(ToString::to_string).collect();
                    let how = match health.state {
                        // A relay that waits for its turn is not in trouble.
                        State::Standby => "standing by:",
                        State::Moving => "held up, while others move, by",
                        _ => "blocked by",
                    };
                    self.pace.progress.note(&format!("{how} {}", named.join("; ")));
                    (self.told, self.in_part) = (causes, in_part);
                }
            }
            _ => self.trouble = Some((causes, now)),
        }
    }

    fn line(&self, health: &Health, draining: bool) -> String {
        let state = match health.state {
            _ if draining => "draining",
            State::Starting => "starting",
            State::Standby => "standing by",
            State::Empty => "nothing to do",
            State::Moving => "moving",
            State::Blocked => "blocked",
        };
        let seconds = self.pace.started.elapsed().as_secs();
        format!(
            "{state} · {} delivered · {}/s · {} keys waiting · {} dead · {seconds} s",
            count(health.delivered),
            count(self.pace.rate),
            count(health.waiting_keys),
            count(health.dead),
        )
    }
}

/// Who is told of: whoever holds the relay, or a destination while others move.
fn blockers(health: &Health) -> Vec<&Blocker> {
    let standing = |blocker: &&Blocker| match blocker {
        Blocker::Endpoint { destination, .. } => health.standing.contains(destination),
        Blocker::Part { .. } | Blocker::Held { .. } => true,
        _ => false,
    };
    match health.state {
        State::Blocked | State::Standby | State::Starting => health.blockers.iter().collect(),
        State::Moving => health.blockers.iter().filter(standing).collect(),
        State::Empty => Vec::new(),
    }
}

/// What a blocker is, without what counts on: one more failure is no news.
fn cause(blocker: &Blocker) -> String {
    match blocker {
        Blocker::Endpoint { destination, topic, .. } => {
            format!("endpoint {topic} of {destination}")
        }
        Blocker::Part { destination, topic, .. } => {
            format!("a part of endpoint {topic} of {destination}")
        }
        Blocker::Held { destination, topic, event_type, .. } => {
            format!("endpoint {topic} of {destination} refuses every {event_type}")
        }
        Blocker::WaitingFull { destination, .. } => {
            format!("destination {destination} is full of waiting events")
        }
        other => other.to_string(),
    }
}
