//! The doctor: a healthy store has nothing but good findings, and each illness is found.

use postrider_core::operate::{Finding, Level, Operator};
use postrider_core::{Code, DestinationState, ErrorKind, NewEvent, OutboxSource, Timestamp};
use postrider_postgres::{PostgresStore, Schema};

use crate::operator::{Act, Play, everything, note, of_type};
use crate::support::{Fresh, id};

fn orders(count: u32) -> Vec<NewEvent> {
    (0..count).map(|n| of_type("order.placed", n)).collect()
}

async fn findings(play: &Play) -> Vec<Finding> {
    play.store.doctor(Timestamp::now()).await.expect("an examination")
}

/// A healthy store, with a relay that has delivered everything.
async fn healthy() -> Option<Play> {
    let play = Play::wide(2, &[everything("a")]).await?;
    play.commit(&orders(3)).await;
    play.settle_all("a", &[Act::Ack]).await;
    play.settle_all("unrouted", &[Act::Elsewhere]).await;
    play.fresh
        .run(
            "insert into {outbox_relay} (owner, expires_at, current)
            values ('r1', now() + interval '1 hour', true)",
        )
        .await;
    Some(play)
}

/// What is not good, apart from what the server that the tests run on is: it may be one without fsync, with
/// other users' transactions and slots.
async fn illnesses(play: &Play) -> Vec<(String, Level)> {
    let findings = findings(play).await.into_iter();
    let ill = findings.filter(|finding| finding.level != Level::Good);
    let servers = ["durability", "replication", "replication slots", "old transactions"];
    ill.filter(|finding| !servers.contains(&finding.subject.as_str()))
        .map(|finding| (finding.subject, finding.level))
        .collect()
}

async fn illness(play: &Play, subject: &str) -> Finding {
    let ill = illnesses(play).await;
    assert!(ill.iter().any(|(name, _)| name == subject), "{subject}: {ill:?}");
    let mut findings = findings(play).await.into_iter();
    findings.find(|finding| finding.subject == subject).expect("the finding")
}

#[tokio::test]
async fn a_healthy_store_has_good_findings_only() {
    let Some(play) = healthy().await else { return };
    assert_eq!(illnesses(&play).await, []);
    let findings = findings(&play).await;
    assert!(findings.len() >= 30);
    let version = findings.iter().find(|finding| finding.subject == "schema version");
    let version = &version.expect("how the tables are numbered is said").message;
    assert!(version.starts_with(&format!("version {},", Schema::VERSION)), "{version}");
    assert!(findings.iter().all(|finding| !finding.message.contains("could not be examined")));
    let Some(empty) = Fresh::new(1).await else { return };
    let none = Fresh::empty().expect("a server").store();
    assert_eq!(none.doctor(Timestamp::now()).await.unwrap_err().kind(), ErrorKind::SchemaMissing);
    let findings = empty.store().doctor(Timestamp::now()).await.unwrap();
    let ill = findings.iter().filter(|finding| finding.level == Level::Critical);
    assert!(
        ill.clone().all(|finding| finding.subject == "durability"),
        "{:?}",
        ill.collect::<Vec<_>>()
    );
    empty.run("update {outbox_meta} set value = '99' where key = 'schema'").await;
    let findings = empty.store().doctor(Timestamp::now()).await.unwrap();
    let serves = |finding: &Finding| finding.message.starts_with("version 99, which serves");
    assert!(findings.iter().any(serves), "{findings:?}");
    // What does not serve this program is not looked at: what is read would be another thing.
    empty.run("update {outbox_meta} set value = '99' where key = 'serves'").await;
    let newer = empty.store().doctor(Timestamp::now()).await.unwrap_err();
    assert_eq!(newer.kind(), ErrorKind::SchemaTooNew, "{newer}");
}

