//! A comparison with the loop that publishes today: what Postrider would have published, against what the
//! loop marked.
//!
//! Invariant: a comparison marks nothing. What is published meanwhile, to a destination that nobody listens
//! to, is noted in Postrider's own table.

use postrider_core::Result;

use super::OwnTable;
use crate::own::checked::{Column, orders_by};
use crate::own::mapping::{Mapping, config};
use crate::session::Session;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::typed::{params, unsigned};

const BEGIN: Sql = sql!("own/compare_begin");
const COMPARED: Sql = sql!("own/compared");
const COMPARE: Sql = sql!("own/compare");

/// So many numbers of each difference are listed: enough to look at.
const EXAMPLES_MAX: i32 = 20;

/// What differs between Postrider and the loop, of the rows that were written since the comparison began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comparison {
    /// Published by both.
    pub both: u64,
    /// Postrider would have published them; the loop has not marked them.
    pub only_postrider: u64,
    /// The loop marked them; Postrider has not come to them, or they wait.
    pub only_loop: u64,
    /// Pending for both.
    pub neither: u64,
    /// Rows that the loop published before an earlier one of their key, by the times it wrote. Always 0
    /// where it writes none.
    pub reordered: u64,
    /// Numbers of the first of `only_postrider`, `only_loop`, and `reordered`: 20 of each at most.
    pub examples: [Vec<u64>; 3],
}

impl Comparison {
    /// Whether both published the same, in the same order, and nothing is left.
    pub fn agrees(&self) -> bool {
        self.only_postrider + self.only_loop + self.reordered == 0
    }
}

/// Whether rows of this table can be compared.
pub(super) fn check(mapping: &Mapping, columns: &[Column]) -> Result<()> {
    match columns.iter().any(|column| orders_by(mapping, column)) {
        true => Ok(()),
        false => Err(config("order", "only a table whose rows have a number can be compared")),
    }
}

/// Notes where the comparison begins, once.
pub(super) async fn begin(session: &Session) -> Result<()> {
    session.execute("begin comparison", &BEGIN, params![]).await.map(drop)
}

/// Refuses to publish beside tables that served a comparison.
///
/// # Errors
/// `Config` if they did.
pub(super) async fn refuse_compared(session: &Session) -> Result<()> {
    match session.row("open own table", &COMPARED, params![]).await?.get(0) {
        false => Ok(()),
        true => Err(config(
            "compare",
            "a comparison was made with these tables, so what it sent counts as published and would never be; \
             nothing was read. Make others for the real destination, in a schema of their own (`postrider init` \
             with `?schema=NAME` behind the address), and drop these",
        )),
    }
}

impl OwnTable {
    /// What differs now. Only of a handle that compares; another finds nothing to compare.
    ///
    /// # Errors
    /// As `open`; `Config` of a handle that was not made by [`OwnTable::comparing`].
    pub async fn compare(&self) -> Result<Comparison> {
        if !self.inner.compares {
            return Err(config("compare", "this handle publishes, and compares nothing"));
        }
        self.checked().await?;
        let session = self.inner.store.sessions().line(Line::Read, "compare").await?;
        let row = session.row("compare", &COMPARE, params![EXAMPLES_MAX]).await?;
        let count = |column: usize| unsigned(row.get(column));
        let examples = [5, 6, 7].map(|column| {
            let numbers: Option<Vec<i64>> = row.get(column);
            numbers.unwrap_or_default().into_iter().map(unsigned).collect()
        });
        Ok(Comparison {
            both: count(0),
            only_postrider: count(1),
            only_loop: count(2),
            neither: count(3),
            reordered: count(4),
            examples,
        })
    }
}
