//! Retention: messages that every group which reads them has settled, and that are old enough, go.
//! A dead letter keeps its message, whatever its age.

use std::collections::BTreeMap;

use postrider_core::Glob;
use rusqlite::params;

use crate::database::Scope;
use crate::group::read_pattern;
use crate::options::PurgeOptions;
use crate::trouble::Step;

/// Removes up to `rows_max` messages, and says how many.
pub(crate) fn purge(scope: &Scope<'_>, options: &PurgeOptions) -> Step<u64> {
    let connection = scope.connection;
    let readers = list_readers(scope)?;
    let topics = {
        let mut list = connection.prepare_cached(include_str!("../sql/list_topic_ids.sql"))?;
        let rows = list.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<rusqlite::Result<Vec<(i64, String)>>>()?
    };
    let age = i64::try_from(options.older_than.as_millis()).unwrap_or(i64::MAX);
    let before_ms = scope.now_ms.saturating_sub(age);
    let mut purged = 0;
    for (topic_id, name) in topics {
        let room = i64::from(options.rows_max) - purged;
        if room <= 0 {
            break;
        }
        let Some(floor) = floor(scope, &readers, topic_id, &name, options.unread)? else {
            continue;
        };
        let removed = connection
            .prepare_cached(include_str!("../sql/purge_topic.sql"))?
            .execute(params![topic_id, floor, before_ms, room])?;
        purged += removed as i64;
    }
    Ok(purged.cast_unsigned())
}

/// Which patterns each group ever subscribed to.
fn list_readers(scope: &Scope<'_>) -> Step<BTreeMap<i64, Vec<Glob>>> {
    let mut list = scope.connection.prepare_cached(include_str!("../sql/list_patterns.sql"))?;
    let mut rows = list.query([])?;
    let mut readers: BTreeMap<i64, Vec<Glob>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let pattern: String = row.get(1)?;
        readers.entry(row.get(0)?).or_default().push(read_pattern(&pattern)?);
    }
    Ok(readers)
}

/// Up to which number all readers of the topic have settled it; `None` if it must be kept whole.
fn floor(
    scope: &Scope<'_>,
    readers: &BTreeMap<i64, Vec<Glob>>,
    topic_id: i64,
    name: &str,
    unread: bool,
) -> Step<Option<i64>> {
    let mut low_water = scope.connection.prepare_cached(include_str!("../sql/low_water.sql"))?;
    let mut floor = None;
    for (group_id, patterns) in readers {
        if patterns.iter().any(|pattern| pattern.matches(name)) {
            let settled: i64 =
                low_water.query_row(params![group_id, topic_id], |row| row.get(0))?;
            floor = Some(floor.map_or(settled, |floor: i64| floor.min(settled)));
        }
    }
    Ok(floor.or_else(|| unread.then_some(i64::MAX)))
}
