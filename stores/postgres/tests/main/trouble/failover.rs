//! A standby: what waits for it, what it refuses, and what it does as the primary.

use std::time::Duration;

use postrider_core::source::{FetchRequest, OutboxSource};
use postrider_core::{Code, ErrorKind, Lease};
use postrider_postgres::{PostgresStore, PublishAfter};

use crate::support::{Fresh, LONG, acquire, destination, id};
use postrider_testkit::cluster::Cluster;

const INSERT: &str = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload) \
                      values ('order', '42', 'order.placed', '{\"a\": 1}')";

fn store(fresh: &Fresh, url: &str, standby: Option<&str>) -> PostgresStore {
    let mut options = fresh.options();
    if let Some(name) = standby {
        options.publish_after = PublishAfter::Standby(name.into());
    }
    PostgresStore::with(url, options).expect("a store")
}

async fn fetch(store: &PostgresStore, lease: &Lease) -> postrider_core::Result<usize> {
    let loaded = store.load(lease, &id("a")).await?;
    let request = FetchRequest {
        lease: lease.clone(),
        destinations: vec![id("a")],
        after: loaded.cursor,
        until: None,
        rows_max: 100,
        bytes_max: 1 << 20,
    };
    store.fetch(&request).await.map(|page| page.rows.len())
}

/// F4, INV-2: with `publish_after = "standby:NAME"` nothing is handed out that the standby does not have;
/// without it is. After the failover the store goes on at the new primary, and what was handed out is there.
#[tokio::test]
async fn nothing_is_handed_out_that_the_standby_lacks() {
    let Some(mut primary) = Cluster::start(&["fsync = off"]).await else { return };
    let fresh = Fresh::on(&primary, 1).await;
    let local = store(&fresh, &primary.url(), None);
    local.register(&[destination("a")]).await.expect("register");
    let lease = acquire(&local, LONG).await.expect("the lease").lease;
    let mut standby = primary.standby("b").await;
    let both = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname=postgres \
         target_session_attrs=read-write",
        primary.port(),
        standby.port()
    );
    let waits = store(&fresh, &both, Some("b"));
    fresh.run(INSERT).await;
    assert_eq!(fetch(&waits, &lease).await.expect("the standby follows"), 1);

    let on_standby = store(&fresh, &standby.url(), None);
    for refused in [on_standby.open().await.map(drop), fetch(&on_standby, &lease).await.map(drop)] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.operator_code(), Some(Code::ReadOnly), "{refused:?}");
        assert!(refused.to_string().contains("standby"), "{refused}");
    }

    standby.stop("immediate");
    fresh.run(INSERT).await;
    let refused = fetch(&waits, &lease).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.to_string().contains("standby=b"), "{refused}");
    assert_eq!(fetch(&local, &lease).await.expect("the server's own disk is enough"), 2);
    let other = store(&fresh, &primary.url(), Some("elsewhere"));
    assert!(fetch(&other, &lease).await.is_err(), "a standby that there never was");

    standby.launch().await;
    assert_eq!(fetch(&waits, &lease).await.expect("the standby is back"), 2);

    primary.stop("immediate");
    let on_new = Fresh::at(&standby.url(), fresh.names.clone());
    on_new.run("select pg_promote()").await;
    let after = store(&fresh, &both, None);
    assert_eq!(after.open().await.expect("the new primary").partitions, 1);
    assert_eq!(on_new.number("select count(*) from {outbox}").await, 2);
    assert_eq!(fetch(&after, &lease).await.expect("events"), 2);
    tokio::time::timeout(Duration::from_secs(30), recovers(&waits)).await.expect("goes on");
}

/// A store that was connected to the old primary: no restart is needed.
async fn recovers(store: &PostgresStore) {
    while store.destinations().await.is_err() {}
}
