//! Disabled endpoints and paused partitions: what waits for them, and what comes out.

use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::source::{DefinitionChange, OutboxSource};
use postrider_core::waiting::{
    DisabledEndpoint, Placement, Reason, Settlement, SettlementPart, WaitingChange,
};
use postrider_core::{PartitionId, RelayId};

use crate::play::{Play, attempted, behind, dead, disabled, enter, here};
use crate::support::{Fresh, LONG, acquire, event, fetch, id};

/// A disabled endpoint is written down once; its events wait, each in its key's order, and come out when
/// it is enabled.
#[tokio::test]
async fn an_enabled_endpoint_lets_its_events_out_in_order() {
    let play = Play::of(&[
        ("1", disabled("x")),
        ("1", disabled("x")),
        ("2", disabled("y")),
        ("3", dead(true)),
        ("3", disabled("x")),
    ])
    .await;
    assert_eq!(play.states(), "1 disabled, 2 parked, 3 disabled, 4 dead, 5 parked");
    assert_eq!(play.due().await, [] as [u64; 0]);
    assert_eq!(play.store.counts(&id("a")).await.unwrap().disabled, 2);
    let before = play.store.destinations().await.unwrap();
    assert_eq!(before.disabled, [(id("a"), "x".into()), (id("a"), "y".into())]);
    let request = play.ask_of("enable", &[0], Some("x"), None);
    let carried = play.carry_out(100).await;
    assert_eq!(carried.enabled, [(id("a"), "x".into())]);
    assert_eq!((carried.touched, carried.rows), (vec![here()], 1));
    assert_eq!(play.request(request), (1, 0, true));
    assert_eq!(play.states(), "1 retrying, 2 parked, 3 disabled, 4 dead, 5 parked");
    let after = play.store.destinations().await.unwrap();
    assert_eq!(after.disabled, [(id("a"), "y".into())]);
    assert!(after.version > before.version, "other relays hear of it");
    assert_eq!(carried.definitions, after.version);
}

/// The definitions' version grows only when an endpoint is news.
#[tokio::test]
async fn an_endpoint_is_disabled_once() {
    let play = Play::of(&[("1", disabled("x"))]).await;
    let before = play.store.destinations().await.unwrap();
    let mut part = SettlementPart::new(id("a"));
    part.disabled.push(DisabledEndpoint { topic: "x".into(), detail: "again".to_owned() });
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.unwrap();
    assert_eq!(play.store.destinations().await.unwrap(), before);
    assert_eq!(play.text("select detail from outbox_endpoint"), "410 Gone");
}

/// Many events of an endpoint come out a bounded number at a time; one that is disabled anew meanwhile
/// keeps the rest.
#[tokio::test]
async fn an_endpoint_is_enabled_in_bounded_writes() {
    let events: Vec<_> =
        (0..7).map(|n| (["1", "2", "3", "4", "5", "6", "7"][n], disabled("x"))).collect();
    let play = Play::of(&events).await;
    let request = play.ask_of("enable", &[0], Some("x"), None);
    let carried = play.carry_out(3).await;
    assert_eq!((carried.rows, carried.more), (0, true));
    assert_eq!(play.store.counts(&id("a")).await.unwrap().disabled, 4);
    assert_eq!(play.request(request), (0, 0, false));
    let carried = play.carry_out(3).await;
    assert!(carried.more);
    assert_eq!(play.store.counts(&id("a")).await.unwrap().disabled, 1);
    let mut part = SettlementPart::new(id("a"));
    part.disabled.push(DisabledEndpoint { topic: "x".into(), detail: "gone again".to_owned() });
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.unwrap();
    let carried = play.carry_out(3).await;
    assert_eq!((carried.rows, carried.more, carried.enabled), (1, false, vec![]));
    assert_eq!(play.request(request), (1, 0, true));
    assert_eq!(play.store.counts(&id("a")).await.unwrap().disabled, 1, "it is disabled");
    assert_eq!(play.store.destinations().await.unwrap().disabled.len(), 1);
}

