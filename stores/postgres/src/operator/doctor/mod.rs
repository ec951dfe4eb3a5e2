//! The doctor: looks for what will go wrong, and says what to do about it.
//!
//! Each examination is a small function that gives one finding, good or not. Invariant: nothing is
//! changed, and nothing that takes longer than a look at a screen is done to a large store.

mod ranges;
mod server;
mod session;
mod tables;

use postrider_core::operate::findings::{self, coded, critical, good, listed, unexamined};
use postrider_core::operate::{Finding, Overview};
use postrider_core::{Code, Error, ErrorKind, Result, Timestamp};

use super::overview;
use crate::session::Session;
use crate::{Names, PostgresStore};

/// What the examinations look at.
struct Patient<'a> {
    store: &'a PostgresStore,
    /// Of its own, each statement a transaction: one that is refused spoils no other.
    session: Session,
    overview: Overview,
}

impl Patient<'_> {
    /// How the command line names the store: with the tables' names, where they are not the usual ones. In quotes then, for a
    /// shell.
    fn option(&self) -> String {
        let (store, usual) = (self.store.name(), Names::default());
        let names = self.store.names();
        let given = [
            ("schema", names.schema(), usual.schema()),
            ("outbox", names.outbox(), usual.outbox()),
            ("inbox", names.inbox(), usual.inbox()),
        ];
        let others = given.iter().filter(|(_, name, usual)| name != usual);
        let others: Vec<String> = others.map(|(key, name, _)| format!("{key}={name}")).collect();
        match others.is_empty() {
            true => format!("--store {store}"),
            false => format!("--store '{store}?{}'", others.join("&")),
        }
    }

    /// The names of the store's own tables, but for those that the outbox is divided into.
    fn tables(&self) -> Vec<String> {
        let names = self.store.names();
        let outbox = [
            "",
            "_meta",
            "_scheduled",
            "_destination",
            "_cursor",
            "_lease",
            "_renewal",
            "_relay",
            "_life",
            "_flush",
            "_waiting",
            "_range",
            "_endpoint",
            "_settled",
            "_request",
            "_request_row",
            "_audit",
            "_own_passed",
            "_own_number",
        ];
        let inbox = ["", "_result", "_step", "_tombstone", "_horizon"];
        let of = |base: &str, rest: &[&str]| -> Vec<String> {
            rest.iter().map(|rest| format!("{base}{rest}")).collect()
        };
        [of(names.outbox(), &outbox), of(names.inbox(), &inbox)].concat()
    }
}

/// Examines everything. What could not be examined is a finding, not an error: the others still say
/// what they say.
pub(super) async fn examine(store: &PostgresStore, now: Timestamp) -> Result<Vec<Finding>> {
    let overview = match overview::read(store).await {
        Ok(overview) => overview,
        Err(error) => return unreadable(error),
    };
    let session = store.sessions().connect("doctor").await?;
    let patient = &Patient { store, session, overview };
    let mut findings = Vec::new();
    for (subject, finding) in [
        ("durability", server::durability(patient).await),
        ("commits", server::commits(patient).await),
        ("primary", server::primary(patient).await),
        ("replication", server::replication(patient).await),
        ("change log", server::change_log(patient).await),
        ("wraparound", server::wraparound(patient).await),
        ("old transactions", server::holders(patient).await),
        ("replication slots", server::slots(patient).await),
        ("pooler", session::pooler(patient)),
        ("isolation", session::isolation(patient).await),
        ("encryption", session::encryption(patient)),
        ("copy", session::copy(patient).await),
        ("grants", session::grants(patient).await),
        ("numbering", session::numbering(patient).await),
        ("vouching", session::vouching(patient).await),
        ("schema version", tables::version(patient).await),
        ("tables", tables::guards(patient).await),
        ("keys", tables::keys(patient).await),
        ("numbers", tables::numbers(patient).await),
        ("cursors", tables::cursors(patient).await),
        ("tables ahead", tables::ahead(patient).await),
        ("default table", tables::default_table(patient).await),
        ("dead rows", tables::dead_rows(patient).await),
        ("autovacuum", tables::autovacuum(patient).await),
        ("history", tables::history(patient).await),
        ("ranges", ranges::ranges(patient).await),
        ("dedup horizon", tables::horizon(patient).await),
        ("stuck claims", tables::stuck(patient).await),
        ("leftovers", tables::leftovers(patient).await),
    ] {
        findings.push(finding.unwrap_or_else(|error| unexamined(subject, &error)));
    }
    findings.extend(findings::flow(&patient.overview, now, &patient.option()));
    Ok(findings)
}

/// A store that cannot be read at all has one finding. Where there is none it is an error.
fn unreadable(error: Error) -> Result<Vec<Finding>> {
    if error.kind() != ErrorKind::Corrupt {
        return Err(error);
    }
    let code = error.operator_code().unwrap_or(Code::Corrupt);
    Ok(vec![critical("store", error.to_string(), code.advice(), code)])
}
