//! `enqueue`: what the event costs the application's transaction.

use std::path::Path;
use std::time::Instant;

use postrider_core::NewEvent;
use postrider_sqlite::Outbox;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::{Value, json};

use crate::backlog::{application, event};
use crate::measure::{Contender, Series, rate, ratio, take_turns, written_bytes};
use crate::options::{BrokerKind, Options};
use crate::outcome::{Outcome, rounded};
use crate::{Result, progress, sql};

/// Transactions of each contender in each round.
const TRANSACTIONS: u64 = 2_000;
const ROUNDS: u32 = 5;

/// Events of one transaction where many are enqueued at once.
const BATCH: u64 = 100;

/// What stands in the transaction beside the business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extra {
    Nothing,
    OneEvent,
    Batch,
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if options.broker != BrokerKind::Noop {
        return Err("`enqueue` delivers nothing: it takes no broker".into());
    }
    let rows = options.rows.unwrap_or(TRANSACTIONS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    progress("warming up");
    measure("FULL", rows.min(200), 1)?;
    let full = measure("FULL", rows, rounds)?;
    let normal = measure("NORMAL", rows, rounds)?;
    let outcome = Outcome::new("enqueue", options.broker.as_str(), rows, rounds, &full[..2])
        .add("synchronous", "FULL")
        .add("enqueue_many", many(&full))
        .add(
            "synchronous_normal",
            json!({
                "ours_per_s": rounded(normal[0].median()),
                "baselines": { "business_only": rounded(normal[1].median()) },
                "ratios": { "business_only":
                    rounded(ratio(normal[0].median(), normal[1].median())) },
                "enqueue_many": many(&normal),
            }),
        )
        .add("written_bytes_per_transaction", written()?)
        .note("`enqueue_many` has 100 events in each business transaction; its rate is in events");
    Ok(outcome)
}

fn many(series: &[Series]) -> Value {
    let events = series[2].median();
    json!({
        "batch": BATCH,
        "events_per_s": rounded(events),
        "transactions_per_s": rounded(events / BATCH as f64),
    })
}

/// Ours, the business alone, and the batches.
fn measure(synchronous: &str, rows: u64, rounds: u32) -> Result<Vec<Series>> {
    progress(format_args!("synchronous = {synchronous}"));
    let one = |extra: Extra| -> Result<f64> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("shop.db");
        commit_many(&path, synchronous, rows, extra)
    };
    let batches = (rows / 10).max(1);
    let mut contenders = [
        Contender::new("ours", || one(Extra::OneEvent)),
        Contender::new("business_only", || one(Extra::Nothing)),
        Contender::new("enqueue_many", || {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("shop.db");
            Ok(commit_many(&path, synchronous, batches, Extra::Batch)? * BATCH as f64)
        }),
    ];
    take_turns(rounds, &mut contenders)
}

/// Bytes written per transaction, with its share of the checkpoints, with and without the event.
fn written() -> Result<Value> {
    let one = |extra: Extra| -> Result<f64> {
        let folder = tempfile::tempdir()?;
        let before = written_bytes();
        commit_many(&folder.path().join("shop.db"), "NORMAL", TRANSACTIONS, extra)?;
        Ok(rounded(written_bytes().saturating_sub(before) as f64 / TRANSACTIONS as f64))
    };
    Ok(json!({ "ours": one(Extra::OneEvent)?, "business_only": one(Extra::Nothing)? }))
}

/// Commits so many transactions, and returns how many per second.
fn commit_many(path: &Path, synchronous: &str, transactions: u64, extra: Extra) -> Result<f64> {
    let mut connection = application(path, synchronous)?;
    let start = Instant::now();
    for number in 0..transactions {
        commit_one(&mut connection, number, extra)?;
    }
    Ok(rate(transactions, start))
}

fn commit_one(connection: &mut Connection, number: u64, extra: Extra) -> Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    change(&tx, number)?;
    match extra {
        Extra::Nothing => {}
        Extra::OneEvent => {
            Outbox::new().enqueue(&tx, &event(number)?)?;
        }
        Extra::Batch => {
            let first = number * BATCH;
            let events: Vec<NewEvent> = (first..first + BATCH).map(event).collect::<Result<_>>()?;
            Outbox::new().enqueue_many(&tx, &events)?;
        }
    }
    tx.commit()?;
    Ok(())
}

/// The business: a customer's balance, and the order that changes it.
pub(crate) fn change(tx: &Transaction<'_>, number: u64) -> Result<()> {
    let customer = i64::try_from(number % 1_000)? + 1;
    tx.prepare_cached(sql::BUSINESS_UPDATE)?.execute((customer, 1_250))?;
    tx.prepare_cached(sql::BUSINESS_INSERT)?.execute((customer, 1_250))?;
    Ok(())
}
