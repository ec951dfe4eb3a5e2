//! Joining a source: servers that are away are waited for, as they are later on.
//!
//! Invariant: what only a person can mend ends the program, and is not tried again.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::Subscription;

use super::guard::Guard;
use super::reload::{self, Reloader};
use crate::failure::Failure;
use crate::signals::{Asked, Signals};
use crate::terminal;

/// The first pause. Short: a server that restarts is back in seconds.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause: how late a sidecar may be when its servers are back.
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Subscribes where the group may begin, and again until the servers are there; nothing if a signal comes before that.
///
/// # Errors
/// What does not pass by itself.
pub(super) async fn join(
    reloader: &mut Reloader<'_>,
    guard: &Guard<'_>,
    signals: &mut Signals,
) -> Result<Option<Arc<dyn Subscription>>, Failure> {
    let mut pause = PAUSE;
    loop {
        let failure = tokio::select! {
            joined = subscribe(reloader, guard) => match joined {
                Ok(subscription) => return Ok(Some(subscription)),
                Err(failure) => failure,
            },
            asked = signals.next() => match asked {
                Asked::Reload => {
                    read_again(reloader);
                    continue;
                }
                Asked::Terminate | Asked::Interrupt => return Ok(None),
            },
        };
        // A file that cannot be opened does not come back by itself.
        if !reloader.source().is_remote() || !failure.is_transient() {
            return Err(failure);
        }
        terminal::note(&failure.render(terminal::style()));
        terminal::note(&format!("nothing is received yet; tried again in {pause:?}"));
        tokio::select! {
            // waits: the servers tell nobody that they are back
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            asked = signals.next() => match asked {
                Asked::Reload => read_again(reloader),
                Asked::Terminate | Asked::Interrupt => return Ok(None),
            },
        }
    }
}

/// Subscribes, where the group may begin.
async fn subscribe(
    reloader: &Reloader<'_>,
    guard: &Guard<'_>,
) -> Result<Arc<dyn Subscription>, Failure> {
    let subscription = reloader.subscribe().await?;
    match guard.check(&*subscription).await {
        Ok(()) => Ok(subscription),
        Err(failure) => {
            // Others of the group need not wait for who receives nothing; where this fails, they wait for a session.
            _ = subscription.close().await;
            Err(failure)
        }
    }
}

/// A reload before anything is received: the next try is by what is read now.
fn read_again(reloader: &mut Reloader<'_>) {
    match reloader.read() {
        Ok(read) => reloader.accept(read),
        Err(failure) => reload::say_that_nothing_changed(&failure),
    }
}