/// INV-8: an event whose endpoint was enabled while its settlement was on its way does not wait for it.
#[tokio::test]
async fn nothing_waits_for_an_endpoint_that_is_not_disabled() {
    let play = Play::of(&[("1", behind()), ("2", behind())]).await;
    play.fresh.commit(&[event(1)]);
    let rows = fetch(&play.store, &play.lease, 2).await.rows;
    let attempted = attempted(0, Reason::Disabled);
    let mut part = SettlementPart::new(id("a"));
    part.waiting.push(enter(&rows[0], disabled("x").unwrap()));
    let row = play.rows[0].row;
    part.changes.push(WaitingChange::Disabled { row, endpoint: "x".into(), attempted });
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.unwrap();
    assert_eq!(play.states(), "1 retrying, 2 retrying, 3 retrying");
}

/// INV-3: an event that enters before one of its key that waits for an endpoint goes first.
#[tokio::test]
async fn a_disabled_event_is_parked_behind_one_that_enters_before_it() {
    let play = Play::of(&[("1", None), ("1", disabled("x")), ("1", behind())]).await;
    let retry = Placement::Retry { delay: Duration::ZERO, attempted: attempted(1, Reason::Failed) };
    let mut part = SettlementPart::new(id("a"));
    part.waiting.push(enter(&play.rows[0], retry));
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.unwrap();
    assert_eq!(play.states(), "1 retrying, 2 parked, 3 parked");
    play.change(vec![WaitingChange::Delivered(play.rows[0].row)]).await;
    assert_eq!(play.states(), "2 retrying, 3 parked", "its endpoint is found out anew");
    let (row, attempted) = (play.rows[1].row, attempted(0, Reason::Disabled));
    play.change(vec![WaitingChange::Disabled { row, endpoint: "x".into(), attempted }]).await;
    assert_eq!(play.states(), "2 disabled, 3 parked");
    play.change(vec![WaitingChange::Erased(row)]).await;
    assert_eq!(play.states(), "3 retrying", "an erased event lets its key go");
}

/// A destination that is removed takes its endpoints along, and what was asked for it is skipped; what
/// was asked for others is not.
#[tokio::test]
async fn a_removed_destination_leaves_no_request_open() {
    let play = Play::of(&[("1", disabled("x")), ("2", dead(true))]).await;
    let request = play.ask("redrive", &[2]);
    let mixed = play.ask("redrive", &[1, 2]);
    let connection = play.fresh.connect();
    connection
        .execute_batch(
            "update outbox_request_row set destination = 'unrouted' where request = 2 and seq = 1;
            insert into outbox_endpoint values ('unrouted', 'x', '', 0);",
        )
        .unwrap();
    let remove = DefinitionChange { remove: vec![id("a")], ..DefinitionChange::default() };
    play.store.apply(&remove).await.unwrap();
    let finished = "select group_concat(done || skipped || (finished_at is not null)) from
        (select * from outbox_request order by id)";
    assert_eq!(play.text(finished), "011,010");
    let left = play.store.destinations().await.unwrap().disabled;
    assert_eq!(left, [(id("unrouted"), "x".into())]);
    play.carry_out(100).await;
    assert_eq!((request, play.request(mixed)), (1, (0, 2, true)));
}

/// A partition that an operator paused is granted to nobody, and nobody is told to wait for it.
#[tokio::test]
async fn a_paused_partition_is_granted_to_nobody() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    let connection = fresh.connect();
    connection.execute("update outbox_lease set paused = 1", ()).unwrap();
    assert_eq!(store.destinations().await.unwrap().paused, [PartitionId(0)]);
    let request = AcquireRequest {
        owner: RelayId::mint(),
        lease_duration: LONG,
        wanted: 1,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: Some(lease.clone()),
    };
    let acquired = store.acquire(&request).await.unwrap();
    assert_eq!((acquired.granted, acquired.held), (vec![], vec![]));
    store.release(&[lease]).await.unwrap();
    assert!(acquire(&store, LONG).await.is_none());
    connection.execute("update outbox_lease set paused = 0", ()).unwrap();
    assert!(acquire(&store, LONG).await.is_some());
}
