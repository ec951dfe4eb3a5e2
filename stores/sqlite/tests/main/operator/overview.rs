//! The overview and the backlog.

use postrider_core::operate::Operator;
use postrider_core::{DestinationState, ErrorKind, OutboxSource};
use postrider_testkit::suite::report;

use super::{Act, Play, everything, later, of_type, only, plan};
use crate::support::id;

#[tokio::test]
async fn everything_is_seen_in_one_reading() {
    let play = Play::begin(&[everything("a"), only("b", "order.*")]).await;
    let events: Vec<_> = (0..6).map(|number| of_type("order.placed", number)).collect();
    play.commit(&events);
    play.commit(&[of_type("order.reminder", 1).deliver_after(later())]);
    play.settle("a", &[Act::Ack, Act::Retry, Act::Dead, Act::Dead, Act::Elsewhere]).await;
    let seen = play.store.overview().await.unwrap();
    assert_eq!((seen.enqueued, seen.kept, seen.scheduled), (6, 6, 1));
    assert!(seen.oldest.is_some() && seen.scheduled_next == Some(later()));
    assert_eq!((seen.relays.len(), seen.relays[0].current, seen.requests), (1, true, 0));
    assert_eq!(seen.relays[0].owner, play.lease.owner);
    let partition = &seen.partitions[0];
    assert_eq!(partition.owner.as_ref(), Some(&play.lease.owner));
    assert!(!partition.paused && partition.expires_in.is_some());
    let names: Vec<&str> = seen.destinations.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(names, ["a", "b", "unrouted"]);
    let (a, b) = (&seen.destinations[0], &seen.destinations[1]);
    assert_eq!((a.pending, b.pending, a.version), (1, 6, 1));
    assert_eq!((a.kind.as_str(), a.state), ("local", DestinationState::Active));
    assert!(a.pending_since.is_some() && b.waiting_since.is_none() && a.waiting_since.is_some());
    assert_eq!((a.waiting.retrying, a.waiting.dead, b.waiting.total()), (1, 2, 0));
    assert!(a.dead_since.is_some() && a.retry_next.is_some() && b.dead_since.is_none());
    let sums = a.settled;
    assert_eq!((sums.count, sums.acked, sums.waiting, sums.other_route), (5, 1, 3, 1));
    let errors: Vec<_> = a.errors.iter().map(|e| (e.detail.as_str(), e.count)).collect();
    assert_eq!(errors, [("400 Bad Request", 2), ("503 Busy", 1)]);
}

/// INV-8: see the suite.
#[tokio::test]
async fn what_a_relay_says_of_itself_is_seen() {
    let play = Play::begin(&[everything("a")]).await;
    report::what_a_relay_says_of_itself_is_seen(&play.store, &play.lease).await;
}

/// Only the leases and relays whose time runs are there.
#[tokio::test]
async fn what_has_expired_is_not_alive() {
    let play = Play::begin(&[everything("a")]).await;
    let connection = play.fresh.connect();
    connection
        .execute_batch(
            "update outbox_lease set expires_at = 1, paused = 1, takeovers = 2;
            update outbox_relay set expires_at = 1;
            insert into outbox_endpoint (destination, topic, disabled_at) values ('a', 'gone', 0);
            update outbox_destination set state = 'paused' where id = 'a'",
        )
        .unwrap();
    let seen = play.store.overview().await.unwrap();
    assert!(seen.relays.is_empty());
    let partition = &seen.partitions[0];
    assert!(partition.owner.is_none() && partition.expires_in.is_none() && partition.paused);
    assert_eq!(partition.takeovers, 2);
    let a = &seen.destinations[0];
    assert_eq!((a.state, a.disabled.as_slice()), (DestinationState::Paused, &["gone".into()][..]));
}

#[tokio::test]
async fn an_empty_store_has_an_overview() {
    let fresh = crate::support::Fresh::new();
    let seen = fresh.store().overview().await.unwrap();
    assert_eq!((seen.enqueued, seen.kept, seen.oldest), (0, 0, None));
    assert!(seen.destinations.is_empty());
}

#[tokio::test]
async fn the_backlog_is_grouped_by_what_routes_match() {
    let play = Play::begin(&[everything("a")]).await;
    play.commit(&[
        of_type("order.placed", 1),
        of_type("order.placed", 2),
        of_type("order.paid", 3).tenant("acme"),
        of_type("order.placed", 4),
    ]);
    play.settle("a", &[Act::Ack]).await;
    let groups = play.store.backlog(&id("a"), 100).await.unwrap();
    let told: Vec<_> = groups
        .iter()
        .map(|group| (group.event_type.as_str(), group.tenant.as_deref(), group.count))
        .collect();
    assert_eq!(told, [("order.placed", None, 2), ("order.paid", Some("acme"), 1)]);
    let few = play.store.backlog(&id("a"), 1).await.unwrap();
    assert_eq!((few.len(), few[0].count), (1, 1), "the count stops where it is told to");
    let refused = play.store.backlog(&id("nobody"), 100).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
}

macro_rules! statements {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../../sql/operator/", $name, ".sql")))),+]
    };
}

/// F38: with ten million events or waiting rows an overview is as cheap as with ten: nothing scans
/// a table that grows, and what walks an index walks one that says so here.
#[tokio::test]
async fn an_overview_scans_neither_the_outbox_nor_waiting() {
    let play = Play::begin(&[everything("a")]).await;
    for (name, statement) in statements![
        "sequence",
        "created_at",
        "relays",
        "partitions",
        "destinations",
        "settled_totals",
        "waiting_counts",
        "waiting_created_at",
        "dead_since",
        "retry_next",
        "reasons",
        "endpoints",
        "requests_open_count",
        "events_top",
        "events_scan",
        "event_seq",
        "event_view",
        "delivery_waiting",
        "delivery_bucket",
        "waiting_behind",
        "waiting_list",
        "waiting_destination",
        "waiting_destination_after",
        "scheduled_list",
        "first_since",
    ] {
        let plan = plan(&play.fresh, statement);
        for table in ["outbox", "outbox_waiting", "w", "outbox_scheduled", "outbox_settled"] {
            let scans = plan.lines().any(|line| {
                line.split_once("SCAN ")
                    .is_some_and(|(_, rest)| rest.split(' ').next() == Some(table))
            });
            assert!(!scans, "{name}:\n{plan}");
        }
        let sorted = plan.contains("TEMP B-TREE");
        assert!(!sorted, "{name}:\n{plan}");
    }
    let counts = plan(&play.fresh, include_str!("../../../sql/operator/waiting_counts.sql"));
    assert!(counts.contains("COVERING INDEX outbox_waiting_state"), "{counts}");
    // The control: a statement that does scan is found to.
    let scan = plan(&play.fresh, "select count(*) from outbox where event_type = ?1");
    assert!(scan.contains("SCAN outbox"), "{scan}");
    play.store.counts(&id("a")).await.unwrap();
}
