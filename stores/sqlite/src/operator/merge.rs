//! Several ordered readings as one: rows come in the order of their places, and none is read before
//! it is needed.

use postrider_core::Result;
use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::{Row, Rows};

use crate::error::During;

/// Streams of rows, each in descending order of the places that `place` gives its rows.
pub(super) struct Merge<'s, K> {
    streams: Vec<Rows<'s>>,
    place: fn(usize, &Row<'_>) -> K,
    next: Option<usize>,
}

impl<'s, K: Ord> Merge<'s, K> {
    pub(super) fn open(
        mut streams: Vec<Rows<'s>>,
        place: fn(usize, &Row<'_>) -> K,
    ) -> Result<Merge<'s, K>> {
        for rows in &mut streams {
            rows.next().during("read page")?;
        }
        let mut merge = Merge { streams, place, next: None };
        merge.choose();
        Ok(merge)
    }

    /// The row with the greatest place, and which stream it is of.
    pub(super) fn current(&self) -> Option<(usize, &Row<'s>)> {
        let index = self.next?;
        self.streams[index].get().map(|row| (index, row))
    }

    /// Leaves the current row.
    pub(super) fn advance(&mut self) -> Result<()> {
        if let Some(index) = self.next {
            self.streams[index].next().during("read page")?;
        }
        self.choose();
        Ok(())
    }

    fn choose(&mut self) {
        let heads = self.streams.iter().enumerate();
        self.next = heads
            .filter_map(|(index, rows)| rows.get().map(|row| ((self.place)(index, row), index)))
            .max()
            .map(|(_, index)| index);
    }
}
