//! Changes of destinations and partitions; cancellation; and staging.

use postrider_core::operate::{Cancelled, Operator};
use postrider_core::source::DefinitionChange;
use postrider_core::{
    DestinationState, ErrorKind, EventId, NewEvent, OutboxSource, PartitionId, Start,
};

use super::told;
use crate::fetch::{self, beginning};
use crate::operator::{Act, Play, everything, later, note, of_type, only, page};
use crate::support::{Fresh, id};

fn orders(count: u32) -> Vec<NewEvent> {
    (0..count).map(|n| of_type("order.placed", n)).collect()
}

#[tokio::test]
async fn definitions_are_applied_and_audited() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    let change = DefinitionChange {
        expected: Some(1),
        put: vec![(only("b", "order.*"), Start::Now)],
        remove: vec![id("a")],
    };
    assert_eq!(Operator::apply(&play.store, &change, &note()).await.unwrap(), 2);
    let again = DefinitionChange { expected: None, ..change.clone() };
    assert_eq!(
        Operator::apply(&play.store, &again, &note()).await.unwrap(),
        2,
        "nothing is left to change"
    );
    assert_eq!(told(&play.audited().await), [("destinations apply", "version 2: b, a removed")]);
    let stale = Operator::apply(&play.store, &change, &note()).await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Conflict);
}

/// A renamed destination goes on where it stood, with what waits there.
#[tokio::test]
async fn a_destination_is_renamed_with_all_that_is_its_own() {
    let Some(play) = Play::wide(4, &[everything("a"), everything("taken")]).await else { return };
    play.commit(&orders(40)).await;
    play.settle_all("a", &[Act::Ack, Act::Dead, Act::Disable, Act::Ack]).await;
    let rename = async |from: &str, to: &str| {
        play.store.rename(&id(from), &id(to), &note()).await.map_err(|error| error.kind())
    };
    assert_eq!(rename("a", "taken").await, Err(ErrorKind::Conflict));
    assert_eq!(rename("nobody", "b").await, Err(ErrorKind::NotFound));
    assert_eq!(rename("a", "unrouted").await, Err(ErrorKind::Invalid));
    assert_eq!(rename("unrouted", "b").await, Err(ErrorKind::Invalid));
    assert_eq!(rename("a", "a").await, Ok(()));
    let before = play.store.overview().await.unwrap();
    assert_eq!(rename("a", "b").await, Ok(()));
    let after = play.store.overview().await.unwrap();
    assert!(after.definitions > before.definitions, "relays hear of it");
    let (old, new) = (&before.destinations[0], &after.destinations[0]);
    assert_eq!((new.id.as_str(), new.pending, new.waiting), ("b", old.pending, old.waiting));
    assert_eq!((new.settled, &new.disabled), (old.settled, &old.disabled));
    for table in ["cursor", "waiting", "settled", "endpoint"] {
        let left = format!("select count(*) from {{outbox_{table}}} where destination = 'a'");
        assert_eq!(play.fresh.number(&left).await, 0, "{table}");
    }
    let definitions = play.store.destinations().await.unwrap();
    assert!(definitions.rows.iter().any(|row| row.definition.id == id("b")));
    let old_name = play.store.fetch(&fetch::after(&beginning(), 1, 1)).await.unwrap_err();
    assert_eq!(old_name.kind(), ErrorKind::NotFound, "who has not heard of it reads no further");
    assert_eq!(told(&play.audited().await), [("destinations rename", "a to b")]);
    assert_eq!(play.store.recount(&id("b")).await.unwrap().differences, []);
}

/// R101: what waited for a destination goes with it, in writes of a bounded size; what a removal that was cut
/// off has left is nobody's, and does not become a new destination's of that name.
#[tokio::test]
async fn a_destination_is_removed_with_all_that_waited() {
    let Some(play) = Play::begin(&[everything("a"), everything("b")]).await else { return };
    let waits = |destination: &str, rows: u32| {
        format!(
            "insert into {{outbox_waiting}} (destination, partition, seq, key, key_hash, state, holds_key,
                next_at, reason, moved_at)
            select '{destination}', 0, seq, 'order/1', 0, 'dead', false, now(), 'gave_up', now()
            from generate_series(1, {rows}) seq;
            insert into {{outbox_settled}} select '{destination}', 0, bucket, 1, 0, 1, 0, 0, 0, 0, 0, 'r', now()
            from generate_series(1, {rows}) bucket"
        )
    };
    play.fresh.run(&waits("a", 12_000)).await;
    play.fresh.run(&waits("b", 3)).await;
    let remove = DefinitionChange { remove: vec![id("a")], ..DefinitionChange::default() };
    OutboxSource::apply(&play.store, &remove).await.unwrap();
    let left = |of: &str| {
        format!(
            "select (select count(*) from {{outbox_waiting}} where destination = '{of}')
                + (select count(*) from {{outbox_settled}} where destination = '{of}')"
        )
    };
    assert_eq!(play.fresh.number(&left("a")).await, 0);
    assert_eq!(play.fresh.number(&left("b")).await, 6, "another one's stays");
    // As a crash after the removal leaves it.
    play.fresh.run(&waits("a", 6_000)).await;
    let version = OutboxSource::apply(&play.store, &remove).await.unwrap();
    assert_eq!(play.fresh.number(&left("a")).await, 0, "a removal that is said again finishes it");
    assert_eq!(play.store.destinations().await.unwrap().version, version);
    play.fresh.run(&waits("a", 10)).await;
    let put = vec![(everything("a"), Start::Beginning)];
    let change = DefinitionChange { put, ..DefinitionChange::default() };
    OutboxSource::apply(&play.store, &change).await.unwrap();
    assert_eq!(play.store.counts(&id("a")).await.unwrap().total(), 0);
    assert_eq!(play.fresh.number(&left("a")).await, 0);
}

