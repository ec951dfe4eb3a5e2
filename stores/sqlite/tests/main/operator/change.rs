//! Changes of destinations, partitions, the sequence, and which file publishes; and staging.

use postrider_core::operate::Operator;
use postrider_core::source::DefinitionChange;
use postrider_core::{DestinationState, ErrorKind, OutboxSource, PartitionId, Start};

use super::{Act, Play, everything, later, note, of_type, only, page};
use crate::support::{Fresh, event, id, number, page_after};

fn told(audit: &[(String, String)]) -> Vec<(&str, &str)> {
    audit.iter().map(|(what, subject)| (what.as_str(), subject.as_str())).collect()
}

#[tokio::test]
async fn definitions_are_applied_and_audited() {
    let play = Play::begin(&[everything("a")]).await;
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
    let play = Play::begin(&[everything("a"), everything("taken")]).await;
    play.commit(&(0..4).map(event).collect::<Vec<_>>());
    play.settle("a", &[Act::Ack, Act::Dead, Act::Disable]).await;
    let rename = async |from: &str, to: &str| {
        play.store.rename(&id(from), &id(to), &note()).await.map_err(|error| error.kind())
    };
    assert_eq!(rename("a", "taken").await, Err(ErrorKind::Conflict));
    assert_eq!(rename("nobody", "b").await, Err(ErrorKind::NotFound));
    assert_eq!(rename("a", "unrouted").await, Err(ErrorKind::Invalid));
    assert_eq!(rename("unrouted", "b").await, Err(ErrorKind::Invalid));
    assert_eq!(rename("a", "a").await, Ok(()));
    let before = play.store.overview().await.unwrap();
    let open = "insert into outbox_range values ('a', 0, 7, 'order/42', 3, 1, 0)";
    play.fresh.connect().execute(open, ()).unwrap();
    assert_eq!(rename("a", "b").await, Ok(()));
    let after = play.store.overview().await.unwrap();
    assert!(after.definitions > before.definitions, "relays hear of it");
    let (old, new) = (&before.destinations[0], &after.destinations[0]);
    assert_eq!((new.id.as_str(), new.pending, new.waiting), ("b", old.pending, old.waiting));
    assert_eq!((new.settled, &new.disabled), (old.settled, &old.disabled));
    let connection = play.fresh.connect();
    for table in ["cursor", "waiting", "range", "settled", "endpoint"] {
        let left = format!("select count(*) from outbox_{table} where destination = 'a'");
        assert_eq!(number(&connection, &left), 0, "{table}");
        assert!(number(&connection, &left.replace("'a'", "'b'")) > 0, "{table}");
    }
    let definitions = play.store.destinations().await.unwrap();
    assert!(definitions.rows.iter().any(|row| row.definition.id == id("b")));
    // Who has the old name still reads nothing: what it sends is not saved.
    let refused = play.store.fetch(&page_after(&play.lease, 2)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
    assert_eq!(told(&play.audited().await), [("destinations rename", "a to b")]);
    assert_eq!(play.store.recount(&id("b")).await.unwrap().differences, []);
}

#[tokio::test]
async fn destinations_and_partitions_are_paused_and_resumed() {
    let play = Play::begin(&[everything("a")]).await;
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

/// After a restore the sequence may lie behind what was passed: it is raised above all of it, and
/// never while a relay may have read further.
#[tokio::test]
async fn the_sequence_is_raised_above_what_was_passed() {
    let play = Play::begin(&[everything("a")]).await;
    play.commit(&(0..5).map(event).collect::<Vec<_>>());
    play.settle("a", &[Act::Ack, Act::Ack, Act::Ack, Act::Dead]).await;
    let connection = play.fresh.connect();
    connection
        .execute_batch(
            "delete from outbox where seq > 2;
            update sqlite_sequence set seq = 2 where name = 'outbox'",
        )
        .unwrap();
    let refused = play.store.repair_sequence(&note()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert!(refused.to_string().contains(play.lease.owner.as_str()), "{refused}");
    play.store.release(std::slice::from_ref(&play.lease)).await.unwrap();
    assert_eq!(play.store.repair_sequence(&note()).await.unwrap(), (2, 4));
    assert_eq!(play.store.repair_sequence(&note()).await.unwrap(), (4, 4));
    connection
        .execute_batch("delete from sqlite_sequence; update outbox_cursor set replay_through = 9")
        .unwrap();
    assert_eq!(play.store.repair_sequence(&note()).await.unwrap(), (0, 9), "the row was gone");
    play.commit(&[event(9)]);
    assert_eq!(number(&connection, "select max(seq) from outbox"), 10);
    assert_eq!(
        told(&play.audited().await),
        [("repair sequence", "from 0 to 9"), ("repair sequence", "from 2 to 4")]
    );
}

#[tokio::test]
async fn a_copy_is_adopted_by_name_and_reason() {
    let play = Play::begin(&[everything("a")]).await;
    play.store.adopt(&note()).await.unwrap();
    let connection = play.fresh.connect();
    let known = "select count(*) from outbox_meta where key = 'file' and value glob 'inode *'";
    assert_eq!(number(&connection, known), 1);
    let audit = play.audited().await;
    assert_eq!(audit[0].0, "adopt");
    assert!(audit[0].1.contains("shop.db"), "{audit:?}");
}

/// Staged events pass the same checks as those of an application, all or none.
#[tokio::test]
async fn events_are_staged_all_or_none() {
    let fresh = Fresh::new();
    let store = fresh.store();
    let events = [of_type("order.placed", 1), of_type("order.reminder", 2).deliver_after(later())];
    let ids = store.stage(&events).await.unwrap();
    assert_eq!(ids, [events[0].event().id, events[1].event().id]);
    let connection = fresh.connect();
    let both =
        "select (select count(*) from outbox) * 10 + (select count(*) from outbox_scheduled)";
    assert_eq!(number(&connection, both), 11);
    let bad = [of_type("order.placed", 3), of_type("", 4)];
    assert_eq!(store.stage(&bad).await.unwrap_err().kind(), ErrorKind::Invalid);
    let twice = store.stage(&events).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Conflict);
    let many: Vec<_> = (0..10_001).map(event).collect();
    assert_eq!(store.stage(&many).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(number(&connection, both), 11);
    assert_eq!(store.audit(&page(10, None)).await.unwrap().rows.len(), 0);
}
