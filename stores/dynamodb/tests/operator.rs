//! The operator's side, on DynamoDB Local.

use std::sync::Arc;

use postrider_core::operate::{Note, PageRequest};
use postrider_core::source::DefinitionChange;
use postrider_core::{
    Destination, DestinationId, DestinationState, ErrorKind, InboxStore, NewEvent, Operator,
    OutboxSource, PartitionId, Payload, Start, Timestamp,
};
use postrider_dynamodb::{DynamoStore, Options, Outbox};

use crate::fresh::Fresh;

fn note() -> Note {
    Note::new("anna@db1", "a test").unwrap()
}

/// A store with one destination, and a handle that does not read the stream.
async fn store() -> Option<(Fresh, DynamoStore)> {
    let fresh = Fresh::new(2).await?;
    let mut options = Options::default();
    options.stream = false;
    let store = DynamoStore::with(fresh.connection.clone(), options);
    let id = DestinationId::new("a").unwrap();
    let definition = Destination::new(id, "local", vec![]);
    store.register(&[definition]).await.unwrap();
    Some((fresh, store))
}

/// One value is source, operator, and inbox, as programs want it.
#[tokio::test(flavor = "multi_thread")]
async fn one_handle_has_every_side() {
    fn sides<S: OutboxSource + Operator + InboxStore + 'static>(store: S) -> Arc<dyn Operator> {
        Arc::new(store)
    }
    let Some((_fresh, store)) = store().await else { return };
    let operator = sides(store.clone());
    let staged = operator.stage(&[NewEvent::new("order", "1", "order.placed")]).await.unwrap();
    assert_eq!(staged.len(), 1);
    let overview = operator.overview().await.unwrap();
    assert_eq!((overview.kept, overview.destinations.len()), (1, 2));
    let view = &overview.destinations[0];
    assert_eq!((view.id.as_str(), view.pending, view.kind.as_str()), ("a", 1, "local"));
    assert!(view.pending_since.is_some());
    assert!(overview.partitions.iter().all(|partition| partition.owner.is_none()));
    assert_eq!(store.purge(std::time::Duration::ZERO, 1).await.unwrap(), 0, "the inbox answers");
    let found = operator.doctor(Timestamp::now()).await.unwrap();
    assert!(found.iter().any(|finding| finding.subject == "relay"), "{found:?}");
}

/// Every change leaves who and why, in the transaction of the change; what changes nothing leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_audited() {
    let Some((_fresh, store)) = store().await else { return };
    let id = DestinationId::new("a").unwrap();
    for _ in 0..2 {
        store.set_destination(&id, DestinationState::Paused, &note()).await.unwrap();
        store.set_partition(PartitionId(1), true, &note()).await.unwrap();
    }
    let mut changed = Destination::new(id, "local", vec![]);
    changed.limits.payload_bytes_max = 1_000;
    let put = vec![(changed, Start::Now)];
    let change = DefinitionChange { put, ..DefinitionChange::default() };
    Operator::apply(&store, &change, &note()).await.unwrap();
    let absent = store.set_partition(PartitionId(2), true, &note()).await.unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::NotFound, "{absent}");
    let other = DestinationId::new("b").unwrap();
    let absent = store.set_destination(&other, DestinationState::Paused, &note()).await;
    assert_eq!(absent.unwrap_err().kind(), ErrorKind::NotFound);
    let page = PageRequest { after: None, limit: 2 };
    let first = store.audit(&page).await.unwrap();
    let whats = |rows: &[postrider_core::operate::AuditEntry]| {
        rows.iter().map(|row| (row.number, row.what.clone())).collect::<Vec<_>>()
    };
    assert_eq!(
        whats(&first.rows),
        [(3, "destinations apply".to_owned()), (2, "partitions pause".to_owned())]
    );
    let rest = store.audit(&PageRequest { after: first.next, limit: 2 }).await.unwrap();
    assert_eq!(whats(&rest.rows), [(1, "destinations pause".to_owned())]);
    assert_eq!((&*rest.rows[0].who, &*rest.rows[0].why), ("anna@db1", "a test"));
    assert_eq!(rest.next, None);
    let overview = store.overview().await.unwrap();
    assert_eq!(overview.destinations[0].state, DestinationState::Paused);
    assert!(overview.partitions[1].paused && !overview.partitions[0].paused);
}

/// A collection may be called like a key and hold events of another: they are not erased with it, and the key's own are
/// found where they stand.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_takes_no_other_key_and_leaves_none_of_its_own() {
    let Some((fresh, store)) = store().await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let said = |key: &str, n: u32| {
        NewEvent::new("order", n.to_string(), "order.placed").ordered_by(key).json(&n).unwrap()
    };
    let (other, own) = (said("customer/9", 1), said("order/1", 2));
    outbox.write_under("order/1", &[], std::slice::from_ref(&other)).await.unwrap();
    outbox.write_under("TENANT#acme", &[], std::slice::from_ref(&own)).await.unwrap();
    let fresh_handle = store.beside();
    assert_eq!(fresh_handle.erasable("order/1").await.unwrap().outbox, 1);
    fresh_handle.erase("order/1", &note()).await.unwrap();
    let payload =
        async |event: &NewEvent| store.event(event.event().id).await.unwrap().event.payload;
    assert_eq!(payload(&own).await, Payload::Erased);
    assert_eq!(payload(&other).await, other.event().payload, "another customer's");
    assert_eq!(store.erasable("order/1").await.unwrap().total(), 0);
}
