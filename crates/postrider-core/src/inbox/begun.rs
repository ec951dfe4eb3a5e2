//! What this process has claimed and not let go.
//!
//! Invariant: what a process has lost and knows of is held against no event while it lives. Whatever ended those tries, an answer
//! that came too late, a store that went away, a handler that was dropped, it was not the end of the process. It does not know of
//! a claim that was made although its connection broke.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Claim, ErrorKind, InboxKey, Result};

/// Events that are remembered. Past them all are forgotten: then a few tries of ours count as lost.
const EVENTS_MAX: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Begun(Mutex<HashMap<InboxKey, u32>>);

impl Begun {
    /// A claim is about to be asked for. Returns how many of this process's own before it were not let go, as far as it knows: the
    /// [claim](crate::ClaimRequest::outlived) says so, and the row counts as many fewer as lost.
    ///
    /// ```
    /// use postrider_core::inbox::Begun;
    /// # use std::sync::Arc;
    /// # use postrider_core::{Event, EventId, HandlerName, InboxKey};
    /// # let mut event = Event::new(EventId::from_u128(7), "order", "42", "order.placed");
    /// # event.source = Arc::from("/shop");
    /// # let key = InboxKey::of(&event, &HandlerName::new("billing")?)?;
    /// let begun = Begun::default();
    /// assert_eq!(begun.ask(&key), 0);
    /// assert_eq!(begun.ask(&key), 1, "nothing was heard of the first");
    /// # use postrider_core::{Claim, ClaimLease, Error, ErrorKind};
    /// let lease = ClaimLease { key: key.clone(), token: 2, tries: 2, lost: 0 };
    /// begun.answered(&key, &Ok(Claim::Claimed(lease)));
    /// assert_eq!(begun.ask(&key), 1, "the row knows of the first");
    /// begun.answered(&key, &Err(Error::new(ErrorKind::Unavailable, "claim")));
    /// assert_eq!(begun.ask(&key), 1, "the third was never made");
    /// begun.forget(&key);
    /// assert_eq!(begun.ask(&key), 0);
    /// # Ok::<(), postrider_core::Error>(())
    /// ```
    pub fn ask(&self, key: &InboxKey) -> u32 {
        let mut begun = self.lock();
        if begun.len() >= EVENTS_MAX && !begun.contains_key(key) {
            begun.clear();
        }
        let count = begun.entry(key.clone()).or_default();
        *count += 1;
        *count - 1
    }

    /// What became of the last one that was asked for. The row knows of those before it, if it was granted. What nobody answered in
    /// time may have been; everything else was not.
    pub fn answered(&self, key: &InboxKey, answer: &Result<Claim>) {
        match answer {
            Ok(Claim::Claimed(_)) => {
                self.lock().insert(key.clone(), 1);
            }
            Ok(Claim::Processed { .. }) => self.forget(key),
            Err(error) if error.kind() == ErrorKind::Timeout => {}
            Ok(Claim::Leased { .. } | Claim::Mismatch) | Err(_) => self.take_back(key),
        }
    }

    /// The last one was let go as if it had not been.
    pub fn take_back(&self, key: &InboxKey) {
        let mut begun = self.lock();
        if let Some(count) = begun.get_mut(key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                begun.remove(key);
            }
        }
    }

    /// The row counts none as lost any more, or is done.
    pub fn forget(&self, key: &InboxKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<InboxKey, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
