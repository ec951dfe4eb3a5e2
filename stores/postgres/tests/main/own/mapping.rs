//! A mapping is checked against the table, and nothing in it is more than a name.

use postrider_core::source::OutboxSource;
use postrider_core::{Error, ErrorKind, NewEvent};
use postrider_postgres::{Mapping, OwnTable, Settled, init};

use super::relay::Relay;
use super::table::{Layout, Own};

async fn refused(own: &Own, change: impl FnOnce(&mut Mapping)) -> Error {
    let mut mapping = own.mapping();
    change(&mut mapping);
    own.with(mapping).open().await.expect_err("it does not fit")
}

/// F31: a mistake in the mapping is refused at the start, with what was meant.
#[tokio::test]
async fn a_column_that_is_not_there_is_refused_with_a_suggestion() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    let near = refused(&own, |mapping| mapping.payload = Some("payloads".to_owned())).await;
    assert_eq!(near.kind(), ErrorKind::Config, "{near}");
    assert!(near.to_string().contains("did you mean `payload`?"), "{near}");
    assert!(near.to_string().contains("key=payload"), "{near}");
    let far = refused(&own, |mapping| mapping.tenant = Some("xyz".to_owned())).await;
    assert!(far.to_string().contains("it has seq, id, source"), "{far}");
    let table = refused(&own, |mapping| mapping.table = mapping.table.replace("events", "event"));
    let table = table.await.to_string();
    assert!(table.contains(&format!("did you mean `{}.own events`?", own.fresh.names.schema())));
    let kind = refused(&own, |mapping| mapping.headers = Some("payload".to_owned())).await;
    assert!(kind.to_string().contains("not jsonb"), "{kind}");
}

/// INV-1: an order that may be null, or that rows share, would hide rows.
#[tokio::test]
async fn an_order_that_would_hide_rows_is_refused() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    let add = "alter table {schema}.\"own events\" add column place bigint, add column n int not null default 1";
    own.fresh.run(add).await;
    for name in ["place", "n"] {
        let error = refused(&own, |mapping| mapping.order = Some(name.to_owned())).await;
        assert!(error.to_string().contains("would hide rows"), "{error}");
        assert!(error.to_string().contains("`order = \"-\"`"), "{error}");
    }
    let error = refused(&own, |mapping| {
        (mapping.created_at, mapping.occurred_at) = (None, None);
    });
    assert!(error.await.to_string().contains("never changes"));
    let error = refused(&own, |mapping| mapping.id = "the key".to_owned()).await;
    assert!(error.to_string().contains("unique and never null"), "{error}");
}

/// F31: what a status cannot say is refused at the start. At the mark it would be found out when the events were sent, and
/// at each start after that.
#[tokio::test]
async fn a_status_that_its_column_cannot_say_is_refused() {
    let Some(own) = Own::new(Layout::Status).await else { return };
    let types = "create type {schema}.state as enum ('pending', 'sent');
        create domain {schema}.word as varchar(8);
        create domain {schema}.known as {schema}.state";
    own.fresh.run(types).await;
    for (of, pending, published, fits) in [
        ("varchar(8)", "pending", "published", false),
        ("varchar(8)", "pending", "sent", true),
        ("char(9)", "pending", "published", true),
        ("{schema}.word", "pending", "published", false),
        ("{schema}.state", "pending", "published", false),
        ("{schema}.state", "Pending", "sent", false),
        ("{schema}.state", "pending", "sent", true),
        ("{schema}.known", "pending", "published", false),
        ("varchar", "pending", "published", true),
    ] {
        let alter = format!(
            "alter table {{schema}}.\"own events\" alter status drop default;
            alter table {{schema}}.\"own events\" alter status type {of} using status::text::{of}"
        );
        own.fresh.run(&alter).await;
        let mut mapping = own.mapping();
        let (column, value) =
            ("status".to_owned(), if pending == "pending" { published } else { pending });
        let (pending, published) = (pending.to_owned(), published.to_owned());
        mapping.settled = Settled::Status { column, pending, published };
        let opened = own.with(mapping).open().await;
        assert_eq!(opened.is_ok(), fits, "{of} {value}: {opened:?}");
        if let Err(error) = opened {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.to_string().contains(&format!("value={value}")), "{error}");
        }
    }
}

