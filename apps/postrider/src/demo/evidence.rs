//! The evidence: what the shop's database, the broker's log, and the handlers' own records say. The
//! relay is not asked.

use std::collections::BTreeSet;
use std::path::Path;

use postrider_core::EventId;
use postrider_core::waiting::WaitingState;
use postrider_history::History;
use postrider_local::{LocalBroker, StoredMessage};
use rusqlite::{Connection, Row};

use crate::demo::act::Files;
use crate::demo::plan::Step;
use crate::demo::shop::{Done, trouble};
use crate::demo::{charge, mail};
use crate::failure::Failure;

/// The destination's name in the history.
const QUEUE: &str = "queue";

/// The shop's source, which its store derives from the file's name.
const SOURCE: &str = "/shop";

/// What is known about one demo.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) history: History,
    /// Events that only one of the orders and the outbox knows.
    pub(crate) unmatched: u64,
    /// Events that arrived for a handler that has no record of them.
    pub(crate) unacted: u64,
    /// Events that wait behind another of their key.
    pub(crate) parked: u64,
    /// Events that wait though their order is not the one that was refused.
    pub(crate) strayed: u64,
    /// Events that were rolled back with their transaction.
    pub(crate) rolled_back: u64,
}

/// Collects the evidence.
///
/// # Errors
/// What a database or a file says when it is read.
pub(crate) async fn collect(
    files: &Files,
    queue: &LocalBroker,
    done: &Done,
    poison: Option<&str>,
) -> Result<Evidence, Failure> {
    let mut history = History::new();
    let shop = postrider_sqlite::connect(&files.shop)?;
    let unmatched = read_orders(&shop, &mut history)?;
    done.rolled_back.iter().for_each(|id| history.roll_back(*id));
    let (parked, strayed) = read_waiting(&shop, poison, &mut history)?;
    let mut log = Vec::new();
    for topic in queue.topics().await? {
        log.extend(queue.messages(&topic).await?);
    }
    log.sort_by_key(|message: &StoredMessage| message.offset);
    for message in &log {
        history.deliver_as(QUEUE, message.event.id, message.late);
    }
    let charged = read_charges(&files.billing)?;
    let mailed = read_mails(&files.sent)?;
    let mut unacted = 0;
    for (handler, step, acted) in
        [(charge::NAME, Step::Paid, &charged), (mail::NAME, Step::Shipped, &mailed)]
    {
        acted.iter().for_each(|id| history.effect(SOURCE, *id, handler));
        let acted: BTreeSet<&EventId> = acted.iter().collect();
        let arrived: BTreeSet<EventId> = log
            .iter()
            .filter(|message| *message.event.event_type == *step.event_type())
            .map(|message| message.event.id)
            .collect();
        unacted += arrived.iter().filter(|id| !acted.contains(id)).count() as u64;
    }
    let rolled_back = done.rolled_back.len() as u64;
    Ok(Evidence { history, unmatched, unacted, parked, strayed, rolled_back })
}

/// What the orders say was committed, in each order's own sequence; and how many events stand only
/// there or only in the outbox.
fn read_orders(shop: &Connection, history: &mut History) -> Result<u64, Failure> {
    let mut known = BTreeSet::new();
    let orders = rows(shop, include_str!("../../sql/demo/list_orders.sql"), |row| {
        let steps: [Option<String>; 3] = [row.get(1)?, row.get(2)?, row.get(3)?];
        Ok((row.get::<_, String>(0)?, steps))
    })?;
    for (order, steps) in orders {
        for id in steps.iter().flatten() {
            let id = id.parse()?;
            known.insert(id);
            history.commit_as(id, &format!("order/{order}"), |commit| {
                SOURCE.clone_into(&mut commit.source);
                commit.destinations = Some([QUEUE.to_owned()].into());
            });
        }
    }
    let outbox = ids(shop, include_str!("../../sql/demo/list_outbox.sql"))?;
    let outbox: BTreeSet<EventId> = outbox.into_iter().collect();
    Ok(known.symmetric_difference(&outbox).count() as u64)
}

/// What waits in the shop's store: how many of it are parked, and how many wait without a reason.
fn read_waiting(
    shop: &Connection,
    poison: Option<&str>,
    history: &mut History,
) -> Result<(u64, u64), Failure> {
    let sql = include_str!("../../sql/demo/list_waiting.sql");
    let waiting = rows(shop, sql, |row| {
        let (id, state): (String, String) = (row.get(0)?, row.get(1)?);
        Ok((id, state, row.get::<_, bool>(2)?, row.get::<_, String>(3)?))
    })?;
    let (mut parked, mut strayed) = (0, 0);
    for (id, state, holds_key, order) in waiting {
        let state: WaitingState = state.parse()?;
        parked += u64::from(state == WaitingState::Parked);
        strayed += u64::from(poison != Some(order.as_str()));
        history.wait(QUEUE, id.parse()?, state.into(), holds_key);
    }
    Ok((parked, strayed))
}

fn read_charges(billing: &Path) -> Result<Vec<EventId>, Failure> {
    let billing = postrider_sqlite::connect(billing)?;
    ids(&billing, include_str!("../../sql/demo/list_charges.sql"))
}

fn read_mails(sent: &Path) -> Result<Vec<EventId>, Failure> {
    let text = match std::fs::read_to_string(sent) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(Failure::plain(format!("{}: {e}", sent.display()))),
    };
    let broken = || Failure::plain("a line of the mail log is no mail");
    text.lines().map(|line| Ok(line.split('\t').nth(1).ok_or_else(broken)?.parse()?)).collect()
}

/// How many effects the broker's log asks for.
///
/// # Errors
/// What the broker's file says.
pub(crate) async fn wanted(queue: &LocalBroker) -> Result<u64, Failure> {
    let mut wanted = BTreeSet::new();
    for step in [Step::Paid, Step::Shipped] {
        let messages = queue.messages(step.event_type()).await?;
        wanted.extend(messages.iter().map(|message| message.event.id));
    }
    Ok(wanted.len() as u64)
}

/// How many effects the handlers have recorded so far.
///
/// # Errors
/// What a database or a file says when it is read.
pub(crate) fn acted(files: &Files) -> Result<u64, Failure> {
    Ok((read_charges(&files.billing)?.len() + read_mails(&files.sent)?.len()) as u64)
}

/// How many events the shop's store will have tried again.
///
/// # Errors
/// What the database says when it is read.
pub(crate) fn retrying(files: &Files) -> Result<usize, Failure> {
    let shop = postrider_sqlite::connect(&files.shop)?;
    Ok(ids(&shop, include_str!("../../sql/demo/list_retrying.sql"))?.len())
}

fn ids(connection: &Connection, sql: &str) -> Result<Vec<EventId>, Failure> {
    let texts = rows(connection, sql, |row| row.get::<_, String>(0))?;
    texts.iter().map(|text| Ok(text.parse()?)).collect()
}

fn rows<T>(
    connection: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Failure> {
    let mut statement = connection.prepare(sql).map_err(trouble)?;
    statement.query_map((), read).and_then(Iterator::collect).map_err(trouble)
}
