//! Events in transactions of the driver.

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use postrider_core::{ErrorKind, Result, Timestamp};
use postrider_postgres::Names;
use postrider_postgres_diesel::{Outbox, Settings};

use crate::{Failed, event, fresh};

#[derive(QueryableByName)]
struct Written {
    #[diesel(sql_type = Text)]
    ids: String,
    #[diesel(sql_type = BigInt)]
    bytes: i64,
    #[diesel(sql_type = BigInt)]
    later: i64,
}

/// R001, R002, R003, R010, R023, R123, INV-1: what is rolled back or refused leaves nothing, what commits is there
/// in its order, a refusal of ours leaves the transaction good, and without a transaction nothing is taken.
#[tokio::test]
async fn events_commit_with_the_transaction() {
    let Some((url, names)) = fresh().await else { return };
    let mut connection = AsyncPgConnection::establish(&url).await.unwrap();
    for settings in
        [Settings::named(names.clone()), Settings::named(names.clone()).serialize_keys()]
    {
        play(&mut connection, &names, &Outbox::from(settings)).await;
    }
    let drop = names.render("drop schema {schema} cascade");
    connection.batch_execute(&drop).await.unwrap();
}

async fn play(connection: &mut AsyncPgConnection, names: &Names, outbox: &Outbox) {
    let beside = outbox.enqueue_async(connection, &event(1)).await.unwrap_err();
    assert_eq!(beside.kind(), ErrorKind::Invalid, "{beside}");
    assert!(beside.to_string().contains("no transaction is open"), "{beside}");
    let beside = outbox.enqueue_many_async(connection, &[event(1)]).await.unwrap_err();
    assert_eq!(beside.kind(), ErrorKind::Invalid, "{beside}");
    let rolled_back: std::result::Result<(), Failed> = connection
        .transaction(async |tx| {
            outbox.enqueue_async(tx, &event(1)).await?;
            Err(Failed("the application".to_owned()))
        })
        .await;
    rolled_back.unwrap_err();
    let committed: std::result::Result<(), Failed> = connection
        .transaction(async |tx| {
            let refused = outbox.enqueue_async(tx, &event(1).version(0)).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
            stage(tx, outbox).await?;
            let full = Outbox::from(Settings::named(names.clone()).watermark(1));
            let refused = full.enqueue_async(tx, &event(1)).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Backpressure, "{refused}");
            tx.batch_execute(&small(names)).await?;
            let careful = Outbox::from(Settings::named(names.clone()).preflight());
            let large = event(1).bytes(vec![0; 1_001], "a/b");
            let refused = careful.enqueue_async(tx, &large).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
            let refused = careful.enqueue_many_async(tx, [&event(1), &large]).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
            tx.batch_execute(&names.render("delete from {outbox_destination}")).await?;
            Ok(())
        })
        .await;
    committed.unwrap();
    let count = "select string_agg(aggregate_id, ' ' order by seq) as ids, \
        count(*) filter (where payload_bytes = '\\x00ff') as bytes, \
        (select count(*) from {outbox_scheduled}) as later from {outbox} where tenant = 'acme'";
    let written: Written =
        diesel::sql_query(names.render(count)).get_result(connection).await.unwrap();
    assert_eq!((&*written.ids, written.bytes, written.later), ("2 3 4 5 7 8", 1, 2));
    let empty = names.render("delete from {outbox}; delete from {outbox_scheduled}");
    connection.batch_execute(&empty).await.unwrap();
}

async fn stage(tx: &mut AsyncPgConnection, outbox: &Outbox) -> Result<()> {
    outbox.enqueue_async(tx, &event(2)).await?;
    let later = |n| event(n).deliver_after(Timestamp::now());
    outbox.enqueue_async(tx, &later(6)).await?;
    let bytes = event(4).bytes(vec![0, 255], "a/b").ordered_by("k").source("/s");
    let many = [event(3), bytes, later(9), event(5)];
    assert_eq!(outbox.enqueue_many_async(tx, &many).await?.len(), 4);
    outbox.enqueue_many_async(tx, &[event(7), event(8)]).await?;
    outbox.enqueue_many_async(tx, &[]).await?;
    Ok(())
}

/// Adds a destination that takes a payload of 1,000 bytes at most.
pub(crate) fn small(names: &Names) -> String {
    let definition = r#"{"id":"small","kind":"queue","routes":[{"topic":"x"}],"limits":{"payload_bytes_max":1000}}"#;
    let insert = "insert into {outbox_destination} (id, kind, definition, version) \
        values ('small', 'queue', '$', 1)";
    names.render(insert).replace('$', definition)
}
