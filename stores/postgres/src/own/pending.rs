//! What is pending of a table, for whoever looks at the store beside it: rows that no relay has read are known to the
//! table alone.

use std::sync::{Arc, Weak};

use postrider_core::{Result, Timestamp};

use super::{Inner, OwnTable};
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::typed::{Moment, params};

const PENDING: Sql = sql!("own/pending");

/// Rows that are counted one by one.
const COUNTED_MAX: i64 = 100_000;

/// The handle that serves a table beside a store, as long as there is one.
#[derive(Debug, Default)]
pub(crate) struct Beside(std::sync::OnceLock<Weak<Inner>>);

impl Beside {
    pub(super) fn is(&self, table: &Arc<Inner>) {
        _ = self.0.set(Arc::downgrade(table));
    }

    /// How many rows of the table are pending, and since when; `None` without a table. In a comparison they are another
    /// loop's.
    pub(crate) async fn pending(&self) -> Result<Option<(u64, Option<Timestamp>)>> {
        let inner = self.0.get().and_then(Weak::upgrade).filter(|inner| !inner.compares);
        let Some(table) = inner.map(|inner| OwnTable { inner }) else { return Ok(None) };
        table.checked().await?;
        let session = table.inner.store.sessions().line(Line::Read, "overview").await?;
        let counted = session.row("overview", &PENDING, params![COUNTED_MAX]).await;
        let row = counted.map_err(|error| table.theirs(error))?;
        let since = row.get::<_, Option<Moment>>(1).map(Timestamp::from);
        Ok(Some((row.get::<_, i64>(0).unsigned_abs(), since)))
    }
}
