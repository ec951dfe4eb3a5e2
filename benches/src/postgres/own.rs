//! `own`: a table of the application's own through the whole relay, against the loops that people write, on that table.

use std::cell::RefCell;
use std::sync::Arc;

use postrider_postgres::{Mapping, Names, Options as Store, OwnTable, PostgresStore, Setup, init};

use super::loops::{self, Settling};
use super::server::Server;
use crate::measure::{Contender, median, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::{Result, broker, progress, relay};

const ROWS: u64 = 200_000;
const ROUNDS: u32 = 3;

/// The textbook loop sends a statement for each row; more rows would only take longer.
const TEXTBOOK_ROWS_MAX: u64 = 20_000;

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let server = Server::start(&runtime)?;
    // Postrider's own tables beside, with one partition.
    let names = Names::new("beside", "outbox", "inbox")?;
    let setup = Setup { names: names.clone(), partitions: Some(1), ..Setup::default() };
    runtime.block_on(init(&server.url(), &setup))?;
    progress(format_args!("{rows} rows in a table of the application's own"));
    let log = RefCell::new([const { Vec::new() }; 3]);
    let looped = |rows_max: u64, settling: Settling, at: usize| -> Result<f64> {
        let count = rows.min(rows_max);
        let done = loops::publish(&runtime, &server, count, settling)?;
        log.borrow_mut()[at].push(done.log_bytes as f64 / count as f64);
        Ok(done.per_s)
    };
    let drain = || -> Result<f64> {
        runtime.block_on(loops::build(&server, rows))?;
        server.batch(&runtime, include_str!("../../sql/postgres/textbook_identity.sql"))?;
        let mut beside = Store::default();
        beside.names = names.clone();
        let store = PostgresStore::with(&server.url(), beside)?;
        let own = OwnTable::on(store, Mapping::published_at("textbook"))?;
        let nobody = broker::open(options.broker, &server.beside("broker.db"))?;
        let before = runtime.block_on(server.log_position())?;
        let drained = relay::drain_store(&runtime, Arc::new(own), nobody, rows)?;
        let bytes = runtime.block_on(server.log_position())?.saturating_sub(before);
        log.borrow_mut()[0].push(bytes as f64 / rows as f64);
        Ok(drained.per_s)
    };
    let mut contenders = [
        Contender::new("ours", &drain),
        Contender::new("textbook", || looped(TEXTBOOK_ROWS_MAX, Settling::RowByRow, 1)),
        Contender::new("batched_update", || looped(rows, Settling::Batched, 2)),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let outcome = Outcome::new("own", options.broker.as_str(), rows, rounds, &series)
        .on(StoreKind::Postgres, &server.version(&runtime)?);
    let [ours, textbook, batched] = log.into_inner().map(|bytes| rounded(median(&bytes)));
    Ok(outcome
        .add(
            "log_bytes_per_event",
            serde_json::json!({ "ours": ours, "textbook": textbook, "batched_update": batched }),
        )
        .note(format!(
            "textbook ran on {} rows; its rate is taken to hold for {rows}. The table of `ours` has a unique index of \
             the identity besides, which the loops do without",
            rows.min(TEXTBOOK_ROWS_MAX)
        )))
}