#[tokio::test]
async fn destinations_and_partitions_are_paused_and_resumed() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    let before = play.store.destinations().await.unwrap().version;
    for state in [DestinationState::Paused, DestinationState::Paused, DestinationState::Active] {
        play.store.set_destination(&id("a"), state, &note()).await.unwrap();
        let rows = play.store.destinations().await.unwrap().rows;
        assert_eq!(rows[0].state, state);
    }
    for paused in [true, true, false] {
        play.store.set_partition(PartitionId(0), paused, &note()).await.unwrap();
        assert_eq!(play.store.overview().await.unwrap().partitions[0].paused, paused);
        assert_eq!(play.store.destinations().await.unwrap().paused.len(), usize::from(paused));
    }
    assert_eq!(play.store.destinations().await.unwrap().version, before + 4);
    assert_eq!(
        told(&play.audited().await),
        [
            ("partitions resume", "partition 0"),
            ("partitions pause", "partition 0"),
            ("destinations resume", "a"),
            ("destinations pause", "a"),
        ],
        "what changed nothing is not written down"
    );
    let nobody = play.store.set_destination(&id("x"), DestinationState::Paused, &note()).await;
    assert_eq!(nobody.unwrap_err().kind(), ErrorKind::NotFound);
    let nowhere = play.store.set_partition(PartitionId(1), true, &note()).await;
    assert_eq!(nowhere.unwrap_err().kind(), ErrorKind::NotFound);
}

/// INV-3: a scheduled event enters the partition of the key that it has by then, also where a person has changed it.
#[tokio::test]
async fn a_scheduled_event_enters_the_partition_of_its_key() {
    let Some(play) = Play::wide(4, &[everything("a")]).await else { return };
    let past = "2001-01-01T00:00:00Z".parse().unwrap();
    let early = (0..20).map(|n| of_type("order.reminder", n).deliver_after(past));
    play.commit(&early.collect::<Vec<_>>()).await;
    play.fresh.run("update {outbox_scheduled} set key = 'changed/' || aggregate_id").await;
    for lease in &play.leases {
        play.store.admit(lease, 100).await.unwrap();
    }
    assert_eq!(play.fresh.number("select count(*) from {outbox}").await, 20);
    let elsewhere = "select count(*) from {outbox} where partition <> {outbox_partition_of}(key)";
    assert_eq!(play.fresh.number(elsewhere).await, 0);
}

/// An event is cancelled, or it is too late; never both, and never neither.
#[tokio::test]
async fn an_event_is_cancelled_before_it_enters_or_not_at_all() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    let (early, late) = (
        of_type("order.reminder", 1).deliver_after("2001-01-01T00:00:00Z".parse().unwrap()),
        of_type("order.reminder", 2).deliver_after(later()),
    );
    play.commit(&[early.clone(), late.clone()]).await;
    play.store.admit(&play.lease, 100).await.unwrap();
    let cancel = async |id: EventId| play.store.cancel(id, &note()).await.unwrap();
    assert_eq!(cancel(early.event().id).await, Cancelled::TooLate);
    assert_eq!(cancel(late.event().id).await, Cancelled::Cancelled);
    assert_eq!(cancel(late.event().id).await, Cancelled::Unknown);
    assert_eq!(play.fresh.number("select count(*) from {outbox_scheduled}").await, 0);
    let audit = play.store.audit(&page(10, None)).await.unwrap().rows;
    assert_eq!(audit.len(), 1, "only what changed something is written down");
    assert_eq!((audit[0].what.as_str(), audit[0].who.as_str()), ("outbox cancel", "anna@db1"));
    assert_eq!(audit[0].subject, format!("event {}", late.event().id));
}

/// Staged events pass the same checks as those of an application, all or none.
#[tokio::test]
async fn events_are_staged_all_or_none() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let events = [of_type("order.placed", 1), of_type("order.reminder", 2).deliver_after(later())];
    let ids = store.stage(&events).await.unwrap();
    assert_eq!(ids, [events[0].event().id, events[1].event().id]);
    let both = async || {
        let both = "select (select count(*) from {outbox}) * 10
            + (select count(*) from {outbox_scheduled})";
        fresh.number(both).await
    };
    assert_eq!(both().await, 11);
    let bad = [of_type("order.placed", 3), of_type("", 4)];
    assert_eq!(store.stage(&bad).await.unwrap_err().kind(), ErrorKind::Invalid);
    let twice = store.stage(&events).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Conflict, "a scheduled event is there once");
    let many = orders(10_001);
    assert_eq!(store.stage(&many).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(both().await, 11);
    assert_eq!(store.audit(&page(10, None)).await.unwrap().rows.len(), 0);
}