/// INV-8: without a relay and with events it says so, and what to run.
#[tokio::test]
async fn no_relay_with_a_backlog_is_critical_and_says_what_to_run() {
    let Some(play) = healthy().await else { return };
    play.fresh.run("delete from {outbox_relay}").await;
    assert_eq!(illnesses(&play).await, [], "nothing waits for a relay");
    play.commit(&orders(1)).await;
    let found = illness(&play, "relay").await;
    assert_eq!(found.level, Level::Critical);
    // With destinations in the store, an address alone starts nothing.
    assert!(found.advice.expect("advice").ends_with("postrider relay --config FILE"));
}

/// F13, F35: numbers that lie behind a cursor, a sequence that draws ahead, and another server.
#[tokio::test]
async fn numbers_behind_a_cursor_are_critical() {
    for (damage, subject, code) in [
        ("select setval({text:outbox_seq}, 1)", "numbers", Code::Rewound),
        ("alter sequence {outbox_seq} cache 10", "numbers", Code::SequenceCached),
        ("update {outbox_cursor} set base_xmax = 1000000000000", "numbers", Code::Rewound),
        ("update {outbox_cursor} set floor = 0", "cursors", Code::Corrupt),
        ("update {outbox_cursor} set base = 'x'", "cursors", Code::Corrupt),
        ("update {outbox_meta} set value = '1' where key = 'hash'", "keys", Code::PartitionsMoved),
        ("update {outbox_meta} set value = '1' where key = 'database'", "copy", Code::StoreMoved),
    ] {
        let Some(play) = healthy().await else { return };
        play.fetch_all("a").await;
        play.commit(&orders(2)).await;
        play.settle_all("a", &[Act::Ack]).await;
        play.settle_all("unrouted", &[Act::Elsewhere]).await;
        play.fresh.run(damage).await;
        let found = illness(&play, subject).await;
        assert_eq!((found.level, found.code), (Level::Critical, Some(code)), "{damage}");
        let advice = found.advice.expect("advice");
        if (subject, code) == ("numbers", Code::Rewound) {
            // As it is typed: another schema is another store.
            let named = format!("?schema={}'", play.fresh.names.schema());
            assert!(advice.contains("repair sequence --store 'postgres://"), "{advice}");
            assert!(advice.ends_with(&named), "{advice}");
        }
    }
}

#[tokio::test]
async fn clocks_apart_are_said() {
    let Some(play) = healthy().await else { return };
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
        "drop trigger {name:outbox_append_only} on {outbox}",
        "alter table {outbox} disable trigger {name:outbox_rules}",
        "drop index {schema}.{name:outbox_waiting_state}",
    ] {
        let Some(play) = healthy().await else { return };
        play.fresh.run(damage).await;
        assert_eq!(illness(&play, "tables").await.level, Level::Critical, "{damage}");
    }
}

/// Rows that no table was made for, tables that nobody vacuums, and a user who may number his events.
#[tokio::test]
async fn what_a_database_owner_left_open_is_a_warning() {
    let Some(play) = healthy().await else { return };
    play.fresh.run("select setval({text:outbox_seq}, 90000000)").await;
    play.commit(&orders(2)).await;
    assert_eq!(illness(&play, "tables ahead").await.level, Level::Warning);
    assert!(illness(&play, "default table").await.message.starts_with("2 events"));
    play.fresh.run("alter table {outbox_cursor} set (autovacuum_enabled = off)").await;
    assert!(illness(&play, "autovacuum").await.message.contains("outbox_cursor"));
    play.fresh.run("grant insert on {outbox} to pg_monitor").await;
    let found = illness(&play, "numbering").await;
    assert!(found.message.starts_with("pg_monitor may insert"), "{found:?}");
}

/// A relay's role has what the page about roles says, and is not warned of for it; one that may write only the outbox
/// is a producer's.
#[tokio::test]
async fn a_relays_own_role_is_no_producer_that_numbers_its_events() {
    let Some(play) = healthy().await else { return };
    play.fresh
        .run(
            "grant usage on schema {schema} to pg_monitor;
            grant select, insert, update, delete on all tables in schema {schema} to pg_monitor",
        )
        .await;
    assert_eq!(illnesses(&play).await, []);
    play.fresh.run("revoke update on {outbox_cursor} from pg_monitor").await;
    let found = illness(&play, "numbering").await;
    assert!(found.message.starts_with("pg_monitor may insert"), "{found:?}");
}

