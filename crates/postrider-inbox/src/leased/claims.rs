//! The claims of a process that have not come to an end.

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
    pub(super) fn begins_to_leave(&self) {
        self.leaving.send_modify(|count| *count += 1);
    }

    pub(super) fn has_left(&self) {
        self.leaving.send_modify(|count| *count -= 1);
    }

    /// Returns when none is being let go by nobody's call, as those are whose handlers were dropped.
    pub async fn at_rest(&self) {
        // It cannot end before this does.
        let _ = self.leaving.subscribe().wait_for(|count| *count == 0).await;
    }
}
