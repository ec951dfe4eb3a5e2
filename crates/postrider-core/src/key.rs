//! Key hashes: how the engine names a key in eight bytes.

use serde::{Deserialize, Serialize};

/// A 64-bit hash of an ordering key.
///
/// The engine uses it to find a key's lane and to remember which keys have waiting events. Two keys
/// that share a hash merely share a lane (they wait for each other; nothing is lost and no order is
/// broken), because stores decide by the key itself. FNV-1a, 64 bit, over the key's UTF-8 bytes; it
/// is stored beside waiting events and must not change.
///
/// ```
/// use postrider_core::KeyHash;
/// assert_eq!(KeyHash::of(""), KeyHash(0xcbf2_9ce4_8422_2325));
/// assert_ne!(KeyHash::of("order/1"), KeyHash::of("order/2"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyHash(pub u64);

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

impl KeyHash {
    /// The hash of a key given as text.
    pub fn of(key: &str) -> KeyHash {
        KeyHash(fold(OFFSET, key.as_bytes()))
    }

    /// The hash of the default key `type/id`, without building the text.
    ///
    /// ```
    /// use postrider_core::KeyHash;
    /// assert_eq!(KeyHash::of_aggregate("order", "42"), KeyHash::of("order/42"));
    /// ```
    pub fn of_aggregate(aggregate_type: &str, aggregate_id: &str) -> KeyHash {
        let hash = fold(fold(OFFSET, aggregate_type.as_bytes()), b"/");
        KeyHash(fold(hash, aggregate_id.as_bytes()))
    }
}

fn fold(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// The same hash over raw bytes, for short names of opaque things in logs.
pub(crate) fn fold_bytes(bytes: &[u8]) -> u64 {
    fold(OFFSET, bytes)
}
