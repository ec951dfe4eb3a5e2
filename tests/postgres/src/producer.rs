//! The part of an application: orders and their events, one transaction each.
//!
//! `postgres-producer URL COUNT [apart] [POINT:N]`: at a point it says `reached POINT` the N-th time that it comes by,
//! and stands still to be killed. One that writes apart commits the order first and its event then, which is the
//! mistake that an outbox is against. Every third transaction is rolled back.
//!
//! Invariant: `trying ID` is said before the transaction ends, `committed ID` or `rolled-back ID` after it has. So what
//! was tried and has no outcome is unknown, and only the database knows better.

use std::io::Write as _;
use std::process::ExitCode;

use postrider_core::{Error, ErrorKind, NewEvent, Result};
use postrider_postgres::Outbox;
use tokio_postgres::{Client, NoTls, Transaction};

const PLACE_ORDER: &str = include_str!("../sql/place_order.sql");

/// Says a line, whole and at once. A parent that is gone hears nothing, which is no error.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    _ = out.write_all(format!("{line}\n").as_bytes());
    _ = out.flush();
}

/// Where to stand still, if anywhere.
struct Halt {
    place: Option<(String, u64)>,
    seen: u64,
}

impl Halt {
    fn of(text: Option<&String>) -> Result<Halt> {
        let Some(text) = text else { return Ok(Halt { place: None, seen: 0 }) };
        let (point, nth) = text.split_once(':').ok_or_else(|| config("a halt is POINT:N"))?;
        let nth = nth.parse().map_err(|_| config("a halt is POINT:N"))?;
        Ok(Halt { place: Some((point.to_owned(), nth)), seen: 0 })
    }

    fn strikes(&mut self, point: &str) -> bool {
        let Some((place, nth)) = &self.place else { return false };
        self.seen += u64::from(place == point);
        place == point && self.seen == *nth
    }

    /// Stands still here for ever, if this is the place.
    async fn at(&mut self, point: &str) {
        if self.strikes(point) {
            stand_still(point).await;
        }
    }
}

async fn stand_still(point: &str) {
    say(&format!("reached {point}"));
    std::future::pending().await
}

fn config(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "start").message(message)
}

fn trouble(error: tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "produce").source(error)
}

/// Commits. At `during_commit` the server is told to, and its answer is not waited for.
async fn commit(tx: Transaction<'_>, halt: &mut Halt) -> Result<()> {
    let mut commit = Box::pin(tx.commit());
    if halt.strikes("during_commit") {
        tokio::select! {
            biased;
            ended = &mut commit => ended.map_err(trouble)?,
            () = std::future::ready(()) => {}
        }
        stand_still("during_commit").await;
    }
    commit.await.map_err(trouble)
}

async fn place(client: &mut Client, event: &NewEvent, ends: bool, halt: &mut Halt) -> Result<()> {
    let tx = client.transaction().await.map_err(trouble)?;
    let id = event.event().id.to_string();
    tx.execute(PLACE_ORDER, &[&id]).await.map_err(trouble)?;
    Outbox::new().enqueue(&tx, event).await?;
    say(&format!("trying {id}"));
    halt.at("before_commit").await;
    if ends { commit(tx, halt).await } else { tx.rollback().await.map_err(trouble) }
}

/// The wrong way: two transactions.
async fn place_apart(client: &mut Client, event: &NewEvent, halt: &mut Halt) -> Result<()> {
    let id = event.event().id.to_string();
    say(&format!("trying {id}"));
    client.execute(PLACE_ORDER, &[&id]).await.map_err(trouble)?;
    halt.at("between").await;
    let tx = client.transaction().await.map_err(trouble)?;
    Outbox::new().enqueue(&tx, event).await?;
    tx.commit().await.map_err(trouble)
}

async fn run(args: &[String]) -> Result<()> {
    let [url, count, others @ ..] = args else {
        return Err(config("postgres-producer URL COUNT [apart] [POINT:N]"));
    };
    let count: u64 = count.parse().map_err(|_| config("a count is a number"))?;
    let apart = others.iter().any(|word| word == "apart");
    let mut halt = Halt::of(others.iter().find(|word| word.contains(':')))?;
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(trouble)?;
    tokio::spawn(connection);
    for number in 1..=count {
        let key = (number % 7).to_string();
        let event = NewEvent::new("order", &key, "order.placed").json(&number)?;
        let id = event.event().id;
        let ends = apart || number % 3 != 0;
        if apart {
            place_apart(&mut client, &event, &mut halt).await?;
        } else {
            place(&mut client, &event, ends, &mut halt).await?;
        }
        if !ends {
            say(&format!("rolled-back {id}"));
            continue;
        }
        halt.at("after_commit").await;
        say(&format!("committed {id}"));
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::from(2)
        }
    }
}
