//! Claiming: which messages a consumer gets next.
//!
//! The log is read once per group. What the cursor passes becomes a row of `delivery`: the head of
//! its key if no other message of the key is unsettled, else behind it. Only heads are handed out,
//! and settling a head makes the next of its key the head. So a claim costs what it hands out, never
//! the history.

use postrider_core::ErrorKind;
use rusqlite::{Connection, OptionalExtension, params};

use crate::database::Scope;
use crate::options::{SubscribeOptions, Topics};
use crate::settle::bury;
use crate::trouble::{Step, Trouble};

/// How much of the log one claim reads for each message it wants: with many messages of few keys,
/// most that is read waits behind its key.
const SCAN_PER_WANTED: usize = 4;
const SCAN_MIN: usize = 64;
const SCAN_MAX: usize = 1_024;

/// What a consumer asks for.
pub(crate) struct Request {
    pub(crate) group_id: i64,
    pub(crate) topics: std::sync::Arc<Topics>,
    pub(crate) max: usize,
    pub(crate) options: SubscribeOptions,
}

/// One message handed out.
pub(crate) struct Handed {
    pub(crate) seq: i64,
    pub(crate) topic: String,
    pub(crate) late: bool,
    pub(crate) count: u32,
    pub(crate) document: Vec<u8>,
}

/// What a claim gave.
#[derive(Default)]
pub(crate) struct Claimed {
    pub(crate) token: i64,
    pub(crate) handed: Vec<Handed>,
    /// There may be more at once.
    pub(crate) more: bool,
    /// If the log is drained for this subscription: up to which number.
    pub(crate) drained_to: Option<i64>,
}

/// A message of the log that the cursor has not passed.
struct News {
    seq: i64,
    topic_id: i64,
    key_hash: i64,
}

struct Claim<'a> {
    scope: &'a Scope<'a>,
    request: &'a Request,
    visible_at_ms: i64,
    bytes: usize,
    claimed: Claimed,
}

