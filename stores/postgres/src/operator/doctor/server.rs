//! The server: what it keeps of what it said was committed, and who keeps it from cleaning up.

use std::time::Duration;

use postrider_core::operate::{Finding, Level};
use postrider_core::{Code, Result};
use tokio_postgres::Row;

use super::{Patient, coded, critical, good, listed};
use crate::PublishAfter;
use crate::operator::value::{count, flag, number, shown};
use crate::sql::{Sql, sql};
use crate::typed::params;

const SERVER: Sql = sql!("doctor/server");
const HOLDERS: Sql = sql!("doctor/holders");
const HIDDEN: Sql = sql!("doctor/hidden");
const LAZY: Sql = sql!("doctor/lazy");
const NAMED: Sql = sql!("doctor/named");

/// A transaction that is open for so many times as long as is too long is forgotten: by somebody at a screen, or
/// by a transaction manager.
const OPEN_CRITICAL: u32 = 12;

/// A standby that lies so far behind takes minutes to become a primary, and a slot that keeps so much
/// fills the disk.
const LAG_MAX: u64 = 1 << 30;

/// Transactions without a freeze: the server warns at 40 million before the end of 2^31, and stops at 3.
const AGE_WARNING: u64 = 1_000_000_000;
const AGE_CRITICAL: u64 = 1_800_000_000;

async fn server(patient: &Patient<'_>) -> Result<Row> {
    patient.session.row("doctor", &SERVER, params![]).await
}

pub(super) async fn durability(patient: &Patient<'_>) -> Result<Finding> {
    let row = server(patient).await?;
    Ok(settings(&shown(&row, 0), &shown(&row, 1)))
}

fn settings(fsync: &str, full_page_writes: &str) -> Finding {
    if fsync != "on" {
        return critical(
            "durability",
            "fsync is off: a power cut can destroy the whole database",
            "set fsync = on in postgresql.conf, and restart the server",
            Code::DurabilityOff,
        );
    }
    if full_page_writes != "on" {
        return critical(
            "durability",
            "full_page_writes is off: a power cut can tear pages, which nobody notices",
            "set full_page_writes = on, unless the file system writes pages whole",
            Code::DurabilityOff,
        );
    }
    good("durability", "what the server writes is forced to the disk")
}

pub(super) async fn commits(patient: &Patient<'_>) -> Result<Finding> {
    let level = shown(&server(patient).await?, 2);
    let rows = patient.session.rows("doctor", &LAZY, params![]).await?;
    let lazy: Vec<String> = rows.iter().map(|row| shown(row, 0)).collect();
    Ok(synchronous(&level, &lazy))
}

/// `lazy`: who has synchronous_commit off in an own setting, which this session may not have.
fn synchronous(level: &str, lazy: &[String]) -> Finding {
    if level != "off" && lazy.is_empty() {
        return good("commits", format!("they wait for the disk (synchronous_commit {level})"));
    }
    let who = match lazy.is_empty() {
        true => "here".to_owned(),
        false => format!("for {}", listed(lazy)),
    };
    coded(
        "commits",
        format!(
            "synchronous_commit is off {who}: a crash takes back the last commits of applications; \
             Postrider publishes nothing before it is on the disk, and its own saves do not rely on it"
        ),
        "alter role … or alter database … set synchronous_commit = on, where losing a commit matters",
        Code::DurabilityOff,
    )
}

pub(super) async fn primary(patient: &Patient<'_>) -> Result<Finding> {
    let row = server(patient).await?;
    if flag(&row, 5) {
        let advice =
            "connect to the primary: name several hosts and target_session_attrs=read-write";
        let message = "the server is a standby: nothing can be written to it";
        return Ok(critical("primary", message, advice, Code::ReadOnly));
    }
    if shown(&row, 4) == "on" {
        let message = "default_transaction_read_only is on: nothing can be written";
        let advice = "set it off for this user or database; did a disk fill up?";
        return Ok(critical("primary", message, advice, Code::ReadOnly));
    }
    Ok(good("primary", format!("PostgreSQL {} takes writes", shown(&row, 13))))
}

pub(super) async fn replication(patient: &Patient<'_>) -> Result<Finding> {
    let row = server(patient).await?;
    let all = standbys(&shown(&row, 8), count(&row, 10), count(&row, 11), count(&row, 12));
    let PublishAfter::Standby(name) = patient.store.publish_after() else { return Ok(all) };
    let name: &str = name;
    let row = patient.session.row("doctor", &NAMED, params![name]).await?;
    let awaited = awaited(name, count(&row, 0), flag(&row, 1));
    // Where it is there and seen, it may lie behind, and commits may wait for another one.
    let worse = awaited.level == Level::Good && all.level != Level::Good;
    Ok(if worse { all } else { awaited })
}

/// Of the standby that `publish_after` waits for.
fn awaited(name: &str, named: u64, unseen: bool) -> Finding {
    match named {
        0 => away(name),
        _ if unseen => critical(
            "replication",
            format!(
                "nothing is published: publish_after waits for the standby {name}, and this user may not see how far it is"
            ),
            "grant pg_monitor to the relay's user",
            Code::StandbyShort,
        ),
        1 => good(
            "replication",
            format!("nothing is published that the standby {name} does not have"),
        ),
        _ => several(name, named),
    }
}

