//! What is stored in the place of a result that is too large to be kept.
//!
//! Invariant: an effect that has happened is recorded whatever it answered, so a result never stands in the way of the
//! record; and what is not kept is told apart from a result that is empty, in every store.

use bytes::Bytes;

/// The largest result of a handler or of a step, in bytes: 1 MiB, what a payload may have. The result is a row in
/// the application's database, whose tables refuse more; what is larger belongs elsewhere, with its address in the
/// result.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// How the mark begins. No text, JSON, or Protocol Buffers message begins with a zero byte.
const BEFORE: &str = "\0postrider: a result of ";
/// How it ends.
const AFTER: &str = " bytes was not kept";

/// That there was a result, which was not kept, and how large it was.
///
/// ```
/// use postrider_core::inbox::{LeftOut, RESULT_BYTES_MAX};
/// assert_eq!(LeftOut::instead_of(b"receipt"), None);
/// let left_out = LeftOut::instead_of(&vec![7; RESULT_BYTES_MAX + 1]).unwrap();
/// assert_eq!(left_out.bytes, 1_048_577);
/// assert_eq!(LeftOut::read(&left_out.to_bytes()), Some(left_out));
/// assert_eq!(LeftOut::read(b"receipt"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// How many bytes it had.
    pub bytes: u64,
}

impl LeftOut {
    /// A result of so many bytes that is not kept.
    pub fn of(bytes: u64) -> LeftOut {
        LeftOut { bytes }
    }

    /// What is to be stored instead of a result above [`RESULT_BYTES_MAX`], and of one that would be read as this
    /// mark, so that all who ask hear the same; `None` if the result itself is.
    pub fn instead_of(result: &[u8]) -> Option<LeftOut> {
        let is_kept = result.len() <= RESULT_BYTES_MAX && LeftOut::read(result).is_none();
        (!is_kept).then(|| LeftOut::of(result.len() as u64))
    }

    /// As it is stored, in the place of the result.
    pub fn to_bytes(self) -> Bytes {
        Bytes::from(format!("{BEFORE}{}{AFTER}", self.bytes))
    }

    /// What is stored, if it is no result but says that there was one.
    pub fn read(stored: &[u8]) -> Option<LeftOut> {
        let bytes = stored.strip_prefix(BEFORE.as_bytes())?.strip_suffix(AFTER.as_bytes())?;
        let left_out = LeftOut::of(std::str::from_utf8(bytes).ok()?.parse().ok()?);
        (left_out.to_bytes() == stored).then_some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_within_the_limit_is_kept() {
        assert_eq!(LeftOut::instead_of(&[]), None);
        assert_eq!(LeftOut::instead_of(&vec![0; RESULT_BYTES_MAX]), None);
        let left_out = LeftOut::instead_of(&vec![0; RESULT_BYTES_MAX + 1]).unwrap();
        assert_eq!(left_out, LeftOut::of(1_048_577));
        let mark = LeftOut::of(2_000_000).to_bytes();
        assert_eq!(LeftOut::instead_of(&mark), Some(LeftOut::of(mark.len() as u64)));
    }

    /// What a handler answers is not taken for the mark unless it is the mark, byte for byte.
    #[test]
    fn only_the_mark_is_read_as_one() {
        for bytes in [0, 1, u64::MAX] {
            assert_eq!(LeftOut::read(&LeftOut::of(bytes).to_bytes()), Some(LeftOut::of(bytes)));
        }
        let mark = LeftOut::of(17).to_bytes();
        for other in [
            &b""[..],
            b"\0",
            &mark[1..],
            &mark[..mark.len() - 1],
            b"\0postrider: a result of  bytes was not kept",
            b"\0postrider: a result of -1 bytes was not kept",
            b"\0postrider: a result of +1 bytes was not kept",
            b"\0postrider: a result of \xff bytes was not kept",
        ] {
            assert_eq!(LeftOut::read(other), None, "{other:?}");
        }
    }
}
