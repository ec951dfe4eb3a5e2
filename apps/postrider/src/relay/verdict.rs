//! What a run comes to: one line of summary, and the exit code.

use postrider_core::Code;
use postrider_relay::{Blocker, Ending, Report};

use crate::failure::{Exit, Failure};
use crate::pace::per_second;
use crate::relay::watch::Ended;
use crate::store::Place;
use crate::terminal::{count, note};

/// Says how it went, and which exit code that is.
pub(crate) fn of(ended: &Ended, once: bool, store: &Place) -> Result<Exit, Failure> {
    let report = &ended.report;
    note(&summary(ended));
    if let Some(Ending::HeldBy(owner)) = &report.ending {
        return Err(Failure::plain(format!(
            "{owner} holds the lease of {}, longer than a lease lasts",
            store
        ))
        .code(Code::LeaseHeld)
        .exit_as(Exit::Held));
    }
    if ended.aborted {
        note("stopped at once: what was sent and not saved is sent again by the next relay");
        return Ok(Exit::Aborted);
    }
    if !once {
        return Ok(Exit::Success);
    }
    let waits = tell_waiting(report);
    Ok(match report.ending {
        Some(Ending::Done) if !waits => Exit::Success,
        Some(Ending::Done) => Exit::Remaining,
        Some(Ending::Stalled) => {
            let blockers = &report.health.blockers;
            // What others are to deliver is known at once, whatever --timeout is.
            note(match blockers.iter().any(is_of_others) {
                true => "not everything was delivered",
                false => "nothing was settled for the whole of --timeout",
            });
            for blocker in blockers {
                note(&format!("  blocked by {blocker}"));
            }
            Exit::Remaining
        }
        _ => {
            note("stopped before everything was reached");
            Exit::Remaining
        }
    })
}

/// Whether it names a destination that this relay does not serve.
fn is_of_others(blocker: &Blocker) -> bool {
    matches!(blocker, Blocker::Definition { .. } | Blocker::Unnamed { .. } | Blocker::Absent { .. })
}

/// Says what waits in each destination, and whether anything does.
fn tell_waiting(report: &Report) -> bool {
    let mut any = false;
    for (destination, counts) in &report.waiting {
        if counts.total() > 0 {
            any = true;
            note(&format!(
                "{destination}: {} waiting ({} retrying, {} parked, {} held, {} disabled, {} dead)",
                count(counts.total()),
                count(counts.retrying),
                count(counts.parked),
                count(counts.held),
                count(counts.disabled),
                count(counts.dead)
            ));
        }
    }
    any
}

fn summary(ended: &Ended) -> String {
    let health = &ended.report.health;
    format!(
        "{} delivered in {:.1} s ({}/s), {} failed attempts, {} dead letters",
        count(health.delivered),
        ended.took.as_secs_f64(),
        count(per_second(health.delivered, ended.took)),
        count(health.failures + health.endpoint_failures),
        count(health.dead)
    )
}
