//! Events in transactions of the driver.

use postrider_core::{ErrorKind, Timestamp};
use postrider_postgres::Names;
use postrider_postgres_sea_orm::{Outbox, Settings};
use sea_orm::{
    ConnectionTrait, Database, DatabaseConnection, DbBackend, Statement, TransactionTrait,
};

use crate::{event, fresh};

/// R001, R002, R010, R023, R123, INV-1: what is rolled back or refused leaves nothing, what commits is there in
/// its order, and a refusal of ours leaves the transaction good.
#[tokio::test]
async fn events_commit_with_the_transaction() {
    let Some((url, names)) = fresh().await else { return };
    let db = Database::connect(&url).await.unwrap();
    for settings in
        [Settings::named(names.clone()), Settings::named(names.clone()).serialize_keys()]
    {
        play(&db, &names, &Outbox::from(settings)).await;
    }
    let drop = names.render("drop schema {schema} cascade");
    db.execute_unprepared(&drop).await.unwrap();
}

async fn play(db: &DatabaseConnection, names: &Names, outbox: &Outbox) {
    let tx = db.begin().await.unwrap();
    outbox.enqueue(&tx, &event(1)).await.unwrap();
    tx.rollback().await.unwrap();
    let tx = db.begin().await.unwrap();
    let refused = outbox.enqueue(&tx, &event(1).version(0)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    outbox.enqueue(&tx, &event(2)).await.unwrap();
    let later = |n| event(n).deliver_after(Timestamp::now());
    outbox.enqueue(&tx, &later(6)).await.unwrap();
    let bytes = event(4).bytes(vec![0, 255], "a/b").ordered_by("k").source("/s");
    let many = [event(3), bytes, later(9), event(5)];
    assert_eq!(outbox.enqueue_many(&tx, &many).await.unwrap().len(), 4);
    outbox.enqueue_many(&tx, &[event(7), event(8)]).await.unwrap();
    outbox.enqueue_many(&tx, &[]).await.unwrap();
    let full = Outbox::from(Settings::named(names.clone()).watermark(1));
    let refused = full.enqueue(&tx, &event(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Backpressure, "{refused}");
    tx.execute_unprepared(&small(names)).await.unwrap();
    let careful = Outbox::from(Settings::named(names.clone()).preflight());
    let large = event(1).bytes(vec![0; 1_001], "a/b");
    let refused = careful.enqueue(&tx, &large).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    let refused = careful.enqueue_many(&tx, [&event(1), &large]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    tx.execute_unprepared(&names.render("delete from {outbox_destination}")).await.unwrap();
    tx.commit().await.unwrap();
    let count = "select string_agg(aggregate_id, ' ' order by seq), \
        count(*) filter (where payload_bytes = '\\x00ff' and key = 'k'), \
        (select count(*) from {outbox_scheduled}) from {outbox} \
        where tenant = 'acme' and headers->>'note' = 'grüße {\"a\", \\}, NULL'";
    let query = Statement::from_string(DbBackend::Postgres, names.render(count));
    let row = db.query_one_raw(query).await.unwrap().unwrap();
    assert_eq!(row.try_get_by_index::<String>(0).unwrap(), "2 3 4 5 7 8");
    let number = |column| row.try_get_by_index::<i64>(column).unwrap();
    assert_eq!((number(1), number(2)), (1, 2));
    // What only the server refuses has the kind of its state.
    let absent = Outbox::from(Settings::named(Names::new("nowhere", "a", "b").unwrap()));
    let tx = db.begin().await.unwrap();
    let refused = absent.enqueue(&tx, &event(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SchemaMissing, "{refused}");
    tx.rollback().await.unwrap();
    let empty = names.render("delete from {outbox}; delete from {outbox_scheduled}");
    db.execute_unprepared(&empty).await.unwrap();
}

/// Adds a destination that takes a payload of 1,000 bytes at most.
fn small(names: &Names) -> String {
    let definition = r#"{"id":"small","kind":"queue","routes":[{"topic":"x"}],"limits":{"payload_bytes_max":1000}}"#;
    let insert = "insert into {outbox_destination} (id, kind, definition, version) \
        values ('small', 'queue', '$', 1)";
    names.render(insert).replace('$', definition)
}
