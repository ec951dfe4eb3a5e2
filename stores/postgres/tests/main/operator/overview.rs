//! The overview and the backlog.

use postrider_core::operate::Operator;
use postrider_core::{DestinationState, ErrorKind};
use postrider_testkit::suite::report;

use super::{Act, Play, everything, later, of_type, only};
use crate::support::{Fresh, id};

#[tokio::test]
async fn everything_is_seen_in_one_reading() {
    let Some(play) = Play::begin(&[everything("a"), only("b", "order.*")]).await else { return };
    let events: Vec<_> = (0..6).map(|number| of_type("order.placed", number)).collect();
    play.commit(&events).await;
    play.commit(&[of_type("order.reminder", 1).deliver_after(later())]).await;
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
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    report::what_a_relay_says_of_itself_is_seen(&play.store, &play.lease).await;
}

/// INV-8: cursors with nothing before them are saved while another stands. When it was saved that the oldest waits for
/// is told, and when any was where nothing does.
#[tokio::test]
async fn the_cursor_that_stands_says_when_it_was_saved() {
    let Some(play) = Play::made(2, &[everything("a")]).await else { return };
    let saved_at = async || play.store.overview().await.unwrap().destinations[0].saved_at;
    let rewrite = |newest: &str, others: &str| {
        format!(
            "update {{outbox_cursor}} set saved_at = to_timestamp(
                case partition when (select partition from {{outbox}} order by seq desc limit 1)
                    then {newest} else {others} end)"
        )
    };
    let at = |seconds: i64| Some(postrider_core::Timestamp::from_micros(seconds * 1_000_000));
    play.commit(&[of_type("order.placed", 1)]).await;
    play.fresh.run(&rewrite("100", "200")).await;
    assert_eq!(saved_at().await, at(100));
    // Whatever the number: the other partition has one as well, and a younger one.
    let mut other = 2;
    while play.fresh.number("select count(distinct partition) from {outbox}").await < 2 {
        play.commit(&[of_type("order.placed", other)]).await;
        other += 1;
    }
    assert_eq!(saved_at().await, at(100));
    play.settle_all("a", &[Act::Ack]).await;
    play.fresh.run(&rewrite("300", "400")).await;
    assert_eq!(saved_at().await, at(400));
}

/// Only the leases and relays whose time runs are there.
#[tokio::test]
async fn what_has_expired_is_not_alive() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    play.fresh
        .run(
            "update {outbox_renewal} set expires_at = 'epoch';
            update {outbox_lease} set paused = true, takeovers = 2;
            update {outbox_relay} set expires_at = 'epoch';
            insert into {outbox_endpoint} (destination, topic, disabled_at)
            values ('a', 'gone', 'epoch');
            update {outbox_destination} set state = 'paused' where id = 'a'",
        )
        .await;
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
    let Some(fresh) = Fresh::made(3).await else { return };
    let seen = fresh.store().overview().await.unwrap();
    assert_eq!((seen.enqueued, seen.kept, seen.oldest), (0, 0, None));
    assert!(seen.destinations.is_empty());
    assert_eq!((seen.facts.partitions, seen.partitions.len()), (3, 3));
}

#[tokio::test]
async fn the_backlog_is_grouped_by_what_routes_match() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    play.commit(&[
        of_type("order.placed", 1),
        of_type("order.placed", 2),
        of_type("order.paid", 3).tenant("acme"),
        of_type("order.placed", 4),
    ])
    .await;
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

/// A database without the tables, and one with a newer program's, are told apart from an empty store.
#[tokio::test]
async fn an_overview_says_what_is_wrong_with_the_tables() {
    let Some(empty) = Fresh::empty() else { return };
    let refused = empty.store().overview().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SchemaMissing, "{refused}");
    let Some(fresh) = Fresh::made(1).await else { return };
    fresh.run("update {outbox_meta} set value = '99' where key in ('schema', 'serves')").await;
    let refused = fresh.store().overview().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::SchemaTooNew, "{refused}");
}

/// A long backlog is reckoned from the numbers before the cursors, whatever the gaps, a short one is
/// counted.
#[tokio::test]
async fn a_long_backlog_is_reckoned() {
    let Some(play) = Play::made(4, &[everything("a")]).await else { return };
    play.fresh
        .run(
            "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
            select 'order', n::text, 'order.placed', '1' from generate_series(1, 50000) as n",
        )
        .await;
    let seen = play.store.overview().await.unwrap();
    let pending = seen.destinations[0].pending;
    assert_eq!((seen.enqueued, seen.kept), (50_000, 50_000));
    assert!((45_000..=50_000).contains(&pending), "{pending}");
    assert_eq!(seen.destinations[0].pending_since, seen.oldest);
    // All of one key: its partition has every number.
    play.fresh.run("truncate {outbox}").await;
    play.fresh
        .run(
            "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
            select 'order', '1', 'order.placed', '1' from generate_series(1, 50000) as n",
        )
        .await;
    let pending = play.store.overview().await.unwrap().destinations[0].pending;
    assert!((20_000..=100_000).contains(&pending), "{pending}");
    play.fresh.run("truncate {outbox}").await;
    assert_eq!(play.store.overview().await.unwrap().destinations[0].pending, 0);
}