/// Who may vouch for rows is told, and is no fault: users of the Rust crates are meant to.
#[tokio::test]
async fn who_may_vouch_for_rows_is_told() {
    let Some(play) = healthy().await else { return };
    let told = async || {
        let found = findings(&play).await.into_iter();
        let mut found = found.filter(|finding| finding.subject == "vouching");
        found.next().expect("the finding").message
    };
    assert_eq!(told().await, "every row is checked by the database");
    play.fresh.run("grant insert (id, payload) on {outbox} to pg_monitor").await;
    assert_eq!(told().await, "every row is checked by the database");
    play.fresh.run("grant insert (vouched) on {outbox} to pg_monitor").await;
    assert!(told().await.starts_with("pg_monitor may vouch for rows"));
    assert_eq!(illnesses(&play).await, []);
    play.fresh.run("revoke insert (id, payload, vouched) on {outbox} from pg_monitor").await;
}

#[tokio::test]
async fn what_a_person_has_to_decide_is_a_warning_with_its_command() {
    let Some(play) = healthy().await else { return };
    play.commit(&orders(1)).await;
    play.settle_all("a", &[Act::Dead]).await;
    let dead = illness(&play, "dead letters").await;
    assert_eq!((dead.level, dead.message.as_str()), (Level::Warning, "1 at a"));
    assert!(dead.advice.expect("advice").starts_with("postrider dead ls"));
    play.commit(&orders(2)).await;
    play.fresh
        .run(
            "insert into {outbox_endpoint} (destination, topic, disabled_at)
            values ('a', 'gone', now())",
        )
        .await;
    let endpoint = illness(&play, "disabled endpoints").await;
    assert!(endpoint.advice.expect("advice").contains("postrider destinations enable a 'gone'"));
    play.store.set_destination(&id("a"), DestinationState::Paused, &note()).await.unwrap();
    let paused = illness(&play, "pauses").await;
    assert!(paused.advice.expect("advice").starts_with("postrider destinations resume a"));
    play.fresh.run("update {outbox_lease} set paused = true, takeovers = 3").await;
    assert!(illness(&play, "paused partitions").await.message.contains("partition 0"));
    illness(&play, "deaths").await;
    play.fresh.run("update {outbox_relay} set current = false").await;
    let outdated = illness(&play, "definitions").await;
    assert_eq!(outdated.code, Some(Code::DefinitionOutdated));
    play.fresh
        .run(
            "insert into {outbox_request} (verb, who, total) values ('redrive', 'w', 1);
            delete from {outbox_relay}",
        )
        .await;
    illness(&play, "requests").await;
    play.store.release(&play.leases).await.unwrap();
}

#[tokio::test]
async fn claims_left_behind_are_found() {
    let Some(play) = healthy().await else { return };
    let claim = async |id: u8, expires: &str| {
        let insert = format!(
            "insert into {{inbox}} (source, event_id, handler, event_type, status, payload_hash, expires_at)
            values ('/shop', '00000000-0000-0000-0000-00000000000{id}', 'mail', 't', 'claimed',
                decode(repeat('00', 32), 'hex'), {expires});
            insert into {{inbox_horizon}} (handler, horizon) values ('h{id}', interval '35 days')"
        );
        play.fresh.run(&insert).await;
    };
    claim(1, "'epoch'").await;
    claim(2, "now()").await;
    assert_eq!(illnesses(&play).await, [], "one was let go, and one ended just now");
    claim(3, "now() - interval '2 hours'").await;
    assert!(illness(&play, "stuck claims").await.message.starts_with("1 claims"));
    play.fresh.run("delete from {inbox_horizon}").await;
    let found = illness(&play, "dedup horizon").await;
    assert_eq!((found.level, found.code), (Level::Warning, Some(Code::HorizonShort)));
}

