//! The way to the server: who we are there, which server it is, and what lies between.

use postrider_core::operate::Finding;
use postrider_core::{Code, Result};

use super::{Patient, coded, critical, good, listed};
use crate::identity;
use crate::operator::value::shown;
use crate::sql::{Sql, sql};
use crate::state::SEEING;
use crate::typed::params;

const ISOLATION: Sql = sql!("doctor/isolation");
const GRANTS: Sql = sql!("doctor/grants");

/// The session was examined when it was opened.
pub(super) fn pooler(patient: &Patient<'_>) -> Result<Finding> {
    Ok(patient.store.sessions().way().finding())
}

/// In sessions of our own it is set; a pooler's are as the database and the role have it.
pub(super) async fn isolation(patient: &Patient<'_>) -> Result<Finding> {
    let level = shown(&patient.session.row("doctor", &ISOLATION, params![]).await?, 0);
    if matches!(&*level, "read committed" | "read uncommitted") {
        return Ok(good(
            "isolation",
            "whoever waited for a lock sees what was committed meanwhile",
        ));
    }
    Ok(critical(
        "isolation",
        format!(
            "a pooler lies between, and default_transaction_isolation is {level}: no relay is given a lease"
        ),
        SEEING,
        Code::SessionsShared,
    ))
}

pub(super) fn encryption(patient: &Patient<'_>) -> Result<Finding> {
    Ok(match patient.store.sessions().address().doubt() {
        None => good("encryption", "the server is known by its certificate, or on this machine"),
        Some(doubt) => coded(
            "encryption",
            doubt,
            "add sslmode=verify-full to the address, and sslrootcert=PATH for a root of your own",
            Code::ServerUnproven,
        ),
    })
}

pub(super) async fn copy(patient: &Patient<'_>) -> Result<Finding> {
    let place = identity::read(&patient.session).await?;
    Ok(match place.is_same() {
        true => good("copy", "this database is the one that publishes"),
        false => critical(
            "copy",
            "this database is a copy of the one that publishes: was it restored, or moved here?",
            format!(
                "if it takes that one's place: postrider adopt {} --reason '…'",
                patient.option()
            ),
            Code::StoreMoved,
        ),
    })
}

async fn privileges(patient: &Patient<'_>, kind: &str) -> Result<Vec<String>> {
    let values = params![patient.store.names().schema(), patient.tables()];
    let rows = patient.session.rows("doctor", &GRANTS, values).await?;
    let told = |row| shown(row, 0).strip_prefix(kind).map(str::to_owned);
    Ok(rows.iter().filter_map(told).collect())
}

pub(super) async fn grants(patient: &Patient<'_>) -> Result<Finding> {
    let lacks = privileges(patient, "lacks ").await?;
    if lacks.is_empty() {
        return Ok(good("grants", "this user has what relay and inbox need"));
    }
    Ok(critical(
        "grants",
        format!("this user has no {}", listed(&lacks)),
        format!(
            "as the tables' owner, grant what a relay and an operator need: usage on schema {0}; select, \
             insert, update, delete on all tables in schema {0}; usage, select on all sequences in schema \
             {0}; execute on all functions in schema {0} (docs/operate/postgres.md, Roles)",
            patient.store.names().schema()
        ),
        Code::Unauthorized,
    ))
}

pub(super) async fn numbering(patient: &Patient<'_>) -> Result<Finding> {
    let whole = privileges(patient, "numbered by ").await?;
    if whole.is_empty() {
        return Ok(good("numbering", "producers leave numbers to the database"));
    }
    Ok(coded(
        "numbering",
        format!("{} may insert all columns of the outbox, its numbers as well", listed(&whole)),
        "grant INSERT on the columns from id on, and not on xid and seq",
        Code::WritersUnchecked,
    ))
}

/// Users of the Rust crates are meant to: which of these they are, the database does not know.
pub(super) async fn vouching(patient: &Patient<'_>) -> Result<Finding> {
    let vouch = privileges(patient, "vouched by ").await?;
    Ok(good(
        "vouching",
        match vouch.is_empty() {
            true => "every row is checked by the database".to_owned(),
            false => format!(
                "{} may vouch for rows, which the database does not check then: right for users of the Rust crates, \
                 and for nobody who writes SQL of his own",
                listed(&vouch)
            ),
        },
    ))
}
