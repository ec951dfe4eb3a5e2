//! A standby: what waits for it, what it refuses, and what it does as the primary.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use postrider_core::operate::{Finding, Level};
use postrider_core::source::{FetchRequest, OutboxSource};
use postrider_core::{Code, ErrorKind, EventId, Lease, Operator as _, Timestamp};
use postrider_postgres::{PostgresStore, PublishAfter};

use crate::support::{Fresh, LONG, acquire, destination, id};
use postrider_testkit::cluster::Cluster;

/// A standby on a busy machine has everything within this time.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(90);

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
    handed_out(store, lease).await.map(|ids| ids.len())
}

/// Asks again as long as the standby has not what is asked for: it connects when its receiver likes to.
async fn fetch_at_last(store: &PostgresStore, lease: &Lease) -> postrider_core::Result<usize> {
    handed_out_at_last(store, lease).await.map(|ids| ids.len())
}

/// The same, and what it is.
async fn handed_out_at_last(
    store: &PostgresStore,
    lease: &Lease,
) -> postrider_core::Result<BTreeSet<EventId>> {
    let began = Instant::now();
    loop {
        match handed_out(store, lease).await {
            Err(error)
                if error.kind() == ErrorKind::Unavailable && began.elapsed() < FOLLOWS_WITHIN => {}
            answer => return answer,
        }
    }
}

/// What a relay gets, and may publish.
async fn handed_out(
    store: &PostgresStore,
    lease: &Lease,
) -> postrider_core::Result<BTreeSet<EventId>> {
    let loaded = store.load(lease, &id("a")).await?;
    let request = FetchRequest {
        lease: lease.clone(),
        destinations: vec![id("a")],
        after: loaded.cursor,
        until: None,
        rows_max: 100,
        bytes_max: 1 << 20,
    };
    let page = store.fetch(&request).await?;
    Ok(page.rows.iter().map(|row| row.event.as_ref().expect("it is well formed").id).collect())
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
    assert_eq!(fetch_at_last(&waits, &lease).await.expect("the standby follows"), 1);

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
    assert_eq!(fetch_at_last(&waits, &lease).await.expect("the standby is back"), 2);

    primary.stop("immediate");
    let on_new = Fresh::at(&standby.url(), fresh.names.clone());
    on_new.run("select pg_promote()").await;
    let after = store(&fresh, &both, None);
    assert_eq!(after.open().await.expect("the new primary").partitions, 1);
    assert_eq!(on_new.number("select count(*) from {outbox}").await, 2);
    assert_eq!(fetch(&after, &lease).await.expect("events"), 2);
    tokio::time::timeout(FOLLOWS_WITHIN, recovers(&waits)).await.expect("goes on");
}

/// A store that was connected to the old primary: no restart is needed.
async fn recovers(store: &PostgresStore) {
    while store.destinations().await.is_err() {}
}

/// F4, INV-2: a standby that lacks the last transactions becomes the primary. What a store that waits for nothing had
/// handed out of them never happened there; a store that waits for this standby had not handed it out.
#[tokio::test]
async fn a_standby_that_is_behind_makes_no_ghost_of_what_waited_for_it() {
    let Some(mut primary) = Cluster::start(&["fsync = off"]).await else { return };
    let fresh = Fresh::on(&primary, 1).await;
    let local = store(&fresh, &primary.url(), None);
    local.register(&[destination("a")]).await.expect("register");
    let lease = acquire(&local, LONG).await.expect("the lease").lease;
    let mut standby = primary.standby("b").await;
    let waits = store(&fresh, &primary.url(), Some("b"));
    fresh.run(INSERT).await;
    let waited = handed_out_at_last(&waits, &lease).await.expect("the standby follows");
    assert_eq!(waited.len(), 1);

    standby.stop("immediate");
    fresh.run(INSERT).await;
    fresh.run(INSERT).await;
    let unguarded = handed_out(&local, &lease).await.expect("its own disk is enough");
    assert_eq!(unguarded.len(), 3);
    let refused = handed_out(&waits, &lease).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");

    // Whatever the standby lacks it never gets: the primary is gone when it starts.
    primary.stop("immediate");
    standby.launch().await;
    let promoted = Fresh::at(&standby.url(), fresh.names.clone());
    promoted.run("select pg_promote()").await;
    let after = store(&fresh, &standby.url(), None);
    let there = handed_out(&after, &lease).await.expect("the new primary");
    assert_eq!(promoted.number("select count(*) from {outbox}").await, 1);
    assert_eq!(unguarded.difference(&there).count(), 2, "the control: ghosts without the wait");
    assert!(waited.is_subset(&there), "nothing that was waited for is lost: {waited:?} {there:?}");
}

