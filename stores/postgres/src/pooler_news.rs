//! What was said of poolers in this process: a program has several handles on one store, a relay's and an operator's, and
//! each looks for itself. Invariant: each finding is one warning, and one that comes back is another.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The stores of which it was said that a pooler lies before them: a program knows few.
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Whether nobody was told of a store yet; from now on somebody was.
pub(crate) fn is_news(store: &str) -> bool {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(store.to_owned())
}

/// What is found once more is news again.
pub(crate) fn forget(store: &str) {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).remove(store);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pooler::{Hearing, Ownership, Pooler, Way};

    /// A relay's and an operator's handle on one store are one warning.
    #[test]
    fn a_pooler_is_told_of_once() {
        let store = "postgres://told-of-once/shop";
        let (relay, operator) = (Way::new(Pooler::Auto, store), Way::new(Pooler::Auto, store));
        relay.owns(Ownership::Shared);
        assert!(!is_news(store), "it was said");
        operator.hears(Hearing::Deaf);
        operator.owns(Ownership::Shared);
        relay.owns(Ownership::Own);
        assert!(is_news(store), "a pooler that comes back is told of again");
        assert!(is_news("postgres://told-of-once/other"), "each store for itself");
    }
}