/// A table and columns whose names would end a statement are names; what is none is refused.
#[tokio::test]
async fn a_name_is_never_more_than_a_name() {
    let Some(own) = Own::new(Layout::Status).await else { return };
    let evil = "x\"; drop table outbox; --";
    let quoted = evil.replace('"', "\"\"");
    own.fresh
        .run(&format!(
            "alter table {{schema}}.\"own events\" rename to \"{quoted}\";
            alter table {{schema}}.\"{quoted}\" rename column status to \"$1 or '1'='1\";
            alter table {{schema}}.\"{quoted}\" rename column payload to \"{quoted}\";
            insert into {{schema}}.\"{quoted}\" (event_id, aggregate_type, aggregate_id, event_type, \"{quoted}\")
            values (gen_random_uuid(), 'order', '1', 'order.placed', '{{}}')"
        ))
        .await;
    let mut mapping = own.mapping();
    mapping.table = format!("{}.{evil}", own.fresh.names.schema());
    mapping.payload = Some(evil.to_owned());
    mapping.settled = Settled::Status {
        column: "$1 or '1'='1".to_owned(),
        pending: "pending".to_owned(),
        published: "it's; drop table outbox".to_owned(),
    };
    let relay = Relay::of(own.with(mapping)).await;
    assert_eq!(relay.publish().await.len(), 1);
    assert_eq!(own.fresh.number("select count(*) from {outbox}").await, 0, "it is there");
    let marked = format!(
        "select count(*) from {{schema}}.\"{quoted}\" where \"$1 or '1'='1\" = 'it''s; drop table outbox'"
    );
    assert_eq!(own.fresh.number(&marked).await, 1);
    for name in ["{outbox}", "a\0b", ""] {
        let error = OwnTable::new(&own.fresh.url, Mapping::published_at(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{name:?}");
    }
}

/// R020: the index of what is pending is offered as a statement, missed as long as it is not there, and used when it is.
#[tokio::test]
async fn the_index_is_offered_and_not_imposed() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    let table = own.source();
    let found = table.findings().await.expect("findings");
    assert_eq!(found.len(), 1, "{found:?}");
    let offer = OwnTable::index(&own.mapping()).expect("rows are marked");
    assert!(offer.contains("where \"published_at\" is null"), "{offer}");
    assert!(found[0].advice.as_deref().is_some_and(|advice| offer.contains(advice)), "{found:?}");
    own.fresh.connect().await.simple_query(&offer).await.expect("it runs");
    assert_eq!(table.findings().await.expect("findings"), []);
    let Some(own) = Own::new(Layout::Debezium).await else { return };
    let found = own.source().findings().await.expect("findings");
    assert!(found[0].message.contains("no number"), "{found:?}");
    assert_eq!(OwnTable::index(&own.mapping()), None);
}

/// An identity that is no UUID gives the event the same id at every reading.
#[tokio::test]
async fn an_id_is_derived_where_it_is_no_uuid() {
    let Some(own) = Own::new(Layout::Status).await else { return };
    own.commit(&[NewEvent::new("order", "1", "order.placed")]).await.expect("commit");
    let mut mapping = own.mapping();
    mapping.id = "id".to_owned();
    let first = Relay::of(own.with(mapping.clone())).await.read().await;
    let second = Relay::of(own.with(mapping.clone())).await.read().await;
    assert_eq!((first.len(), first[0].row), (1, second[0].row));
    assert_ne!(first[0].row.id.as_u128(), 0);
    let relay = Relay::of(own.with(mapping)).await;
    assert_eq!(relay.publish().await.len(), 1);
    assert_eq!(own.layout.pending(&own.fresh).await, 0, "it is marked by what it was read by");
}

/// INV-1: tables of many services have one name, and number their rows from one; what is derived of it differs, or
/// one would be taken for the other where they meet.
#[tokio::test]
async fn a_derived_id_is_of_one_store() {
    let Some(own) = Own::new(Layout::Status).await else { return };
    own.commit(&[NewEvent::new("order", "1", "order.placed")]).await.expect("commit");
    let mut mapping = own.mapping();
    mapping.id = "id".to_owned();
    let Some(other) = crate::support::Fresh::made(1).await else { return };
    let beside = OwnTable::with(&other.url, other.options(), mapping.clone()).expect("a mapping");
    let mine = Relay::of(own.with(mapping)).await.read().await.remove(0).row;
    let theirs = Relay::of(beside).await.read().await.remove(0).row;
    assert_eq!(mine.seq, theirs.seq);
    assert_ne!(mine.id, theirs.id);
}

/// A table is one partition, and has one destination: a row has one mark.
#[tokio::test]
async fn what_one_mark_cannot_say_is_refused() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    let two = [crate::support::destination("a"), crate::support::destination("b")];
    let error = own.source().register(&two).await.expect_err("two destinations");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let relay = Relay::of(own.source()).await;
    let change = postrider_core::source::DefinitionChange {
        put: vec![(two[1].clone(), postrider_core::Start::Now)],
        ..Default::default()
    };
    assert_eq!(relay.table.apply(&change).await.unwrap_err().kind(), ErrorKind::Config);
    let replace =
        postrider_core::source::DefinitionChange { remove: vec![two[0].id.clone()], ..change };
    relay.table.apply(&replace).await.expect("one for another");
    let Some(other) = crate::support::Fresh::empty() else { return };
    init(&other.url, &other.setup(2)).await.expect("init");
    let many = OwnTable::with(&other.url, other.options(), own.mapping()).expect("a mapping");
    let error = many.open().await.expect_err("two partitions");
    assert!(error.to_string().contains("one partition"), "{error}");
}
