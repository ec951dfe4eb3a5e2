//! What keeps a mark from a row: it is found out before anything is sent, and nothing is sent again without end.

use postrider_core::source::OutboxSource;
use postrider_core::waiting::{Passed, SettlementPart};
use postrider_core::{Error, ErrorKind};
use postrider_postgres::OwnTable;

use super::relay::{Relay, event, ids};
use super::table::{Layout, Own};
use crate::support::{Fresh, id};

/// A trigger before each update, or deletion, that does this.
fn trigger(layout: Layout, body: &str) -> String {
    let verb = if layout == Layout::Debezium { "delete" } else { "update" };
    format!(
        "create function {{schema}}.kept() returns trigger language plpgsql as $$ begin {body} end $$;
        create trigger kept before {verb} on {{schema}}.\"own events\"
            for each row execute function {{schema}}.kept()"
    )
}

const NO_TRIGGER: &str = "drop function {schema}.kept() cascade";

async fn refused(relay: &Relay) -> Error {
    let cursor = relay.load().await;
    let error = relay.fetch(cursor, "a").await.expect_err("no row can be marked");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    error
}

/// INV-1, INV-3: a table that lets no row be marked is found out before the first is sent, however it does that; and goes on
/// when it does no more.
#[tokio::test]
async fn what_cannot_be_marked_is_not_sent() {
    for (layout, body) in [
        (Layout::PublishedAt, "return null;"),
        (Layout::PublishedAt, "new.published_at := null; return new;"),
        (Layout::PublishedAt, "raise exception 'stays pending';"),
        (Layout::Status, "return null;"),
        (Layout::Debezium, "return null;"),
    ] {
        let Some(own) = Own::new(layout).await else { return };
        let events = [event("1", 1), event("2", 1)];
        own.commit(&events).await.expect("commit");
        own.fresh.run(&trigger(layout, body)).await;
        let relay = Relay::of(own.source()).await;
        let error = refused(&relay).await;
        assert!(error.to_string().contains("othing was sent"), "{body}: {error}");
        assert!(error.to_string().contains("stay"), "{body}: {error}");
        assert_eq!(own.layout.pending(&own.fresh).await, 2);
        own.fresh.run(NO_TRIGGER).await;
        assert_eq!(relay.publish().await, ids(&events), "{body}");
        assert_eq!(own.layout.pending(&own.fresh).await, 0);
    }
}

/// The column takes no such value, which only the table's own check says.
#[tokio::test]
async fn a_mark_that_a_constraint_refuses_is_found_out_before_anything_is_sent() {
    let Some(own) = Own::new(Layout::Status).await else { return };
    let check = "alter table {schema}.\"own events\" add constraint known check (status in ('pending', 'sent'))";
    own.fresh.run(check).await;
    own.commit(&[event("1", 1)]).await.expect("commit");
    let relay = Relay::of(own.source()).await;
    let error = refused(&relay).await;
    assert!(error.to_string().contains("\"known\""), "{error}");
    own.fresh
        .run(
            "alter table {schema}.\"own events\" drop constraint known, drop column status;
            alter table {schema}.\"own events\" add column sent boolean not null default false,
                add column status text generated always as ('pending') stored",
        )
        .await;
    let error = own.source().open().await.expect_err("nobody writes it");
    assert!(error.to_string().contains("computed"), "{error}");
}

/// INV-3: what begins to keep marks off while the relay works has the last rows sent once, and stops it.
#[tokio::test]
async fn what_cannot_be_marked_any_more_is_not_sent_again() {
    for layout in [Layout::PublishedAt, Layout::Status, Layout::Debezium] {
        let Some(own) = Own::new(layout).await else { return };
        own.commit(&[event("1", 1), event("2", 1)]).await.expect("commit");
        let relay = Relay::of(own.source()).await;
        let mut after = relay.load().await;
        let rows = relay.fetch(after.clone(), "a").await.expect("fetch");
        own.fresh.run(&trigger(layout, "return null;")).await;
        let mut part = SettlementPart::new(id("a"));
        part.passed = rows.iter().map(|row| (row.row, Passed::Acked)).collect();
        relay.settle(part).await.expect("what else there is is written");
        after = rows.last().map_or(after, |row| row.cursor.clone());
        own.commit(&[event("3", 1)]).await.expect("commit");
        let error = relay.fetch(after.clone(), "a").await.expect_err("they stay pending");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("rows=2"), "{error}");
        refused(&relay).await;
        own.fresh.run(NO_TRIGGER).await;
        assert_eq!(
            relay.publish().await.len(),
            1,
            "{layout:?}: what was sent is marked, and not sent again"
        );
        assert_eq!(own.layout.pending(&own.fresh).await, 0);
    }
}

