//! Joining a source: servers that are away are waited for, as they are later on.
//!
//! Invariant: what only a person can mend ends the program, and is not tried again.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::Subscription;

use super::source::{Source, Wishes};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal;

/// The first pause. Short: a server that restarts is back in seconds.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause: how late a sidecar may be when its servers are back.
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Subscribes, and again until the servers are there; nothing if a signal comes before that.
///
/// # Errors
/// What does not pass by itself.
pub(super) async fn join(
    source: &Source,
    wishes: &Wishes,
    signals: &mut Signals,
) -> Result<Option<Arc<dyn Subscription>>, Failure> {
    let mut pause = PAUSE;
    loop {
        let failure = tokio::select! {
            joined = source.subscribe(wishes) => match joined {
                Ok(subscription) => return Ok(Some(subscription)),
                Err(failure) => failure,
            },
            _ = signals.next() => return Ok(None),
        };
        // A file that cannot be opened does not come back by itself.
        if !source.is_remote() || !failure.is_transient() {
            return Err(failure);
        }
        terminal::note(&failure.render(terminal::style()));
        terminal::note(&format!("nothing is received yet; tried again in {pause:?}"));
        tokio::select! {
            // waits: the servers tell nobody that they are back
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            _ = signals.next() => return Ok(None),
        }
    }
}
