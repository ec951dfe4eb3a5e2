//! `enqueue`: what the event costs the application's transaction, by 8 and by 32 clients.

use std::time::{Duration, Instant};

use postrider_postgres::{Layout, Names, Outbox, PreparedOutbox, Setup, init};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement, Transaction};

use super::server::{Server, connect};
use crate::backlog::{event, key, payload};
use crate::measure::{Contender, Series, ratio, take_turns};
use crate::options::{BrokerKind, Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::{Result, relay};

/// How long each contender runs in each round.
const SPAN: Duration = Duration::from_secs(4);
const ROUNDS: u32 = 3;

/// What stands in the transaction beside the business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    Nothing,
    /// A row of a table without an index.
    Bare,
    /// An event.
    Event,
    /// An event whose statement is on its way before the last of the business is answered.
    Pipelined,
    /// An event in the statement of the last business write, by the table's contract.
    InOne,
    /// An event in an outbox that is one table, and no partitions of one.
    OneTable,
}

/// The schema of the outbox that is one table.
fn one_table() -> Result<Names> {
    Ok(Names::new("one_table", "outbox", "inbox")?)
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if options.broker != BrokerKind::Noop {
        return Err("`enqueue` delivers nothing: it takes no broker".into());
    }
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let server = Server::start(&runtime)?;
    server.batch(&runtime, include_str!("../../sql/postgres/business_tables.sql"))?;
    let plain = Setup { names: one_table()?, layout: Some(Layout::Plain), ..Setup::default() };
    runtime.block_on(init(&server.url(), &plain))?;
    let few = measure(&runtime, &server, 8, rounds)?;
    let many = measure(&runtime, &server, 32, rounds)?;
    let of = |series: &[Series], which: usize| ratio(series[0].median(), series[which].median());
    let against = |series: &[Series], which: usize, baseline: usize| {
        rounded(ratio(series[which].median(), series[baseline].median()))
    };
    let piped = |series: &[Series]| ratio(series[3].median(), series[2].median());
    let in_one = |series: &[Series]| ratio(series[4].median(), series[2].median());
    let span = SPAN.as_secs();
    Ok(Outcome::new("enqueue", options.broker.as_str(), span, rounds, &few)
        .on(StoreKind::Postgres, &server.version(&runtime)?)
        .add("clients", 8)
        .add(
            "clients_32",
            json!({
                "ours_per_s": rounded(many[0].median()),
                "baselines": { "bare_insert": rounded(many[1].median()),
                    "business_only": rounded(many[2].median()),
                    "ours_pipelined": rounded(many[3].median()),
                    "ours_in_one_statement": rounded(many[4].median()),
                    "ours_one_table": rounded(many[5].median()) },
                "ratios": { "bare_insert": rounded(of(&many, 1)),
                    "business_only": rounded(of(&many, 2)) },
            }),
        )
        .add(
            "pipelined_ratios",
            json!({ "clients_8": rounded(piped(&few)), "clients_32": rounded(piped(&many)) }),
        )
        .add(
            "in_one_statement_ratios",
            json!({ "clients_8": rounded(in_one(&few)), "clients_32": rounded(in_one(&many)) }),
        )
        .add(
            "one_table_ratios",
            json!({ "bare_insert": [against(&few, 5, 1), against(&many, 5, 1)],
                "business_only": [against(&few, 5, 2), against(&many, 5, 2)] }),
        )
        .note("ours_in_one_statement: the insert and the event, by the table's contract")
        .note("ours_one_table: an event as a statement of its own, in an outbox without partitions")
        .note("`rows` are the seconds of one round; the event is a statement of its own")
        .note("ours_pipelined: the event's statement is sent before the insert's answer has come")
        .aim_at_least("ours / bare_insert, 8 clients", 0.9, of(&few, 1))
        .aim_at_least("ours / bare_insert, 32 clients", 0.9, of(&many, 1))
        .aim_at_least("ours / business_only, 8 clients", 0.82, of(&few, 2))
        .aim_at_least("ours / business_only, 32 clients", 0.82, of(&many, 2))
        .aim_at_least("ours_pipelined / business_only, 8 clients", 0.9, piped(&few))
        .aim_at_least("ours_pipelined / business_only, 32 clients", 0.9, piped(&many))
        .aim_at_least("ours_in_one_statement / business_only, 8 clients", 0.9, in_one(&few))
        .aim_at_least("ours_in_one_statement / business_only, 32 clients", 0.9, in_one(&many)))
}

