//! The tables: made once, whoever makes them.

use postrider_core::source::OutboxSource;
use postrider_postgres::init;

use crate::support::Fresh;

#[tokio::test]
async fn the_tables_are_made_once_and_found() {
    let Some(fresh) = Fresh::new(4).await else { return };
    init(&fresh.url, &fresh.setup(4)).await.expect("again");
    let facts = fresh.store().open().await.expect("open");
    assert_eq!((facts.partitions, facts.schema), (4, 1));
    fresh
        .run("insert into {outbox} (aggregate_type, aggregate_id, event_type, payload) values ('order', '42', 'order.placed', '{\"a\": 1}')")
        .await;
    assert_eq!(
        fresh.number("select count(*) from {outbox} where seq = 1 and partition < 4").await,
        1
    );
    assert_eq!(fresh.number("select count(*) from {outbox_status}").await, 0);
}