/// Whether a claim would find something: something due, or a log that grew past `drained_to`.
pub(crate) fn peek(scope: &Scope<'_>, group_id: i64, drained_to: i64) -> Step<bool> {
    let (due, last): (bool, i64) = scope
        .connection
        .prepare_cached(include_str!("../sql/peek.sql"))?
        .query_row(params![group_id, scope.now_ms], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(due || last > drained_to)
}

/// Hands out up to `max` messages: first what is due again, then what is new.
pub(crate) fn claim(scope: &Scope<'_>, request: &Request) -> Step<Claimed> {
    let claims: Option<i64> = scope
        .connection
        .prepare_cached(include_str!("../sql/read_claims.sql"))?
        .query_row([request.group_id], |row| row.get(0))
        .optional()?;
    let Some(claims) = claims else {
        let detail = "the group does not exist any more".to_owned();
        return Err(Trouble::Said(ErrorKind::NotFound, detail));
    };
    let visibility = i64::try_from(request.options.visibility.as_millis()).unwrap_or(i64::MAX);
    let mut claim = Claim {
        scope,
        request,
        visible_at_ms: scope.now_ms.saturating_add(visibility),
        bytes: 0,
        claimed: Claimed { token: claims + 1, ..Claimed::default() },
    };
    claim.take_due()?;
    if !claim.claimed.more || claim.claimed.handed.is_empty() {
        claim.take_news()?;
    }
    let claimed = claim.claimed;
    if !claimed.handed.is_empty() {
        scope
            .connection
            .prepare_cached(include_str!("../sql/save_claims.sql"))?
            .execute(params![request.group_id, claimed.token])?;
    }
    Ok(claimed)
}

impl Claim<'_> {
    fn wanted(&self) -> usize {
        self.request.max.saturating_sub(self.claimed.handed.len())
    }

    /// Heads whose visibility is over, or that became heads. Those delivered too often are buried.
    fn take_due(&mut self) -> Step<()> {
        let connection = self.scope.connection;
        let due = {
            let mut list = connection.prepare_cached(include_str!("../sql/list_due.sql"))?;
            let wanted = i64::try_from(self.request.max).unwrap_or(i64::MAX);
            let rows = list
                .query_map(params![self.request.group_id, self.scope.now_ms, wanted], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })?;
            rows.collect::<rusqlite::Result<Vec<(i64, u32, bool)>>>()?
        };
        self.claimed.more = due.len() >= self.request.max;
        for (seq, count, late) in due {
            if count >= self.request.options.deliveries_max {
                let reason = format!("handed out {count} times, and never settled");
                bury(self.scope, self.request.group_id, seq, &reason)?;
                self.claimed.more = true;
                continue;
            }
            let Some(message) = load(connection, seq, late, count + 1)? else {
                let detail = format!("message {seq} is unsettled, but not in the log");
                return Err(Trouble::Said(ErrorKind::Corrupt, detail));
            };
            if !self.take(message) {
                break;
            }
            connection.prepare_cached(include_str!("../sql/hand_out.sql"))?.execute(params![
                self.request.group_id,
                seq,
                self.claimed.token,
                self.visible_at_ms
            ])?;
        }
        Ok(())
    }

    /// Moves the cursor over new messages until enough of them could be handed out.
    fn take_news(&mut self) -> Step<()> {
        let unsettled_max = self.request.options.unsettled_max.max(1) as usize;
        let room = unsettled_max.saturating_sub(self.count_unsettled()?);
        let budget = (self.wanted() * SCAN_PER_WANTED).clamp(SCAN_MIN, SCAN_MAX).min(room);
        if self.wanted() == 0 || budget == 0 {
            return Ok(());
        }
        let (news, complete) = self.list_news(budget)?;
        let read = news.len();
        let mut passed = 0;
        let mut cursors: Vec<(i64, i64)> = Vec::new();
        for message in news {
            if self.wanted() == 0 || !self.pass(&message)? {
                break;
            }
            passed += 1;
            match cursors.iter_mut().find(|(id, _)| *id == message.topic_id) {
                Some((_, seq)) => *seq = message.seq,
                None => cursors.push((message.topic_id, message.seq)),
            }
        }
        for (topic_id, seq) in cursors {
            self.scope
                .connection
                .prepare_cached(include_str!("../sql/save_cursor.sql"))?
                .execute(params![self.request.group_id, topic_id, seq])?;
        }
        if complete && passed == read {
            let last = self
                .scope
                .connection
                .prepare_cached(include_str!("../sql/last_message.sql"))?
                .query_row([], |row| row.get(0))?;
            self.claimed.drained_to = Some(last);
        } else {
            self.claimed.more = true;
        }
        Ok(())
    }

    fn count_unsettled(&self) -> Step<usize> {
        let count: u32 = self
            .scope
            .connection
            .prepare_cached(include_str!("../sql/count_unsettled.sql"))?
            .query_row(
                params![self.request.group_id, self.request.options.unsettled_max],
                |row| row.get(0),
            )?;
        Ok(count as usize)
    }

    /// The next messages of all matching topics in the log's order, and whether that is all of them.
    fn list_news(&self, budget: usize) -> Step<(Vec<News>, bool)> {
        let connection = self.scope.connection;
        let mut list = connection.prepare_cached(include_str!("../sql/list_news.sql"))?;
        let rows = list.query_map([self.request.group_id], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        let topics = rows.collect::<rusqlite::Result<Vec<(i64, String, i64)>>>()?;
        let mut scan = connection.prepare_cached(include_str!("../sql/scan_topic.sql"))?;
        let mut news: Vec<News> = Vec::new();
        let mut complete = true;
        for (topic_id, name, passed) in topics {
            if !self.request.topics.matches(&name) {
                continue;
            }
            // One more than the budget, to know whether that was all.
            let rows = scan.query_map(params![topic_id, passed, budget as i64 + 1], |row| {
                Ok(News { seq: row.get(0)?, topic_id, key_hash: row.get(1)? })
            })?;
            for row in rows {
                news.push(row?);
            }
            if news.len() > budget {
                complete = false;
                news.sort_unstable_by_key(|message| message.seq);
                news.truncate(budget);
            }
        }
        news.sort_unstable_by_key(|message| message.seq);
        Ok((news, complete))
    }

    /// Takes one new message out of the log: handed out, or behind its key. `false` if this claim
    /// has no room for its bytes.
    fn pass(&mut self, message: &News) -> Step<bool> {
        let group_id = self.request.group_id;
        let connection = self.scope.connection;
        let behind: bool = connection
            .prepare_cached(include_str!("../sql/has_key.sql"))?
            .query_row(params![group_id, message.key_hash], |row| row.get(0))?;
        let (token, count, visible_at_ms) = if behind {
            (0, 0, 0)
        } else {
            // Purged between listing and loading is impossible: this is one transaction.
            let Some(loaded) = load(connection, message.seq, false, 1)? else {
                return Ok(true);
            };
            if !self.take(loaded) {
                return Ok(false);
            }
            (self.claimed.token, 1, self.visible_at_ms)
        };
        connection.prepare_cached(include_str!("../sql/hold.sql"))?.execute(params![
            group_id,
            message.seq,
            message.key_hash,
            !behind,
            false,
            token,
            count,
            visible_at_ms
        ])?;
        Ok(true)
    }

    /// Adds a message to what is handed out, unless that would be too many bytes.
    fn take(&mut self, message: Handed) -> bool {
        let bytes = self.bytes + message.document.len();
        if bytes > self.request.options.receive_bytes_max && !self.claimed.handed.is_empty() {
            self.claimed.more = true;
            return false;
        }
        self.bytes = bytes;
        self.claimed.handed.push(message);
        true
    }
}

fn load(connection: &Connection, seq: i64, late: bool, count: u32) -> Step<Option<Handed>> {
    let found = connection
        .prepare_cached(include_str!("../sql/load_message.sql"))?
        .query_row([seq], |row| {
            Ok(Handed {
                seq,
                topic: row.get(0)?,
                late: late || row.get(1)?,
                count,
                document: row.get(2)?,
            })
        })
        .optional()?;
    Ok(found)
}

/// A message whose receipt says so goes back, as if it had not been handed out.
pub(crate) fn release(scope: &Scope<'_>, group_id: i64, token: i64, seqs: &[i64]) -> Step<()> {
    let mut release = scope.connection.prepare_cached(include_str!("../sql/release.sql"))?;
    for seq in seqs {
        let released = release.execute(params![group_id, seq, token])?;
        if released > 0 {
            scope.wake.set(true);
        }
    }
    Ok(())
}
