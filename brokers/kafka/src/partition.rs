//! The partition of a key, as the Java client chooses it.
//!
//! Invariant: it follows from the key and from how many partitions we count, whichever client sends the record. Each client
//! looks at topics by a clock of its own, and a key that the two send to different partitions loses its order.

/// The partition of a key, of so many; none where there are none.
pub(crate) fn partition(key: &[u8], partitions: usize) -> Option<i32> {
    let partitions = u32::try_from(partitions).ok().filter(|partitions| *partitions > 0)?;
    i32::try_from((murmur2(key) & 0x7fff_ffff) % partitions).ok()
}

/// `MurmurHash2` by Austin Appleby, with the seed that Kafka gives it.
fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    // Kafka counts in 32 bits, and no key is so long.
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let (words, rest) = key.as_chunks::<4>();
    let mut hash = words.iter().fold(SEED ^ length, |hash, word| {
        let word = u32::from_le_bytes(*word).wrapping_mul(M);
        hash.wrapping_mul(M) ^ (word ^ (word >> R)).wrapping_mul(M)
    });
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |last, byte| (last << 8) | u32::from(*byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R070: vectors of Kafka's own tests of its hash (`UtilsTest`).
    #[test]
    fn keys_are_hashed_as_the_java_client_does_it() {
        let vectors: [(&str, i32); 7] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
            // What its algorithm gives for nothing at all.
            ("", 275_646_681),
        ];
        for (key, hash) in vectors {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
            assert_eq!(partition(key.as_bytes(), 13), Some((hash & 0x7fff_ffff) % 13), "{key}");
        }
    }

    #[test]
    fn without_partitions_there_is_none() {
        assert_eq!(partition(b"21", 0), None);
    }
}
