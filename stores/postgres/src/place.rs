//! Whose partition a key's is, computed here: a row that is vouched for names its partition itself.
//!
//! The tables compute a row's partition where nobody vouches for it, and our own statements by the same function. A
//! role that may write `vouched` can put a row anywhere. There its owner knows nothing of the key's other events, and
//! would deliver it out of their order (INV-3). So each row that is fetched is compared with its key. What does not
//! agree by the arithmetic here is asked of the database, and its word decides: on a server of another byte order or
//! encoding the arithmetic is another, and that costs a question and no event.

use postrider_core::source::Malformed;
use postrider_core::waiting::Reason;
use postrider_core::{Event, Result};

use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::params;

const MISPLACED: Sql = sql!("fetch/misplaced");

/// The arithmetic of `hashtextextended(key, 0)`, which is Bob Jenkins' lookup3, on the machines that PostgreSQL mostly
/// runs on: lowest byte first, and text in UTF-8.
fn hash(key: &[u8]) -> u64 {
    let begin = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let begin = 0x9e37_79b9u32.wrapping_add(begin).wrapping_add(3_923_095);
    let (mut a, mut b, mut c) = (begin, begin, begin);
    let word = |bytes: &[u8]| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_le_bytes(word)
    };
    let mut blocks = key.chunks_exact(12);
    for block in &mut blocks {
        a = a.wrapping_add(word(&block[..4]));
        b = b.wrapping_add(word(&block[4..8]));
        c = c.wrapping_add(word(&block[8..]));
        for (rotate_c, rotate_a, rotate_b) in [(4, 6, 8), (16, 19, 4)] {
            a = a.wrapping_sub(c) ^ c.rotate_left(rotate_c);
            c = c.wrapping_add(b);
            b = b.wrapping_sub(a) ^ a.rotate_left(rotate_a);
            a = a.wrapping_add(c);
            c = c.wrapping_sub(b) ^ b.rotate_left(rotate_b);
            b = b.wrapping_add(a);
        }
    }
    let rest = blocks.remainder();
    a = a.wrapping_add(word(&rest[..rest.len().min(4)]));
    b = b.wrapping_add(word(rest.get(4..rest.len().min(8)).unwrap_or_default()));
    // The lowest byte of the last word is the length's.
    c = c.wrapping_add(word(rest.get(8..).unwrap_or_default()) << 8);
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (u64::from(b) << 32) | u64::from(c)
}

/// Computes partitions, one key after the other.
#[derive(Debug)]
pub(crate) struct Places {
    partitions: u64,
    /// A key that has to be put together, in memory that is used again.
    key: Vec<u8>,
}

impl Places {
    pub(crate) fn new(partitions: u16) -> Places {
        Places { partitions: partitions.max(1).into(), key: Vec::new() }
    }

    /// The partition of an event's key.
    pub(crate) fn of(&mut self, event: &Event) -> i16 {
        let key = match &event.key {
            Some(key) => key.as_bytes(),
            None => {
                self.key.clear();
                self.key.extend_from_slice(event.aggregate_type.as_bytes());
                self.key.push(b'/');
                self.key.extend_from_slice(event.aggregate_id.as_bytes());
                &self.key
            }
        };
        let partition = (hash(key) & i64::MAX.unsigned_abs()) % self.partitions;
        i16::try_from(partition).unwrap_or(i16::MAX)
    }
}

/// A row that does not seem to be where its key belongs.
#[derive(Debug)]
pub(crate) struct Suspect {
    /// Of which page of the answer it is, and which of its rows.
    pub(crate) at: (i32, usize),
    pub(crate) key: String,
    pub(crate) partition: i16,
    pub(crate) seq: i64,
}

/// Which of these rows are not where their keys belong, by the database's own word: for each of those its key's
/// partition. What `repair partitions` left where it was, below all cursors, belongs there.
pub(crate) async fn judge(session: &Session, suspects: &[Suspect]) -> Result<Vec<Option<i16>>> {
    let keys: Vec<&str> = suspects.iter().map(|suspect| &*suspect.key).collect();
    let partitions: Vec<i16> = suspects.iter().map(|suspect| suspect.partition).collect();
    let seqs: Vec<i64> = suspects.iter().map(|suspect| suspect.seq).collect();
    let rows = session.rows("fetch", &MISPLACED, params![keys, partitions, seqs]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// What becomes of such a row: a dead letter, which its key does not wait for, since the key's partition knows nothing
/// of it.
pub(crate) fn refused(event: std::sync::Arc<Event>, stands: i16, belongs: i16) -> Malformed {
    let detail = format!(
        "the row is in partition {stands}, and its key's is {belongs}: its writer vouched for it (`vouched`) with \
         another partition than outbox_partition_of(key), and beside the key's other events it would be out of order. \
         redrive sends it, marked as late; `doctor` names who may vouch, which nobody should who writes SQL of his own"
    );
    Malformed { reason: Reason::Malformed, detail, event: Some(event) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `select hashtextextended(key, 0)`, as PostgreSQL 15 and 18 answer it.
    #[test]
    fn the_hash_is_the_databases() {
        for (key, said) in [
            ("", -6_939_563_903_564_495_251),
            ("a", 3_591_986_179_850_072_241),
            ("order/42", 4_053_345_799_308_485_584),
            ("abcdefghijk", 3_112_909_444_737_856_467),
            ("abcdefghijkl", -7_556_637_188_122_330_412),
            ("abcdefghijklm", 8_871_624_171_452_417_744),
            ("abcdefghijklmnopqrstuvwx", -1_933_194_731_779_935_345),
            ("kundennummer/ä€🐎", 2_434_273_076_639_596_174),
        ] {
            assert_eq!(hash(key.as_bytes()).cast_signed(), said, "{key}");
        }
    }

    #[test]
    fn a_key_is_put_together_as_the_tables_do_it() {
        let mut places = Places::new(32);
        let event = |key: Option<&str>, of: &str| {
            let mut event = Event::new(postrider_core::EventId::from_u128(1), "order", of, "t");
            event.key = key.map(Into::into);
            event
        };
        let aggregate = places.of(&event(None, "42"));
        assert_eq!(places.of(&event(Some("order/42"), "7")), aggregate);
        let spread: std::collections::BTreeSet<i16> =
            (0..1_000).map(|n| places.of(&event(None, &n.to_string()))).collect();
        assert_eq!(spread, (0..32).collect());
    }
}