/// R121: a handler that has done something and not said for how long its messages may come again is named, also
/// beside one that has.
#[tokio::test]
async fn a_handler_without_a_horizon_is_named() {
    let Some(play) = healthy().await else { return };
    play.fresh
        .run(
            "insert into {inbox} (source, event_id, handler, event_type, status, payload_hash, processed_at)
            select '/shop', gen_random_uuid(), h, 't', 'processed', decode(repeat('00', 32), 'hex'), now()
            from unnest(array['billing', 'mail']) h;
            insert into {inbox_horizon} (handler, horizon) values ('billing', interval '35 days')",
        )
        .await;
    let found = illness(&play, "dedup horizon").await;
    assert_eq!((found.level, found.code), (Level::Warning, Some(Code::HorizonShort)));
    assert!(found.message.contains("those of mail for 35 days"), "{found:?}");
    play.fresh
        .run("insert into {inbox_horizon} (handler, horizon) values ('mail', interval '1 day')")
        .await;
    assert_eq!(illnesses(&play).await, []);
}

/// A user who lacks a privilege is told which.
#[tokio::test]
async fn a_missing_grant_is_critical() {
    let Some(play) = healthy().await else { return };
    let role = format!("r{}", &play.fresh.names.schema()[1..]);
    play.fresh
        .run(&format!(
            "create role {role} login;
            grant usage on schema {{schema}} to {role};
            grant select, insert, update, delete on all tables in schema {{schema}} to {role};
            grant usage, select on all sequences in schema {{schema}} to {role};
            revoke update on {{outbox_cursor}} from {role}"
        ))
        .await;
    let url = play.fresh.url.replace("postgres@", &format!("{role}@"));
    let mut options = play.fresh.options();
    options.names = play.fresh.names.clone();
    let store = PostgresStore::with(&url, options).unwrap();
    let findings = store.doctor(Timestamp::now()).await.unwrap();
    let found = findings.iter().find(|finding| finding.subject == "grants").unwrap();
    assert_eq!((found.level, found.code), (Level::Critical, Some(Code::Unauthorized)));
    assert!(found.message.contains("UPDATE on outbox_cursor"), "{found:?}");
    assert!(found.message.contains("EXECUTE on "), "{found:?}");
    let advice = found.advice.as_deref().unwrap_or_default();
    assert!(advice.contains("execute on all functions in schema"), "{advice}");
    let granted = "grant update on {outbox_cursor} to ROLE; \
        grant execute on all functions in schema {schema} to ROLE";
    play.fresh.run(&granted.replace("ROLE", &role)).await;
    let findings = store.doctor(Timestamp::now()).await.unwrap();
    let found = findings.iter().find(|finding| finding.subject == "grants").unwrap();
    assert_eq!(found.level, Level::Good, "{found:?}");
    sees_others_with_a_grant_alone(&play, &store, &role).await;
    play.fresh.run(&format!("drop owned by {role}; drop role {role}")).await;
}

/// F7: a user who may not look into others' sessions is told so, with the grant that changes it, as long as no
/// transaction is found that is open for long: on a server that tests share another one may be.
async fn sees_others_with_a_grant_alone(play: &Play, store: &PostgresStore, role: &str) {
    let _other = play.fresh.connect().await;
    let told = async || {
        let mut findings = store.doctor(Timestamp::now()).await.unwrap().into_iter();
        findings.find(|finding| finding.subject == "old transactions").unwrap()
    };
    let found = told().await;
    if found.code != Some(Code::CleanupHeld) {
        assert_eq!((found.level, found.code), (Level::Warning, Some(Code::Unexamined)));
        assert!(found.message.contains("sessions of others cannot be looked into"), "{found:?}");
        assert!(found.advice.unwrap().contains("grant pg_read_all_stats"));
    }
    play.fresh.run(&format!("grant pg_read_all_stats to {role}")).await;
    let found = told().await;
    assert_ne!(found.code, Some(Code::Unexamined), "{found:?}");
}