/// F4, INV-2: of several standbys with one name each may become the primary, so all of them count.
#[tokio::test]
async fn of_two_standbys_with_one_name_both_are_waited_for() {
    let Some(primary) = Cluster::start(&["fsync = off"]).await else { return };
    let fresh = Fresh::on(&primary, 1).await;
    let waits = store(&fresh, &primary.url(), Some("b"));
    waits.register(&[destination("a")]).await.expect("register");
    let lease = acquire(&waits, LONG).await.expect("the lease").lease;
    let (_follows, sleeps) = (primary.standby("b").await, primary.standby("b").await);
    fresh.run(INSERT).await;
    assert_eq!(fetch_at_last(&waits, &lease).await.expect("both follow"), 1);
    let found = twice_named(&waits).await;
    assert_eq!((found.level, found.subject.as_str()), (Level::Warning, "replication"), "{found:?}");

    sleeps.signal("-STOP");
    fresh.run(INSERT).await;
    let refused = fetch(&waits, &lease).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    sleeps.signal("-CONT");
    assert_eq!(fetch_at_last(&waits, &lease).await.expect("it wakes"), 2);
}

/// F4: a name that nobody has (a slip, or a standby that is away) stops everything, and is told before a relay runs.
#[tokio::test]
async fn the_doctor_names_a_standby_that_is_waited_for_and_not_there() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let waits = store(&fresh, &fresh.store_url, Some("nowhere"));
    let findings = waits.doctor(Timestamp::now()).await.expect("findings").into_iter();
    let said = findings.filter(|found| found.subject == "replication").collect::<Vec<_>>();
    assert_eq!(said.iter().map(|found| found.code).collect::<Vec<_>>(), [Some(Code::StandbyShort)]);
    assert!(said[0].message.contains("waits for the standby nowhere"), "{said:?}");
    assert_eq!(said[0].level, Level::Critical);
}

/// What the doctor says of the standbys.
async fn twice_named(store: &PostgresStore) -> Finding {
    let findings = store.doctor(Timestamp::now()).await.expect("findings");
    findings.into_iter().find(|found| found.message.contains("named b")).expect("it is said")
}

/// The rule by itself, for what the server's view may show: who is behind, who has sent nothing yet, and what a user
/// without the right to look sees.
#[tokio::test]
async fn a_standby_has_it_when_all_of_its_name_have_it() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let client = fresh.connect().await;
    let text = fresh.sql(include_str!("../../../sql/standby/flushed.sql"));
    for (shown, expected) in [
        ("('b', 'streaming', '0/20'::pg_lsn)", Some((true, false))),
        ("('b', 'streaming', '0/20'), ('b', 'streaming', '0/30')", Some((true, false))),
        ("('b', 'streaming', '0/20'), ('b', 'streaming', '0/0F')", Some((false, false))),
        ("('b', 'streaming', '0/20'), ('b', 'startup', null)", Some((false, false))),
        ("('b', 'streaming', '0/0F'), ('c', 'streaming', '0/20')", Some((false, false))),
        ("('b', null, null)", Some((false, true))),
        ("('c', 'streaming', '0/20')", None),
    ] {
        let view =
            format!("(values {}) as seen (application_name, state, flush_lsn)", typed(shown));
        let text = text.replace("pg_stat_replication", &view);
        let row = client.query_opt(&text, &[&"b", &"0/10"]).await.expect("it is asked");
        let said = row.map(|row| (row.get::<_, bool>(0), row.get::<_, bool>(1)));
        assert_eq!(said, expected, "{shown}");
    }
}

/// The first row says the types of all.
fn typed(shown: &str) -> String {
    format!("(null::text, null::text, null::pg_lsn), {shown}")
}
