//! A sidecar whose inbox is on PostgreSQL, with the rights that the page gives to a relay's role, and no more.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::EventId;
use postrider_testkit::services;
use tokio_postgres::{Client, NoTls};

use crate::endpoint::{Endpoint, Plan};
use crate::sidecar::Sidecar;
use crate::stage::{GROUP, Stage};

const PAGE: &str = include_str!("../../../../docs/operate/postgres.md");

/// An inbox in a schema of its own, and a role that sidecars have.
struct Inbox {
    server: String,
    schema: String,
    client: Client,
}

impl Inbox {
    /// None where there is no server; the reason is printed.
    async fn new(test: &str) -> Option<Inbox> {
        let server = match services::postgres() {
            Ok(url) => url,
            Err(reason) => {
                println!("skipped: {test}: {reason}");
                return None;
            }
        };
        let id = EventId::mint().to_string().replace('-', "");
        let inbox =
            Inbox { client: connect(&server).await, schema: format!("side{}", &id[12..]), server };
        let init = ["init", &inbox.url_of("postgres"), "--partitions", "1"];
        let init = std::process::Command::new(env!("CARGO_BIN_EXE_postrider")).args(init).output();
        let init = init.unwrap();
        assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
        let section = PAGE.split("\n## Roles\n").nth(1).unwrap();
        let mut blocks = section.split("```sql\n").skip(1).filter_map(|it| it.split("```").next());
        let grants = blocks.find(|block| block.contains("create role shop_relay")).unwrap();
        let schema = &inbox.schema;
        let grants = grants
            .replace("schema postrider", &format!("schema \"{schema}\""))
            .replace("shop_relay", &format!("\"{schema}\""));
        inbox.sql(&grants).await;
        Some(inbox)
    }

    fn url_of(&self, role: &str) -> String {
        let mark = if self.server.contains('?') { '&' } else { '?' };
        let server = self.server.replacen("postgres@", &format!("{role}@"), 1);
        format!("{server}{mark}schema={}", self.schema)
    }

    /// A sidecar of that role, which receives.
    async fn sidecar(&self, stage: &Stage, endpoint: &Endpoint) -> Sidecar {
        let (inbox, more) = (self.url_of(&self.schema), ["--lease", "5s"]);
        let mut sidecar = Sidecar::start(stage.command_at(&inbox, &endpoint.url(), &more));
        sidecar.hear("receiving").await;
        sidecar
    }

    /// A statement in the schema. `role` in it is the sidecars'.
    async fn sql(&self, text: &str) {
        let text = text.replace("$role", &format!("\"{}\"", self.schema));
        let text = format!("set search_path = \"{}\"; {text}", self.schema);
        self.client.batch_execute(&text).await.unwrap();
    }

    /// How many claims are in a state.
    async fn count(&self, status: &str) -> i64 {
        let statement = format!(
            "select count(*) from \"{}\".inbox where handler = '{GROUP}' and status::text = '{status}'",
            self.schema
        );
        self.client.query_one(&statement, &[]).await.unwrap().get(0)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let (server, schema) = (self.server.clone(), self.schema.clone());
        let removing = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let gone = format!(
                    "set lock_timeout = '5s'; drop schema if exists \"{schema}\" cascade;
                     drop owned by \"{schema}\"; drop role \"{schema}\""
                );
                connect(&server).await.batch_execute(&gone).await
            })
        });
        let removed = removing.join();
        assert!(matches!(removed, Ok(Ok(()))) || std::thread::panicking(), "{removed:?}");
    }
}

