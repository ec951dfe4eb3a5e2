//! The comparison with the loop that is there: nothing is marked, and every difference is told.

use postrider_core::ErrorKind;
use postrider_core::source::OutboxSource;
use postrider_postgres::OwnTable;

use super::relay::{Relay, event};
use super::table::{Layout, Own};

const LOOP: &str =
    "update {schema}.\"own events\" set published_at = clock_timestamp() where seq = ";

fn comparing(own: &Own) -> OwnTable {
    OwnTable::comparing(&own.fresh.url, own.fresh.options(), own.mapping()).expect("a mapping")
}

/// What both publish, what one alone does, and what the loop published out of order. Rows of before
/// are left out, and no row is marked.
#[tokio::test]
async fn a_comparison_tells_the_loops_marks_from_ours() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    own.commit(&[event("9", 1)]).await.expect("commit");
    let table = comparing(&own);
    table.open().await.expect("open");
    own.commit(&[event("1", 1), event("1", 2), event("2", 1), event("3", 1)])
        .await
        .expect("commit");
    let relay = Relay::of(table.clone()).await;
    for seq in [3, 2, 4] {
        own.fresh.run(&format!("{LOOP}{seq}")).await;
    }
    assert_eq!(relay.publish().await.len(), 4, "also what the loop was faster with");
    assert_eq!(own.layout.pending(&own.fresh).await, 2, "nothing was marked by us");
    own.commit(&[event("4", 1)]).await.expect("commit");
    own.fresh.run(&format!("{LOOP}6")).await;
    let found = table.compare().await.expect("compare");
    assert_eq!((found.both, found.only_postrider, found.only_loop), (3, 1, 1), "{found:?}");
    assert_eq!((found.neither, found.reordered), (0, 1), "{found:?}");
    assert_eq!(found.examples, [vec![5], vec![6], vec![3]]);
    assert!(!found.agrees());
    assert_eq!(relay.read().await.len(), 1, "what was noted is not read again");
    assert_eq!(relay.publish().await.len(), 1);
    own.fresh.run(&format!("{LOOP}5")).await;
    let found = table.compare().await.expect("compare");
    assert_eq!((found.both, found.only_postrider, found.only_loop), (5, 0, 0), "{found:?}");
}

/// What a comparison sent to nobody counts as passed in its tables: they serve no destination that somebody listens to.
#[tokio::test]
async fn tables_that_served_a_comparison_serve_nothing_else() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    comparing(&own).open().await.expect("open");
    own.commit(&[event("1", 1)]).await.expect("commit");
    Relay::of(comparing(&own)).await.publish().await;
    let refused = own.source().open().await.expect_err("the event would never be published");
    assert_eq!(refused.kind(), ErrorKind::Config, "{refused}");
    assert!(refused.to_string().contains("schema of their own"), "{refused}");
}

/// A table that keeps nothing of what was published has nothing to compare with.
#[tokio::test]
async fn what_cannot_be_compared_is_refused() {
    let Some(own) = Own::new(Layout::Debezium).await else { return };
    let refused = OwnTable::comparing(&own.fresh.url, own.fresh.options(), own.mapping());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    assert_eq!(own.source().compare().await.unwrap_err().kind(), ErrorKind::Config);
    let mut mapping = own.mapping();
    mapping.order = Some("created_at".to_owned());
    let table =
        OwnTable::comparing(&own.fresh.url, own.fresh.options(), mapping).expect("a mapping");
    assert_eq!(table.open().await.unwrap_err().kind(), ErrorKind::Config);
}
