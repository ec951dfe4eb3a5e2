//! The doctor: a healthy store has nothing but good findings, and each illness is found.

use postrider_core::operate::{Finding, Level, Operator};
use postrider_core::{Code, DestinationState, ErrorKind, OutboxSource, Timestamp};

use super::{Act, Play, everything, note};
use crate::support::{Fresh, event, id, number};

async fn findings(play: &Play) -> Vec<Finding> {
    play.store.doctor(Timestamp::now()).await.expect("an examination")
}

/// A healthy store, with a relay that has delivered everything.
async fn healthy() -> Play {
    let play = Play::begin(&[everything("a")]).await;
    play.commit(&(0..3).map(event).collect::<Vec<_>>());
    play.settle_all("a", &[Act::Ack]).await;
    play.settle_all("unrouted", &[Act::Elsewhere]).await;
    play
}

/// What is not good, apart from the space of the machine that the tests run on.
async fn illnesses(play: &Play) -> Vec<(String, Level)> {
    let findings = findings(play).await.into_iter();
    let ill = findings.filter(|finding| finding.level != Level::Good);
    ill.filter(|finding| finding.subject != "disk space")
        .map(|finding| (finding.subject, finding.level))
        .collect()
}

async fn illness(play: &Play, subject: &str) -> Finding {
    let ill = illnesses(play).await;
    assert!(ill.iter().any(|(name, _)| name == subject), "{subject}: {ill:?}");
    let mut findings = findings(play).await.into_iter();
    findings.find(|finding| finding.subject == subject).expect("the finding")
}

fn run(play: &Play, statement: &str) {
    play.fresh.connect().execute_batch(statement).expect("the statement");
}

#[tokio::test]
async fn a_healthy_store_has_good_findings_only() {
    let play = healthy().await;
    assert_eq!(illnesses(&play).await, []);
    assert!(findings(&play).await.len() >= 18);
    let fresh = Fresh::new();
    let empty = fresh.store().doctor(Timestamp::now()).await.unwrap();
    let ill: Vec<_> = empty.iter().filter(|f| f.level != Level::Good).collect();
    assert!(ill.iter().all(|finding| finding.subject == "disk space"), "{ill:?}");
}

#[tokio::test]
async fn no_relay_with_a_backlog_is_critical_and_says_what_to_run() {
    let play = healthy().await;
    run(&play, "update outbox_relay set expires_at = 1; update outbox_lease set expires_at = 1");
    assert_eq!(illnesses(&play).await, [], "nothing waits for a relay");
    play.commit(&[event(9)]);
    let found = illness(&play, "relay").await;
    assert_eq!(found.level, Level::Critical);
    // With destinations in the store, an address alone starts nothing.
    assert!(found.advice.expect("advice").ends_with("postrider relay --config FILE"));
    let fresh = Fresh::new();
    fresh.commit(&[event(1)]);
    let findings = fresh.store().doctor(Timestamp::now()).await.unwrap();
    let found = findings.iter().find(|finding| finding.subject == "relay").unwrap();
    assert_eq!(found.level, Level::Critical, "a relay was never there");
    let advice = found.advice.as_deref().expect("advice");
    assert!(
        advice.starts_with("postrider relay --store sqlite:///") && advice.contains(" --to URL")
    );
}

#[tokio::test]
async fn numbers_behind_a_cursor_are_critical() {
    for damage in [
        "update outbox_cursor set position = 90 where destination = 'a'",
        "update sqlite_sequence set seq = 1 where name = 'outbox'",
        "delete from sqlite_sequence",
    ] {
        let play = healthy().await;
        run(&play, damage);
        let found = illness(&play, "numbers").await;
        assert_eq!((found.level, found.code), (Level::Critical, Some(Code::Rewound)), "{damage}");
        assert!(found.advice.expect("advice").contains("postrider repair sequence"));
    }
}

#[tokio::test]
async fn clocks_apart_are_said() {
    let play = healthy().await;
    for (seconds, level) in [(0, Level::Good), (30, Level::Warning), (3_600, Level::Critical)] {
        let now = Timestamp::now().as_micros();
        for now in [now + seconds * 1_000_000, now - seconds * 1_000_000] {
            let findings = play.store.doctor(Timestamp::from_micros(now)).await.unwrap();
            let found = findings.iter().find(|finding| finding.subject == "clock").unwrap();
            assert_eq!(found.level, level, "{found:?}");
        }
    }
}

#[tokio::test]
async fn the_guards_of_the_tables_are_looked_at() {
    for damage in [
        "drop trigger outbox_is_append_only",
        "drop index outbox_waiting_state",
        "drop trigger outbox_seq_is_assigned;
            create trigger outbox_seq_is_assigned before insert on outbox when 0
            begin select 1; end",
    ] {
        let play = healthy().await;
        run(&play, damage);
        assert_eq!(illness(&play, "tables").await.level, Level::Critical, "{damage}");
    }
}