async fn connect(server: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(server, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// R076, R077, R089, F15: killed in the middle of a call, a sidecar leaves a claim that the next one takes over, by the same key;
/// and what was done is not done again for a copy.
#[tokio::test]
async fn an_inbox_on_postgres_outlives_a_crash_and_absorbs_copies() {
    let Some(inbox) = Inbox::new("an_inbox_on_postgres_outlives_a_crash").await else { return };
    let stage = Stage::new();
    let event = crate::stage::order("1");
    stage.publish(&event, 2).await;
    let endpoint = Endpoint::start(|_, before| match before {
        // The handler has acted, and is about to answer.
        0 => Plan::ActThen(Box::new(Plan::Hang)),
        _ => Plan::done(),
    })
    .await;
    let sidecar = inbox.sidecar(&stage, &endpoint).await;
    endpoint.called(1).await;
    sidecar.kill().await;
    assert_eq!((inbox.count("claimed").await, inbox.count("processed").await), (1, 0));
    let sidecar = inbox.sidecar(&stage, &endpoint).await;
    stage.settled().await;
    stage.publish(&event, 2).await;
    stage.settled().await;
    assert_eq!(sidecar.stop().await.code, Some(0));
    let calls = endpoint.calls_of(event.id);
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].header("idempotency-key"), calls[1].header("idempotency-key"));
    assert_eq!(calls[1].attempt(), 2, "the try of the dead counts");
    assert_eq!((inbox.count("claimed").await, inbox.count("processed").await), (0, 1));
    assert_eq!(endpoint.effects(), [event.id]);
}

/// INV-4, F11: a server that ends the sessions of a sidecar, again and again, delays its events; each is acted on, and none has a
/// second effect.
#[tokio::test]
async fn sessions_that_are_ended_lose_and_double_nothing() {
    const EVENTS: usize = 120;
    let Some(inbox) = Inbox::new("sessions_that_are_ended").await else { return };
    let stage = Stage::new();
    let endpoint =
        Endpoint::start(|_, _| Plan::After(Duration::from_millis(20), Box::new(Plan::done())))
            .await;
    let mut placed = BTreeSet::new();
    for number in 0..EVENTS {
        placed.insert(stage.place(&(number % 12).to_string()).await);
    }
    let sidecar = inbox.sidecar(&stage, &endpoint).await;
    let mut ended = 0;
    for round in 1..=8 {
        endpoint.called(round * EVENTS / 10).await;
        let statement =
            "select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
                         where usename = $1";
        let row = inbox.client.query_one(statement, &[&inbox.schema]).await.unwrap();
        ended += row.get::<_, i64>(0);
    }
    stage.settled().await;
    let stopped = sidecar.stop().await;
    assert_eq!(stopped.code, Some(0), "{}", stopped.text);
    assert!(ended >= 8, "only {ended} sessions were ended");
    let effects = endpoint.effects();
    assert_eq!(effects.len(), EVENTS, "one each");
    assert_eq!(effects.into_iter().collect::<BTreeSet<_>>(), placed);
    assert_eq!(inbox.count("processed").await, i64::try_from(EVENTS).unwrap());
    assert!(stage.dead().await.is_empty(), "an outage is no reason to give up");
}

/// F36: rights that are taken from the role are named, nothing is given up for it, and a sidecar goes on by itself when they are
/// granted again.
#[tokio::test]
async fn rights_may_be_taken_from_a_sidecar_under_way() {
    let Some(inbox) = Inbox::new("rights_may_be_taken_from_a_sidecar").await else { return };
    let stage = Stage::new();
    let endpoint = Endpoint::willing().await;
    let mut sidecar = inbox.sidecar(&stage, &endpoint).await;
    stage.place("1").await;
    stage.settled().await;
    inbox.sql("revoke all on inbox from $role").await;
    let second = stage.place("2").await;
    let told = sidecar.hear("permission denied").await;
    assert!(told.contains("inbox"), "{told}");
    assert!(endpoint.calls_of(second).is_empty(), "nobody acts on what is not claimed");
    inbox.sql("grant select, insert, update, delete on inbox to $role").await;
    stage.settled().await;
    assert_eq!(sidecar.stop().await.code, Some(0));
    assert_eq!((endpoint.calls_of(second).len(), inbox.count("processed").await), (1, 2));
    assert!(stage.dead().await.is_empty());
}
