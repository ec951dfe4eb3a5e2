//! How large the rows of a page may be, so that a statement's answer is bounded without being measured.
//!
//! A running sum in the statement would bound it exactly, and cost more than reading the rows. So a row whose
//! payload and headers are larger than what is expected comes without them, and its page ends before it; the
//! next statement expects more, and asks for fewer rows, and for fewer pages. Invariant (INV-6): rows times their
//! size never pass [`GROUP_BYTES`], whatever lies in the outbox. "Payload" stands for both here.

/// All payloads of one statement together, whatever their size.
const GROUP_BYTES: u64 = 8 * 1024 * 1024;

/// What is expected of a payload.
struct Level {
    /// The largest that comes with its row.
    payload_max: u64,
    /// So many rows in one statement.
    rows: u64,
}

/// The payloads that are expected: nearly all, many, some, and all that the table takes, which is 1 MiB, and
/// 16 KiB of headers before they are escaped. Of small ones 2 MiB, with 256 bytes around each: a relay has
/// two answers under way before its windows know of them, and a statement for 32 partitions is worth its price
/// from some thousand rows on. Of large ones more, or a statement would be for few rows.
const LEVELS: [Level; 6] = [
    Level { payload_max: 256, rows: 4_096 },
    Level { payload_max: 512, rows: 2_730 },
    Level { payload_max: 1024, rows: 1_638 },
    Level { payload_max: 8 * 1024, rows: 512 },
    Level { payload_max: 64 * 1024, rows: 128 },
    Level { payload_max: 1024 * 1024 + 64 * 1024, rows: 7 },
];

const _: () = {
    let mut level = 0;
    while level < LEVELS.len() {
        assert!(LEVELS[level].rows * LEVELS[level].payload_max <= GROUP_BYTES, "INV-6");
        level += 1;
    }
};

/// After so many rows in a row that a lower level would have done for, it does.
const CALM_ROWS: u64 = 10_000;

/// A statement counts as so many rows at least: an idle relay asks for all its pages together soon after the
/// last large row, and beside a large row now and then one statement in a hundred is made twice.
const CALM_STATEMENT: u64 = 100;

/// What is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    level: usize,
    /// Rows read since one was too large for the level below.
    calm: u64,
}

impl Room {
    fn expected(self) -> &'static Level {
        &LEVELS[self.level.min(LEVELS.len() - 1)]
    }

    /// The largest payload that comes with its row.
    pub(crate) fn payload_max(self) -> u64 {
        self.expected().payload_max
    }

    /// A row with a larger payload comes without it. Nothing is too large for the last level: what was forced
    /// past the table's rules would be asked for again for ever.
    pub(crate) fn cut_above(self) -> i32 {
        match self.level + 1 < LEVELS.len() {
            true => i32::try_from(self.payload_max()).unwrap_or(i32::MAX),
            false => i32::MAX,
        }
    }

    /// So many rows for each of so many pages in one statement.
    pub(crate) fn rows_max(self, pages: usize) -> u64 {
        (self.expected().rows / (pages.max(1) as u64)).max(1)
    }

    /// So many pages in one statement, so that the one row each of them is sure of has room.
    pub(crate) fn pages_max(self) -> usize {
        usize::try_from(self.expected().rows).unwrap_or(usize::MAX)
    }

    /// A row came without its payload, which has so many bytes.
    pub(crate) fn too_small_for(&mut self, bytes: u64) {
        let level =
            LEVELS.iter().position(|level| bytes <= level.payload_max).unwrap_or(LEVELS.len() - 1);
        // Somebody else may have seen a larger one meanwhile.
        self.level = self.level.max(level);
        self.calm = 0;
    }

    /// So many rows came, the largest with so many bytes.
    pub(crate) fn note(&mut self, rows: u64, largest: u64) {
        if self.level == 0 {
            return;
        }
        if largest > LEVELS[self.level - 1].payload_max {
            self.calm = 0;
            return;
        }
        self.calm += rows.max(CALM_STATEMENT);
        if self.calm >= CALM_ROWS {
            self.level -= 1;
            self.calm = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-6: however large the rows are, the payloads of the pages that share a statement stay within the
    /// room.
    #[test]
    fn rows_times_payload_stay_within_the_room() {
        let mut room = Room::default();
        for bytes in [0, 257, 1_000, 1_025, 9_000, 70_000, 1 << 20] {
            room.too_small_for(bytes);
            assert!(room.payload_max() >= bytes);
            for pages in [1, 2, 32, 64].map(|pages: usize| pages.min(room.pages_max())) {
                let rows = room.rows_max(pages) * pages as u64;
                assert!(rows * room.payload_max() <= GROUP_BYTES);
            }
        }
        assert_eq!((room.rows_max(7), room.pages_max()), (1, 7));
        for _ in 1..LEVELS.len() {
            room.note(CALM_ROWS, 10);
        }
        assert_eq!(room, Room::default());
    }
}
