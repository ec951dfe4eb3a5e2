//! Events in transactions of the driver.

use postrider_core::{ErrorKind, Timestamp};
use postrider_postgres::Names;
use postrider_postgres_sqlx::{Outbox, Settings};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::{event, fresh};

/// R001, R002, R010, R023, R123, INV-1: what is rolled back or refused leaves nothing, what commits is there in
/// its order, and a refusal of ours leaves the transaction good.
#[tokio::test]
async fn events_commit_with_the_transaction() {
    let Some((url, names)) = fresh().await else { return };
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for settings in
        [Settings::named(names.clone()), Settings::named(names.clone()).serialize_keys()]
    {
        play(&mut connection, &names, &Outbox::from(settings)).await;
    }
    let drop = names.render("drop schema {schema} cascade");
    sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await.unwrap();
}

async fn play(connection: &mut PgConnection, names: &Names, outbox: &Outbox) {
    let mut tx = connection.begin().await.unwrap();
    outbox.enqueue(&mut tx, &event(1)).await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let refused = outbox.enqueue(&mut tx, &event(1).version(0)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    outbox.enqueue(&mut tx, &event(2)).await.unwrap();
    let later = |n| event(n).deliver_after(Timestamp::now());
    outbox.enqueue(&mut tx, &later(6)).await.unwrap();
    let bytes = event(4).bytes(vec![0, 255], "a/b").ordered_by("k").source("/s");
    let many = [event(3), bytes, later(9), event(5)];
    assert_eq!(outbox.enqueue_many(&mut tx, &many).await.unwrap().len(), 4);
    outbox.enqueue_many(&mut tx, &[event(7), event(8)]).await.unwrap();
    outbox.enqueue_many(&mut tx, &[]).await.unwrap();
    let full = Outbox::from(Settings::named(names.clone()).watermark(1));
    let refused = full.enqueue(&mut tx, &event(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Backpressure, "{refused}");
    sqlx::raw_sql(AssertSqlSafe(small(names))).execute(&mut *tx).await.unwrap();
    let careful = Outbox::from(Settings::named(names.clone()).preflight());
    let large = event(1).bytes(vec![0; 1_001], "a/b");
    let refused = careful.enqueue(&mut tx, &large).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    let refused = careful.enqueue_many(&mut tx, [&event(1), &large]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    let gone = names.render("delete from {outbox_destination}");
    sqlx::raw_sql(AssertSqlSafe(gone)).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    let count = "select string_agg(aggregate_id, ' ' order by seq), \
        count(*) filter (where payload_bytes = '\\x00ff'), \
        (select count(*) from {outbox_scheduled}) from {outbox} where tenant = 'acme'";
    let query = sqlx::query(AssertSqlSafe(names.render(count)));
    let row = query.fetch_one(&mut *connection).await.unwrap();
    assert_eq!(row.get::<String, _>(0), "2 3 4 5 7 8");
    assert_eq!((row.get::<i64, _>(1), row.get::<i64, _>(2)), (1, 2));
    // What only the server refuses has the kind of its state.
    let absent = Outbox::from(Settings::named(Names::new("nowhere", "a", "b").unwrap()));
    let mut tx = connection.begin().await.unwrap();
    let refused = absent.enqueue(&mut tx, &event(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SchemaMissing, "{refused}");
    tx.rollback().await.unwrap();
    let empty = names.render("delete from {outbox}; delete from {outbox_scheduled}");
    sqlx::raw_sql(AssertSqlSafe(empty)).execute(connection).await.unwrap();
}

/// Adds a destination that takes a payload of 1,000 bytes at most.
fn small(names: &Names) -> String {
    let definition = r#"{"id":"small","kind":"queue","routes":[{"topic":"x"}],"limits":{"payload_bytes_max":1000}}"#;
    let insert = "insert into {outbox_destination} (id, kind, definition, version) \
        values ('small', 'queue', '$', 1)";
    names.render(insert).replace('$', definition)
}
