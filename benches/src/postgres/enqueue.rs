//! `enqueue`: what the event costs the application's transaction, by 8 and by 32 clients.

use std::time::{Duration, Instant};

use postrider_postgres::{Outbox, PreparedOutbox};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::server::{Server, connect};
use crate::backlog::{event, payload};
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
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    if options.broker != BrokerKind::Noop {
        return Err("`enqueue` delivers nothing: it takes no broker".into());
    }
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let server = Server::start(&runtime)?;
    server.batch(&runtime, include_str!("../../sql/postgres/business_tables.sql"))?;
    let few = measure(&runtime, &server, 8, rounds)?;
    let many = measure(&runtime, &server, 32, rounds)?;
    let of = |series: &[Series], which: usize| ratio(series[0].median(), series[which].median());
    let piped = |series: &[Series]| ratio(series[3].median(), series[2].median());
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
                    "ours_pipelined": rounded(many[3].median()) },
                "ratios": { "bare_insert": rounded(of(&many, 1)),
                    "business_only": rounded(of(&many, 2)) },
            }),
        )
        .add(
            "pipelined_ratios",
            json!({ "clients_8": rounded(piped(&few)), "clients_32": rounded(piped(&many)) }),
        )
        .note("`rows` are the seconds of one round; the event is a statement of its own")
        .note("ours_pipelined: the event's statement is sent before the insert's answer has come")
        .aim_at_least("ours / bare_insert, 8 clients", 0.9, of(&few, 1))
        .aim_at_least("ours / bare_insert, 32 clients", 0.9, of(&many, 1))
        .aim_at_least("ours / business_only, 8 clients", 0.82, of(&few, 2))
        .aim_at_least("ours / business_only, 32 clients", 0.82, of(&many, 2))
        .aim_at_least("ours_pipelined / business_only, 8 clients", 0.9, piped(&few))
        .aim_at_least("ours_pipelined / business_only, 32 clients", 0.9, piped(&many)))
}

fn measure(runtime: &Runtime, server: &Server, clients: u64, rounds: u32) -> Result<Vec<Series>> {
    let one = |extra: Extra| Ok(produce_all(runtime, server, clients, extra)?.0);
    let mut contenders = [
        Contender::new("ours", || one(Extra::Event)),
        Contender::new("bare_insert", || one(Extra::Bare)),
        Contender::new("business_only", || one(Extra::Nothing)),
        Contender::new("ours_pipelined", || one(Extra::Pipelined)),
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
    outbox: PreparedOutbox,
}

impl Business {
    async fn prepare(client: &Client) -> Result<Business> {
        let update = include_str!("../../sql/postgres/business_update.sql");
        let insert = include_str!("../../sql/postgres/business_insert.sql");
        let bare = include_str!("../../sql/postgres/bare_insert.sql");
        Ok(Business {
            update: client.prepare(update).await?,
            insert: client.prepare(insert).await?,
            bare: client.prepare(bare).await?,
            outbox: Outbox::new().prepare(client).await?,
        })
    }
}

async fn produce(url: String, client: u64, extra: Extra) -> Result<(f64, u64)> {
    let mut connection = connect(&url).await?;
    let business = Business::prepare(&connection).await?;
    let start = Instant::now();
    let mut done = 0u64;
    while start.elapsed() < SPAN {
        let number = client * 1_000_000 + done;
        let customer = i64::try_from((client * 31 + done) % 1_000)? + 1;
        let tx = connection.transaction().await?;
        tx.execute(&business.update, &[&customer, &1_250i64]).await?;
        if extra == Extra::Pipelined {
            let event = event(number)?;
            let values: [&(dyn ToSql + Sync); 2] = [&customer, &1_250i64];
            let (inserted, enqueued) = futures_util::future::join(
                tx.execute(&business.insert, &values),
                business.outbox.enqueue(&tx, &event),
            )
            .await;
            inserted?;
            enqueued?;
        } else {
            tx.execute(&business.insert, &[&customer, &1_250i64]).await?;
        }
        match extra {
            Extra::Nothing | Extra::Pipelined => {}
            Extra::Bare => {
                let (key, text) = (number.to_string(), payload(number));
                tx.execute(&business.bare, &[&key, &text]).await?;
            }
            Extra::Event => drop(business.outbox.enqueue(&tx, &event(number)?).await?),
        }
        tx.commit().await?;
        done += 1;
    }
    Ok((done as f64 / start.elapsed().as_secs_f64(), done))
}
