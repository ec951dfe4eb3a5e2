//! Which partitions a reading has to look into: the one of a key, or all.

use postrider_core::Result;

use super::value::partition;
use crate::schema;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::params;

const PARTITION_OF: Sql = sql!("operator/partition_of");

/// The partition of a key, or every partition.
pub(super) async fn of(session: &Session, key: Option<&str>) -> Result<Vec<i16>> {
    if let Some(key) = key {
        let row = session.row("read partition", &PARTITION_OF, params![key]).await?;
        return Ok(vec![partition(&row, 0)]);
    }
    let count = schema::number(&schema::meta(session).await?, "partitions")?;
    Ok((0..i16::try_from(count).unwrap_or(i16::MAX)).collect())
}
