//! Consumer groups: making one, and where it begins. A group that exists is never moved.

use postrider_core::{ErrorKind, Glob, Start};
use rusqlite::{OptionalExtension, params};

use crate::database::Scope;
use crate::options::Topics;
use crate::trouble::{Step, Trouble};

/// How many patterns a group may have had: each costs a purge a comparison per topic.
const PATTERNS_MAX: u32 = 256;
/// The longest name of a group, in bytes.
const GROUP_BYTES_MAX: usize = 128;

/// The group's number; the group is made if it is new, and remembers what it reads.
pub(crate) fn join(
    scope: &Scope<'_>,
    name: &str,
    topics: &Topics,
    start: Start,
    groups_max: u32,
) -> Step<i64> {
    if name.is_empty() || name.len() > GROUP_BYTES_MAX {
        let detail = format!("a group's name has 1 to {GROUP_BYTES_MAX} bytes");
        return Err(Trouble::Said(ErrorKind::Config, detail));
    }
    let group_id = match find(scope, name)? {
        Some(group_id) => group_id,
        None => add(scope, name, start, groups_max)?,
    };
    for pattern in topics.patterns() {
        scope
            .connection
            .prepare_cached(include_str!("../sql/add_pattern.sql"))?
            .execute(params![group_id, write_pattern(pattern)?])?;
    }
    let patterns: u32 = scope
        .connection
        .prepare_cached(include_str!("../sql/count_patterns.sql"))?
        .query_row([group_id], |row| row.get(0))?;
    if patterns > PATTERNS_MAX {
        let detail = format!("a group has subscribed to at most {PATTERNS_MAX} patterns of topics");
        return Err(Trouble::Said(ErrorKind::Config, detail));
    }
    Ok(group_id)
}

pub(crate) fn find(scope: &Scope<'_>, name: &str) -> Step<Option<i64>> {
    let found = scope
        .connection
        .prepare_cached(include_str!("../sql/find_group.sql"))?
        .query_row([name], |row| row.get(0))
        .optional()?;
    Ok(found)
}

/// The group's number, or that there is none.
pub(crate) fn need(scope: &Scope<'_>, name: &str) -> Step<i64> {
    find(scope, name)?.ok_or_else(|| {
        let detail = format!("there is no group `{}`", name.escape_debug());
        Trouble::Said(ErrorKind::NotFound, detail)
    })
}

fn add(scope: &Scope<'_>, name: &str, start: Start, groups_max: u32) -> Step<i64> {
    let groups: u32 = scope
        .connection
        .prepare_cached(include_str!("../sql/count_groups.sql"))?
        .query_row([], |row| row.get(0))?;
    if groups >= groups_max {
        let detail = format!("there are {groups_max} groups already, which is the limit");
        return Err(Trouble::Said(ErrorKind::Config, detail));
    }
    let last = || -> Step<i64> {
        Ok(scope
            .connection
            .prepare_cached(include_str!("../sql/last_number.sql"))?
            .query_row([], |row| row.get(0))?)
    };
    let start_after = match start {
        Start::Beginning => 0,
        Start::Now => last()?,
        Start::At(time) => {
            let first: Option<i64> = scope
                .connection
                .prepare_cached(include_str!("../sql/first_stored_since.sql"))?
                .query_row([time.as_micros().div_euclid(1_000)], |row| row.get(0))?;
            match first {
                Some(seq) => seq - 1,
                None => last()?,
            }
        }
    };
    let added = scope
        .connection
        .prepare_cached(include_str!("../sql/add_group.sql"))?
        .query_row(params![name, start_after], |row| row.get(0))?;
    Ok(added)
}

fn write_pattern(pattern: &Glob) -> Step<String> {
    serde_json::to_string(pattern).map_err(|e| Trouble::Said(ErrorKind::Invalid, e.to_string()))
}

/// What was written by `write_pattern`.
pub(crate) fn read_pattern(text: &str) -> Step<Glob> {
    serde_json::from_str(text).map_err(|e| Trouble::Said(ErrorKind::Corrupt, e.to_string()))
}