/// The standby that `publish_after` waits for is not there.
fn away(name: &str) -> Finding {
    critical(
        "replication",
        format!(
            "nothing is published: publish_after waits for the standby {name}, and none of that name is connected"
        ),
        "bring it back, correct publish_after to its application_name, or leave publish_after out",
        Code::StandbyShort,
    )
}

/// More than one standby has the name that `publish_after` waits for.
fn several(name: &str, named: u64) -> Finding {
    let message = format!(
        "{named} standbys are named {name}: events wait for all of them that are connected, and one that is away does \
         not count"
    );
    let advice = "give each standby an application_name of its own, and publish_after that of the one that takes over";
    coded("replication", message, advice, Code::StandbyShort)
}

/// `asked`: synchronous_standby_names.
fn standbys(asked: &str, all: u64, synchronous: u64, lag: u64) -> Finding {
    if !asked.is_empty() && synchronous == 0 {
        return critical(
            "replication",
            format!("commits wait for a standby ({asked}), and none is there"),
            "bring the standby back, or take it out of synchronous_standby_names",
            Code::StandbyShort,
        );
    }
    if lag > LAG_MAX {
        return coded(
            "replication",
            format!("a standby lies {} MiB behind", lag >> 20),
            "look at its disk and network: after a failover to it that much is lost",
            Code::StandbyShort,
        );
    }
    good(
        "replication",
        match (all, synchronous) {
            (0, _) => "there is no standby".to_owned(),
            (all, 0) => format!(
                "{all} standbys, none synchronous: after a failover the last commits may be gone, \
                 though their events were published"
            ),
            (all, synchronous) => format!("{all} standbys, {synchronous} of them synchronous"),
        },
    )
}

pub(super) async fn change_log(patient: &Patient<'_>) -> Result<Finding> {
    let level = shown(&server(patient).await?, 3);
    Ok(match level.as_str() {
        "logical" => {
            good("change log", "wal_level is logical: reading by the change log is possible")
        }
        level => good(
            "change log",
            format!("wal_level is {level}: enough for polling; the change log needs logical"),
        ),
    })
}

pub(super) async fn wraparound(patient: &Patient<'_>) -> Result<Finding> {
    Ok(age(count(&server(patient).await?, 9)))
}

fn age(age: u64) -> Finding {
    let message = format!(
        "the oldest row that is not frozen is {} million transactions old",
        age / 1_000_000
    );
    let advice =
        "end what holds old rows (see `old transactions`), then vacuum (freeze) the database";
    match age {
        age if age > AGE_CRITICAL => critical("wraparound", message, advice, Code::CleanupHeld),
        age if age > AGE_WARNING => coded("wraparound", message, advice, Code::CleanupHeld),
        _ => good("wraparound", message),
    }
}

/// Who has a transaction open.
struct Holder {
    what: String,
    name: String,
    state: String,
    owner: String,
    open: Option<Duration>,
    bytes: u64,
    /// The database, if it is another.
    elsewhere: Option<String>,
}

async fn read(patient: &Patient<'_>) -> Result<Vec<Holder>> {
    let rows = patient.session.rows("doctor", &HOLDERS, params![]).await?;
    let holder = |row: &Row| Holder {
        what: shown(row, 0),
        name: shown(row, 1),
        state: shown(row, 2),
        owner: shown(row, 3),
        open: number(row, 4).map(|seconds| Duration::from_secs(seconds.max(0).cast_unsigned())),
        bytes: count(row, 6),
        elsewhere: row.get(7),
    };
    Ok(rows.iter().map(holder).collect())
}

pub(super) async fn holders(patient: &Patient<'_>) -> Result<Finding> {
    let bearable = patient.store.inner.options.thresholds.transaction_open;
    let found = oldest(&read(patient).await?, bearable);
    if found.code.is_some() {
        return Ok(found);
    }
    let hidden = count(&patient.session.row("doctor", &HIDDEN, params![]).await?, 0);
    Ok(if hidden == 0 { found } else { unseen(hidden) })
}

/// Sessions that this user may not look into, and so not into their transactions either.
fn unseen(hidden: u64) -> Finding {
    coded(
        "old transactions",
        format!(
            "{hidden} sessions of others cannot be looked into, so that a transaction which is open for long may be among \
             them; the metric of the oldest transaction does not see them either"
        ),
        "grant pg_read_all_stats to the users of the relay and of `doctor`",
        Code::Unexamined,
    )
}