#[tokio::test]
async fn what_a_person_has_to_decide_is_a_warning_with_its_command() {
    let play = healthy().await;
    play.commit(&(0..3).map(event).collect::<Vec<_>>());
    play.settle("a", &[Act::Dead, Act::Disable]).await;
    let dead = illness(&play, "dead letters").await;
    assert_eq!((dead.level, dead.message.as_str()), (Level::Warning, "1 at a (1 parked)"));
    assert!(dead.advice.expect("advice").starts_with("postrider dead ls"));
    let endpoint = illness(&play, "disabled endpoints").await;
    assert!(endpoint.advice.expect("advice").contains("postrider destinations enable a 'gone'"));
    play.store.set_destination(&id("a"), DestinationState::Paused, &note()).await.unwrap();
    let paused = illness(&play, "pauses").await;
    assert!(paused.advice.expect("advice").starts_with("postrider destinations resume a"));
    run(&play, "update outbox_lease set paused = 1, takeovers = 3");
    assert!(illness(&play, "paused partitions").await.message.contains("partition 0"));
    illness(&play, "deaths").await;
    run(&play, "update outbox_relay set current = 0");
    let outdated = illness(&play, "definitions").await;
    assert_eq!(outdated.code, Some(Code::DefinitionOutdated));
    run(
        &play,
        "insert into outbox_request (verb, who, created_at, total) values ('redrive', 'w', 0, 1);
        update outbox_relay set expires_at = 1",
    );
    illness(&play, "requests").await;
    play.store.release(std::slice::from_ref(&play.lease)).await.unwrap();
}

#[tokio::test]
async fn claims_left_behind_are_found() {
    let play = healthy().await;
    let claim = |id: u8, expires: &str| {
        format!(
            "insert into inbox (source, event_id, handler, event_type, status, payload_hash,
                received_at, expires_at)
            values ('/shop', '{id}', 'mail', 't', 'claimed', zeroblob(32), 0, {expires});"
        )
    };
    run(&play, &claim(1, "0"));
    run(&play, &claim(2, "cast(round((julianday('now') - 2440587.5) * 86400000) as integer)"));
    assert_eq!(illnesses(&play).await, [], "one was let go, and one ended just now");
    run(&play, &claim(3, "1"));
    assert!(illness(&play, "stuck claims").await.message.starts_with("1 claims"));
}

#[tokio::test]
async fn a_copy_that_nobody_adopted_is_critical() {
    let play = healthy().await;
    play.store.adopt(&note()).await.unwrap();
    assert_eq!(illnesses(&play).await, []);
    run(&play, "update outbox_meta set value = 'inode 1' where key = 'file'");
    let found = illness(&play, "copy").await;
    assert_eq!(found.level, Level::Critical);
    assert!(found.advice.expect("advice").contains("postrider adopt"));
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_everybody_may_write_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let play = healthy().await;
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(play.fresh.path(), open).unwrap();
    let found = illness(&play, "permissions").await;
    assert_eq!(found.level, Level::Warning);
    assert!(found.advice.expect("advice").starts_with("chmod o-w"));
}

/// A page that was written over is found by reading all of the file.
#[tokio::test]
async fn a_damaged_page_is_critical() {
    let play = healthy().await;
    let connection = play.fresh.connect();
    connection.execute_batch("pragma wal_checkpoint(truncate)").unwrap();
    let page = "select rootpage from sqlite_schema where name = 'outbox_waiting_endpoint'";
    let page = usize::try_from(number(&connection, page)).unwrap();
    drop(connection);
    let Play { fresh, store, .. } = play;
    drop(store);
    let mut bytes = std::fs::read(fresh.path()).unwrap();
    bytes[(page - 1) * 4_096..page * 4_096].fill(0x5a);
    std::fs::write(fresh.path(), bytes).unwrap();
    let findings = fresh.store().doctor(Timestamp::now()).await.unwrap();
    let found = findings.iter().find(|finding| finding.subject == "integrity").unwrap();
    assert_eq!((found.level, found.code), (Level::Critical, Some(Code::Corrupt)), "{found:?}");
}

/// A file that cannot be read at all is a finding as well.
#[tokio::test]
async fn a_file_that_is_no_database_is_critical() {
    let fresh = Fresh::empty();
    std::fs::write(fresh.path(), "no database ".repeat(100)).unwrap();
    let findings = fresh.store().doctor(Timestamp::now()).await.unwrap();
    assert_eq!((findings.len(), findings[0].level), (1, Level::Critical), "{findings:?}");
    let missing = Fresh::empty().store().doctor(Timestamp::now()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

/// Rows that were written past the checks are no damage of the file.
#[tokio::test]
async fn rows_past_the_checks_are_told_from_damage() {
    let play = healthy().await;
    run(
        &play,
        "pragma ignore_check_constraints = on;
        insert into outbox (aggregate_type, aggregate_id, event_type, payload)
        values ('', '42', 'order.placed', '{}')",
    );
    let found = illness(&play, "integrity").await;
    assert_eq!(
        (found.level, found.code),
        (Level::Warning, Some(Code::WritersUnchecked)),
        "{found:?}"
    );
}
