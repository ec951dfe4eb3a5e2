//! The claims of a process that have not come to an end.

use std::sync::Arc;

use postrider_core::inbox::Begun;
use tokio::sync::watch;

/// What a [`Leased`](crate::Leased) knows of its claims besides the one at hand: which were never let go, and which are being
/// let go by nobody's call. Whoever makes one for each event [shares](crate::LeasedBuilder::claims) this between them.
#[derive(Debug)]
pub struct Claims {
    pub(super) begun: Begun,
    leaving: watch::Sender<usize>,
}

impl Default for Claims {
    fn default() -> Claims {
        Claims { begun: Begun::default(), leaving: watch::Sender::new(0) }
    }
}

impl Claims {
    /// One is being let go, until what is returned is dropped.
    pub(super) fn leave(claims: &Arc<Claims>) -> Leaving {
        claims.leaving.send_modify(|count| *count += 1);
        Leaving(Arc::clone(claims))
    }

    /// Returns when none is being let go by nobody's call, as those are whose handlers were dropped.
    pub async fn at_rest(&self) {
        // It cannot end before this does.
        let _ = self.leaving.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// See [`Claims::leave`].
pub(super) struct Leaving(Arc<Claims>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leaving.send_modify(|count| *count -= 1);
    }
}