fn oldest(holders: &[Holder], bearable: Duration) -> Finding {
    let oldest = holders.iter().filter_map(|holder| Some((holder, holder.open?)));
    let Some((holder, open)) = oldest.max_by_key(|(_, open)| *open) else {
        return good("old transactions", "no transaction is open");
    };
    if open < bearable {
        return good("old transactions", format!("the oldest is open for {open:?}"));
    }
    let Holder { what, name, state, owner, elsewhere, .. } = holder;
    let mut about = format!("{name}, user {owner}");
    if !state.is_empty() {
        about.push_str(&format!(", {state}"));
    }
    if let Some(database) = elsewhere {
        about.push_str(&format!(", database {database}"));
    }
    let message = format!("{what} ({about}) has a transaction open for {open:?}");
    let advice = advice(what.strip_prefix("session "), name, elsewhere.as_deref());
    match open {
        open if open > bearable * OPEN_CRITICAL => {
            critical("old transactions", message, advice, Code::CleanupHeld)
        }
        _ => coded("old transactions", message, advice, Code::CleanupHeld),
    }
}

/// What such a transaction keeps up, and what ends it.
fn advice(pid: Option<&str>, name: &str, elsewhere: Option<&str>) -> String {
    let held = match (pid, elsewhere) {
        (_, Some(_)) => "events flow, and nothing is retired meanwhile",
        (Some(_), None) => "events flow, and nothing is cleaned away or retired meanwhile",
        (None, None) => "its events are not seen until it ends",
    };
    match (pid, elsewhere) {
        (Some(pid), _) => format!("{held}; to end it: select pg_terminate_backend({pid})"),
        (None, None) => format!("{held}: commit prepared or rollback prepared '{name}'"),
        (None, Some(database)) => format!(
            "{held}; connected with {database}: commit prepared or rollback prepared '{name}'"
        ),
    }
}

pub(super) async fn slots(patient: &Patient<'_>) -> Result<Finding> {
    Ok(of_slots(&read(patient).await?))
}

fn of_slots(holders: &[Holder]) -> Finding {
    let slots: Vec<&Holder> = holders.iter().filter(|h| h.what == "replication slot").collect();
    let wide = |slot: &&&Holder| slot.bytes > LAG_MAX;
    let wide: Vec<String> = slots
        .iter()
        .filter(wide)
        .map(|slot| format!("{} ({}, {} MiB)", slot.name, slot.state, slot.bytes >> 20))
        .collect();
    if wide.is_empty() {
        return good("replication slots", format!("{} slots, none far behind", slots.len()));
    }
    coded(
        "replication slots",
        format!("the write-ahead log is kept for {}", listed(&wide)),
        "start whoever reads it, or drop it: select pg_drop_replication_slot(…)",
        Code::LogKept,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_brought_about_in_a_test_is_judged_from_its_numbers() {
        assert_eq!(settings("off", "on").level, Level::Critical);
        assert_eq!(settings("on", "off").level, Level::Critical);
        assert_eq!(synchronous("off", &[]).level, Level::Warning);
        assert_eq!(synchronous("local", &[]).level, Level::Good);
        assert_eq!(synchronous("on", &["role app".to_owned()]).level, Level::Warning);
        // INV-8: what keeps everything from being published is not good.
        for (named, unseen, level) in [
            (1, false, Level::Good),
            (0, false, Level::Critical),
            (2, false, Level::Warning),
            (1, true, Level::Critical),
        ] {
            assert_eq!(awaited("b", named, unseen).level, level, "{named} {unseen}");
        }
        assert_eq!(standbys("", 0, 0, 0).level, Level::Good);
        assert_eq!(standbys("b", 1, 0, 0).level, Level::Critical);
        assert_eq!(standbys("b", 1, 1, LAG_MAX + 1).level, Level::Warning);
        assert_eq!(age(1_000).level, Level::Good);
        assert_eq!(age(AGE_WARNING + 1).level, Level::Warning);
        assert_eq!(age(AGE_CRITICAL + 1).level, Level::Critical);
    }

    const MINUTES: Duration = Duration::from_secs(300);

    fn holder(what: &str, seconds: Option<u64>, bytes: u64) -> Holder {
        let (name, owner) = ("reports".to_owned(), "anna".to_owned());
        let (open, state) = (seconds.map(Duration::from_secs), "idle".to_owned());
        Holder { what: what.to_owned(), name, state, owner, open, bytes, elsewhere: None }
    }

    /// F7: whoever holds up what is named, with what ends it.
    #[test]
    fn the_oldest_transaction_is_named() {
        let few = [holder("session 7", Some(10), 0), holder("replication slot", None, 5)];
        assert_eq!(oldest(&few, MINUTES).level, Level::Good);
        assert_eq!(of_slots(&few).level, Level::Good);
        let warned =
            oldest(&[holder("session 7", Some(400), 0), holder("session 8", Some(10), 0)], MINUTES);
        assert_eq!(warned.level, Level::Warning);
        assert!(warned.message.contains("session 7 (reports, user anna, idle)"), "{warned:?}");
        assert!(warned.advice.unwrap().contains("pg_terminate_backend(7)"));
        let forgotten = oldest(&[holder("prepared transaction", Some(4_000), 0)], MINUTES);
        assert_eq!(forgotten.level, Level::Critical);
        assert!(forgotten.advice.unwrap().contains("rollback prepared 'reports'"));
        assert_eq!(oldest(&[], MINUTES).level, Level::Good);
        let slot = of_slots(&[holder("replication slot", None, LAG_MAX * 3)]);
        assert_eq!(slot.level, Level::Warning);
    }
}
