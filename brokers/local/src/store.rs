//! Storing a batch: all of it in the caller's transaction, in its order.

use std::sync::Arc;

use postrider_core::{ErrorKind, Fault, Outcome};
use rusqlite::{OptionalExtension, params};

use crate::database::Scope;
use crate::encode::Encoded;
use crate::trouble::Step;

/// Adds the messages to the log, and says what became of each event of the batch.
pub(crate) fn store(scope: &Scope<'_>, batch: Encoded, topics_max: u32) -> Step<Vec<Outcome>> {
    let Encoded { entries, mut outcomes } = batch;
    let mut insert = scope.connection.prepare_cached(include_str!("../sql/store_message.sql"))?;
    let mut topic: Option<(Arc<str>, Option<i64>)> = None;
    for entry in entries {
        // A batch goes to one topic; should it not, the look-up is merely made again.
        if topic.as_ref().is_none_or(|(name, _)| *name != entry.topic) {
            let found = find_or_add(scope, &entry.topic, topics_max)?;
            topic = Some((Arc::clone(&entry.topic), found));
        }
        let Some((_, Some(topic_id))) = topic else {
            let detail = format!("there are {topics_max} topics already, which is the limit");
            outcomes[entry.index] = Outcome::Unroutable(Fault::new(ErrorKind::Unroutable, detail));
            continue;
        };
        insert.execute(params![
            topic_id,
            entry.key,
            entry.key_hash.0.cast_signed(),
            entry.event_id,
            &*entry.source,
            entry.late,
            scope.now_ms,
            entry.document,
        ])?;
        scope.wake.set(true);
    }
    Ok(outcomes)
}

/// The topic's number; `None` if it is new and there are too many.
fn find_or_add(scope: &Scope<'_>, name: &str, topics_max: u32) -> Step<Option<i64>> {
    let found: Option<i64> = scope
        .connection
        .prepare_cached(include_str!("../sql/find_topic.sql"))?
        .query_row([name], |row| row.get(0))
        .optional()?;
    if found.is_some() {
        return Ok(found);
    }
    let topics: u32 = scope
        .connection
        .prepare_cached(include_str!("../sql/count_topics.sql"))?
        .query_row([], |row| row.get(0))?;
    if topics >= topics_max {
        return Ok(None);
    }
    let added = scope
        .connection
        .prepare_cached(include_str!("../sql/add_topic.sql"))?
        .query_row([name], |row| row.get(0))?;
    Ok(Some(added))
}
