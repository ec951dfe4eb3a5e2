//! What somebody takes from a relay that runs: rights, and connections.

use std::time::Instant;

use tokio::process::Child;
use tokio_postgres::Client;

use crate::stage::{PATIENCE, Stage};
use crate::watch::Pauses;

/// A role as the documentation has it for a relay.
const ROLE: &str = "create role carrier login;
    grant usage on schema {schema} to carrier;
    grant select, insert, update, delete on all tables in schema {schema} to carrier;
    grant usage, select on all sequences in schema {schema} to carrier;
    grant execute on all functions in schema {schema} to carrier";

/// An event that becomes a dead letter: its writer vouched for it where its key does not belong.
const STRAY: &str = "insert into {outbox} (vouched, partition, aggregate_type, aggregate_id, event_type, payload)
    select true, ({outbox_partition_of}('account/stray') + 1) % 8, 'account', 'stray', 'account.moved', '0'";

/// Has it sent all the same.
const REDRIVE: &str =
    "update {outbox_waiting} set state = 'retrying', late = true, holds_key = false,
    next_at = now() where state = 'dead'";

struct Taking {
    stage: Stage,
    relays: [Child; 2],
    owner: Client,
}

impl Taking {
    async fn open() -> Option<Taking> {
        let stage = Stage::open(&["fsync = off"]).await?;
        let owner = stage.session(ROLE).await;
        let url = stage.cluster.url().replace("postgres@", "carrier@");
        let relays = [stage.relay(&url, &[]), stage.relay(&url, &[])];
        Some(Taking { stage, relays, owner })
    }

    async fn run(&self, statement: &str) {
        self.owner.batch_execute(&self.stage.named(statement)).await.expect("it runs");
    }

    /// Writes until a condition of the database's holds.
    async fn write_until(&mut self, what: &str, condition: &str) {
        let (began, mut pauses) = (Instant::now(), Pauses::new());
        while self.stage.number(condition).await == 0 {
            assert!(began.elapsed() < PATIENCE, "{what}");
            self.stage.write(10).await;
            pauses.next().await;
        }
    }

    /// Everything arrives, and nobody was started anew for it.
    async fn goes_on(&mut self) {
        self.stage.write(100).await;
        self.stage.all_arrive().await;
        for relay in &mut self.relays {
            assert_eq!(relay.try_wait().expect("a process"), None, "a relay outlives it");
        }
    }
}

/// F36, INV-1, INV-3: rights are taken from two relays under way, one after the other, until a relay says which one it
/// lacks. Nothing is lost, each key keeps its order, and with the right given back they go on by themselves.
#[tokio::test]
async fn rights_may_be_taken_from_relays_under_way() {
    let Some(mut taking) = Taking::open().await else { return };
    taking.goes_on().await;
    let settle = "{outbox_settle}(smallint, text, bigint, uuid, boolean, jsonb, bigint)";
    let settle = format!("execute on function {settle}, {{outbox_settle_many}}(jsonb)");
    for (right, named) in [
        ("update on {outbox_cursor}", "outbox_cursor"),
        ("insert, update on {outbox_settled}", "outbox_settled"),
        ("select on {outbox}", "outbox"),
        ("update on {outbox_renewal}", "outbox_renewal"),
        ("select, update on {outbox_lease}", "outbox_lease"),
        (&settle, "outbox_settle"),
        ("insert on {outbox_waiting}", "outbox_waiting"),
    ] {
        let silent = "select (count(*) = 0)::int::bigint from {outbox_relay}
            where hindrances::text like '%lacks a privilege%'";
        taking.write_until("what was missing is forgotten", silent).await;
        let began = Instant::now();
        taking.run(&format!("revoke {right} from carrier")).await;
        if named == "outbox_waiting" {
            taking.run(STRAY).await;
        }
        let told = format!(
            "select count(*) from {{outbox_relay}} where hindrances::text like '%lacks a privilege%{named}%'"
        );
        taking.write_until(&format!("nobody says what is missing: {right}"), &told).await;
        let said = began.elapsed();
        taking.run(&format!("grant {right} to carrier")).await;
        if named == "outbox_waiting" {
            let dead = "select count(*) from {outbox_waiting} where state = 'dead'";
            taking.write_until("the dead letter is kept", dead).await;
            taking.run(REDRIVE).await;
        }
        taking.goes_on().await;
        eprintln!("{named}: said after {said:?}, everything there after {:?}", began.elapsed());
    }
    taking.stage.judge().await;
}

/// F36, INV-1, INV-3: all sessions of two relays are ended, and for longer than their leases they are not let in again, in
/// one way after the other; or one each at most is. Nothing is lost, and let in again they go on by themselves.
#[tokio::test]
async fn relays_may_be_without_a_connection() {
    let Some(mut taking) = Taking::open().await else { return };
    taking.goes_on().await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'carrier'";
    let free = "select (count(*) = 0)::int::bigint from {outbox_renewal} where expires_at > now()";
    for (shut, open, until) in [
        ("connection limit 0", "connection limit -1", free),
        ("connection limit 1", "connection limit -1", "select 1::bigint"),
        ("nologin", "login", free),
        // Let in, and may not write.
        ("set default_transaction_read_only = on", "reset default_transaction_read_only", free),
    ] {
        let began = Instant::now();
        taking.run(&format!("alter role carrier {shut}")).await;
        taking.run(end).await;
        taking.write_until("leases run out", until).await;
        taking.stage.write(200).await;
        // Nobody ends sessions for this: those that began meanwhile keep what their role had then.
        taking.run(&format!("alter role carrier {open}")).await;
        taking.goes_on().await;
        eprintln!("{shut}: everything there after {:?}", began.elapsed());
    }
    taking.stage.judge().await;
}
