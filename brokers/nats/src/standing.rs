//! How a connection stands, by what its client says.

use async_nats::{ClientError, Event};
use postrider_core::ErrorKind;
use tokio::time::Instant;

use crate::denied::Denied;
use crate::diagnosis::{is_vague, judge};

/// How the connection stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// It is up.
    pub(crate) up: bool,
    /// Nobody wants it any more.
    pub(crate) closed: bool,
    /// Nothing is received by it any more, and another one is there: it settles what came by it.
    pub(crate) rests: bool,
    /// Grows each time it comes up: what was asked before is not answered any more.
    pub(crate) epoch: u64,
    /// When it came up, or was told last to be made anew.
    pub(crate) since: Option<Instant>,
    /// What was said when it went down, or when it could not be made.
    pub(crate) trouble: Option<String>,
    /// What the server did not let this user do over this connection, and when it said so last.
    pub(crate) denied: Denied,
}

impl Standing {
    pub(crate) fn is_gone(&self, epoch: u64) -> bool {
        !self.up || self.epoch != epoch
    }

    /// Whether it is not worth another attempt: the server does not take us any more, as after the password was changed,
    /// and another connection is there. What came by this one comes again by that one.
    pub(crate) fn is_given_up(&self) -> bool {
        let refused = |said: &String| judge(said).0 == ErrorKind::Unauthorized;
        self.closed || (self.rests && !self.up && self.trouble.as_ref().is_some_and(refused))
    }
}

/// What the client says of the connection.
pub(crate) fn note(now: &mut Standing, event: &Event) {
    match event {
        Event::Connected => {
            now.up = true;
            now.epoch += 1;
            now.since = Some(Instant::now());
            now.trouble = None;
            now.denied = Denied::default();
        }
        Event::Disconnected => {
            now.up = false;
            now.trouble.get_or_insert_with(|| "the connection was lost".to_owned());
        }
        Event::Closed | Event::Draining => {
            now.up = false;
            now.trouble = Some("the connection was closed".to_owned());
        }
        Event::ServerError(error) => {
            let said = error.to_string();
            // The connection stands all the same.
            if !now.denied.note(&said, Instant::now()) {
                now.trouble = Some(said);
            }
        }
        // What was found out says more.
        Event::ClientError(ClientError::Other(said)) if is_vague(said) => {
            now.trouble.get_or_insert_with(|| said.clone());
        }
        Event::ClientError(ClientError::Other(said)) => now.trouble = Some(said.clone()),
        Event::ClientError(error) => now.trouble = Some(error.to_string()),
        Event::LameDuckMode | Event::SlowConsumer(_) => {}
    }
}
