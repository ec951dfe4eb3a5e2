//! A standby that is promoted, and the primary that it was.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::{Code, ErrorKind, Operator as _, OutboxSource as _, Timestamp};
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::relay::Relay;
use crate::shop::Shop;

/// F3, INV-1: the same relay goes on with the promoted standby, notices that its memory is void, and loses
/// nothing; the demoted primary is refused, by a relay that comes and by one that was there.
#[tokio::test]
async fn a_promoted_standby_loses_nothing_and_the_demoted_primary_is_refused() {
    let Some(mut primary) = Cluster::start(&["autovacuum = off"]).await else { return };
    let own = Shop::open(&primary.url(), 4).await;
    let standby = primary.standby("b").await;
    // One address with both hosts, as an application has it.
    let place = |url: &str| url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned();
    let hosts = format!("{},{}", place(&primary.url()), place(&standby.url()));
    let shop = Shop::at(&format!(
        "postgres://postgres@{hosts}/postgres?target_session_attrs=read-write&connect_timeout=5"
    ));
    let mut relay = Relay::new("both", &shop);
    own.events(100).await;
    relay.acquire(4).await;
    assert_eq!(relay.owns(), 4);
    while relay.turn(9).await.0 > 0 {}
    for partition in relay.partitions() {
        assert!(relay.settle(partition, 5).await);
    }
    own.events(40).await;
    let written = own.number("select (pg_current_wal_lsn() - '0/0')::bigint").await;
    let follows = Shop::at(&standby.url());
    let replayed = "select (pg_last_wal_replay_lsn() - '0/0')::bigint";
    while follows.number(replayed).await < written {
        // waits: a standby tells nobody what it has replayed
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    primary.stop("immediate");
    standby.run("pg_ctl", &["-D", "DATA", "-w", "promote"]);
    follows.events(40).await;
    relay.drain().await;
    let trouble = relay.facts().trouble;
    assert!(trouble.keys().any(|it| it.ends_with("Conflict")), "it is noticed: {trouble:?}");
    let read: BTreeSet<Uuid> = relay.read().iter().map(|read| read.id).collect();
    let rows = follows.rows().await;
    assert_eq!(rows.len(), 180);
    assert!(rows.iter().all(|row| read.contains(&row.id)), "nothing is lost");

    let mut stays = Relay::new("stays", &own);
    primary.launch().await;
    // It knows nothing of its successor, and of the lease that it granted.
    own.run("update {outbox_lease} set owner = null").await;
    stays.acquire(4).await;
    assert_eq!(stays.owns(), 4);
    primary.stop("immediate");
    primary.follow(&standby);
    primary.launch().await;
    let refused = own.store().open().await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.operator_code()),
        (ErrorKind::ReadOnly, Some(Code::ReadOnly))
    );
    // Who only looks is answered, and told why nothing moves.
    let looked = own.store();
    assert!(!looked.open_to_read().await.unwrap(), "it cannot be written to");
    looked.overview().await.expect("what it holds");
    let findings = looked.doctor(Timestamp::now()).await.expect("findings");
    let primary = findings.iter().find(|finding| finding.subject == "primary").expect("one");
    assert_eq!(primary.code, Some(Code::ReadOnly), "{primary:?}");
    let blind: Vec<_> =
        findings.iter().filter(|it| it.message.contains("could not be examined")).collect();
    assert!(blind.is_empty(), "{blind:?}");
    for _ in 0..20 {
        stays.turn(10).await;
        stays.acquire(4).await;
    }
    let (read, trouble) = (stays.read().len(), stays.facts().trouble);
    assert_eq!(read, 0, "{trouble:?}");
    assert!(trouble.contains_key("acquire: ReadOnly"), "{trouble:?}");
    assert!(trouble.contains_key("fetch: ReadOnly"), "{trouble:?}");
}