fn measure(runtime: &Runtime, server: &Server, clients: u64, rounds: u32) -> Result<Vec<Series>> {
    let one = |extra: Extra| Ok(produce_all(runtime, server, clients, extra)?.0);
    let mut contenders = [
        Contender::new("ours", || one(Extra::Event)),
        Contender::new("bare_insert", || one(Extra::Bare)),
        Contender::new("business_only", || one(Extra::Nothing)),
        Contender::new("ours_pipelined", || one(Extra::Pipelined)),
        Contender::new("ours_in_one_statement", || one(Extra::InOne)),
        Contender::new("ours_one_table", || one(Extra::OneTable)),
    ];
    take_turns(rounds, &mut contenders)
}

/// Transactions per second of so many clients together, and how many there were.
pub(super) fn produce_all(
    runtime: &Runtime,
    server: &Server,
    clients: u64,
    extra: Extra,
) -> Result<(f64, u64)> {
    let tasks: Vec<_> =
        (0..clients).map(|client| runtime.spawn(produce(server.url(), client, extra))).collect();
    let (mut per_s, mut count) = (0.0, 0);
    for task in tasks {
        let done = runtime.block_on(task)??;
        per_s += done.0;
        count += done.1;
    }
    Ok((per_s, count))
}

/// An application's statements, prepared once.
struct Business {
    update: Statement,
    insert: Statement,
    bare: Statement,
    in_one: Statement,
    outbox: PreparedOutbox,
}

impl Business {
    async fn prepare(client: &Client, extra: Extra) -> Result<Business> {
        let names = if extra == Extra::OneTable { one_table()? } else { Names::default() };
        let update = include_str!("../../sql/postgres/business_update.sql");
        let insert = include_str!("../../sql/postgres/business_insert.sql");
        let bare = include_str!("../../sql/postgres/bare_insert.sql");
        let in_one = include_str!("../../sql/postgres/business_insert_with_event.sql");
        Ok(Business {
            update: client.prepare(update).await?,
            insert: client.prepare(insert).await?,
            bare: client.prepare(bare).await?,
            in_one: client.prepare(&names.render(in_one)).await?,
            outbox: Outbox::named(names).prepare(client).await?,
        })
    }

    /// The last of the business writes, and what stands beside it.
    async fn place(
        &self,
        tx: &Transaction<'_>,
        extra: Extra,
        customer: i64,
        number: u64,
    ) -> Result<()> {
        let values: [&(dyn ToSql + Sync); 2] = [&customer, &1_250i64];
        let order = tx.execute(&self.insert, &values);
        match extra {
            Extra::Nothing => _ = order.await?,
            Extra::Bare => {
                order.await?;
                let (key, text) = (number.to_string(), payload(number));
                tx.execute(&self.bare, &[&key, &text]).await?;
            }
            Extra::Event | Extra::OneTable => {
                order.await?;
                self.outbox.enqueue(tx, &event(number)?).await?;
            }
            Extra::Pipelined => {
                let event = event(number)?;
                let enqueued = self.outbox.enqueue(tx, &event);
                let (inserted, enqueued) = futures_util::future::join(order, enqueued).await;
                inserted?;
                enqueued?;
            }
            Extra::InOne => {
                let (key, text) = (key(number), payload(number));
                tx.execute(&self.in_one, &[&customer, &1_250i64, &key, &text]).await?;
            }
        }
        Ok(())
    }
}

async fn produce(url: String, client: u64, extra: Extra) -> Result<(f64, u64)> {
    let mut connection = connect(&url).await?;
    let business = Business::prepare(&connection, extra).await?;
    let start = Instant::now();
    let mut done = 0u64;
    while start.elapsed() < SPAN {
        let number = client * 1_000_000 + done;
        let customer = i64::try_from((client * 31 + done) % 1_000)? + 1;
        let tx = connection.transaction().await?;
        tx.execute(&business.update, &[&customer, &1_250i64]).await?;
        business.place(&tx, extra, customer, number).await?;
        tx.commit().await?;
        done += 1;
    }
    Ok((done as f64 / start.elapsed().as_secs_f64(), done))
}
