//! Partitions as operators pause them.

use postrider_core::operate::Note;
use postrider_core::{PartitionId, Result};

use super::note;
use super::value::not_found;
use crate::PostgresStore;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::typed::{self, params};

const PAUSE: Sql = sql!("operator/partition_pause");

/// Lets a partition be owned, or not.
pub(super) async fn set(
    store: &PostgresStore,
    partition: PartitionId,
    paused: bool,
    note: &Note,
) -> Result<()> {
    let note = note::checked(note)?;
    let what = if paused { "partitions pause" } else { "partitions resume" };
    let (number, subject) = (typed::partition(partition), format!("partition {partition}"));
    let values = params![number, paused, note.who, note.why, what, subject];
    let session = store.sessions().line(Line::Write, "set partition").await?;
    let known: bool = session.row("set partition", &PAUSE, values).await?.get(0);
    if known { Ok(()) } else { Err(not_found("set partition", "partition", partition)) }
}
