//! What connections to brokers have in common: settings that come in pairs, times, and sources of one scheme.

use crate::path::Path;
use crate::reading::{Complaint, Reading};

/// A setting, whether it is given, and the same of the one that it is of no use without.
pub(super) type Pair = (&'static str, bool, &'static str, bool);

/// What comes in pairs is given in pairs.
pub(super) fn examine_pairs(pairs: &[Pair], at: &Path, reading: &mut Reading) {
    for &(one, has_one, other, has_other) in pairs {
        if has_one != has_other {
            let (given, missing) = if has_one { (one, other) } else { (other, one) };
            let message = format!("`{given}` is of no use without `{missing}`");
            let advice = format!("write {missing} beside it, or leave {given} out");
            reading.contradict(&[at.key(given)], Complaint::new(message, advice));
        }
    }
}