/// INV-5: a row whose mark the table refuses keeps no other from being marked, and is not sent again while it is refused; what
/// the table said is told.
#[tokio::test]
async fn a_row_that_cannot_be_marked_holds_back_no_mark() {
    for layout in [Layout::PublishedAt, Layout::Status, Layout::Debezium] {
        let Some(own) = Own::new(layout).await else { return };
        let events: Vec<_> = (1..=9).map(|key| event(&key.to_string(), 1)).collect();
        own.commit(&events).await.expect("commit");
        let relay = Relay::of(own.source()).await;
        let mut after = relay.load().await;
        let rows = relay.fetch(after.clone(), "a").await.expect("fetch");
        let body = format!(
            "if old::text like '%{}%' then raise exception 'the period is closed'; end if;
            if tg_op = 'DELETE' then return old; end if; return new;",
            rows[4].row.id
        );
        own.fresh.run(&trigger(layout, &body)).await;
        let mut part = SettlementPart::new(id("a"));
        part.passed = rows.iter().map(|row| (row.row, Passed::Acked)).collect();
        relay.settle(part).await.expect("all others are marked");
        assert_eq!(own.layout.pending(&own.fresh).await, 1, "{layout:?}");
        after = rows.last().map_or(after, |row| row.cursor.clone());
        let error = relay.fetch(after, "a").await.expect_err("it stays pending");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("the period is closed"), "{error}");
        own.fresh.run(NO_TRIGGER).await;
        assert_eq!(relay.publish().await.len(), 0, "{layout:?}: it was sent, and is marked now");
        assert_eq!(own.layout.pending(&own.fresh).await, 0);
    }
}

/// A role of the test's own, dropped at its end.
struct Role<'a>(&'a Fresh, String);

impl Role<'_> {
    async fn new<'a>(fresh: &'a Fresh, rights: &str) -> Role<'a> {
        let name = format!("r{}", fresh.names.schema());
        fresh.run(&format!("create role {name} login {rights}")).await;
        Role(fresh, name)
    }

    fn table(&self, own: &Own) -> OwnTable {
        let url = own.fresh.url.replace("postgres@", &format!("{}@", self.1));
        OwnTable::with(&url, own.fresh.options(), own.mapping()).expect("a mapping")
    }

    async fn drop(self) {
        self.0.run(&format!("drop owned by {0}; drop role {0}", self.1)).await;
    }
}

/// Row security that hides nothing from the relay, and keeps the mark from its rows, is found out like a trigger; a person is
/// told that it may hide rows.
#[tokio::test]
async fn a_policy_that_keeps_marks_off_is_found_out() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    own.commit(&[event("1", 1)]).await.expect("commit");
    let role = Role::new(&own.fresh, "").await;
    own.fresh
        .run(
            &"grant usage on schema {schema} to ROLE;
            grant select, insert, update, delete on all tables in schema {schema} to ROLE;
            grant usage, select on all sequences in schema {schema} to ROLE;
            grant execute on all functions in schema {schema} to ROLE;
            alter table {schema}.\"own events\" enable row level security;
            create policy seen on {schema}.\"own events\" for select to ROLE using (true);
            create policy marked on {schema}.\"own events\" for update to ROLE using (false)"
                .replace("ROLE", &role.1),
        )
        .await;
    let relay = Relay::of(role.table(&own)).await;
    let error = refused(&relay).await;
    assert!(error.to_string().contains("policy of row security"), "{error}");
    let found = relay.table.findings().await.expect("findings");
    assert!(found.iter().any(|finding| finding.message.contains("row security")), "{found:?}");
    own.fresh.run("alter policy marked on {schema}.\"own events\" using (true)").await;
    assert_eq!(relay.publish().await.len(), 1);
    assert_eq!(own.layout.pending(&own.fresh).await, 0);
    drop(relay);
    role.drop().await;
}

/// The application's triggers find their tables as they do for everybody; a time without a zone is written in UTC, as it is
/// read, wherever the session is.
#[tokio::test]
async fn triggers_find_what_they_always_find() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    own.commit(&[event("1", 1), event("2", 1)]).await.expect("commit");
    let role = Role::new(&own.fresh, "superuser").await;
    own.fresh
        .run(
            &"alter role ROLE set search_path = {schema};
            alter role ROLE set timezone = 'Asia/Tokyo';
            alter table {schema}.\"own events\" alter published_at type timestamp;
            create table {schema}.audit_log (seq bigint);
            create function {schema}.audited() returns trigger language plpgsql as
                $$ begin insert into audit_log values (new.seq); return null; end $$;
            create trigger audited after update on {schema}.\"own events\"
                for each row execute function {schema}.audited()"
                .replace("ROLE", &role.1),
        )
        .await;
    let relay = Relay::of(role.table(&own)).await;
    assert_eq!(relay.publish().await.len(), 2);
    assert_eq!(own.fresh.number("select count(*) from {schema}.audit_log").await, 2);
    let now = "select count(*) from {schema}.\"own events\"
        where abs(extract(epoch from (now() at time zone 'UTC') - published_at)) < 3600";
    assert_eq!(own.fresh.number(now).await, 2);
    drop(relay);
    role.drop().await;
}

/// A column that is renamed under a running relay is the application's affair, and is said to be.
#[tokio::test]
async fn a_column_that_went_is_not_taken_for_one_of_ours() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    own.commit(&[event("1", 1)]).await.expect("commit");
    let relay = Relay::of(own.source()).await;
    let cursor = relay.load().await;
    let row = relay.fetch(cursor.clone(), "a").await.expect("fetch").remove(0);
    own.fresh.run("alter table {schema}.\"own events\" rename published_at to sent_at").await;
    let mut part = SettlementPart::new(id("a"));
    part.passed = vec![(row.row, Passed::Acked)];
    for error in [
        relay.settle(part.clone()).await.expect_err("it went"),
        relay.fetch(cursor, "a").await.expect_err("it went"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("published_at"), "{error}");
    }
    own.fresh.run("alter table {schema}.\"own events\" rename sent_at to published_at").await;
    relay.settle(part).await.expect("settle");
    assert_eq!(own.layout.pending(&own.fresh).await, 0);
}
