//! Renames: everything of a destination goes with it, and who has the old name changes nothing.

use postrider_core::operate::{Note, RowKey, Submission, Verb};
use postrider_core::range::{Range, RangeChange};
use postrider_core::source::{CarryOutRequest, FetchRequest};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart, WaitingState,
};
use postrider_core::{Destination, DestinationId, ErrorKind, OutboxSource};
use postrider_testkit::memory::Kind;

use crate::relay::{Relay, a, event, ids, settlement, store};

fn b() -> DestinationId {
    DestinationId::new("b").unwrap()
}

/// Reads and settles everything under the new name, and says what it was.
async fn drain(relay: &Relay) -> Vec<postrider_core::EventId> {
    let mut at = relay.source.load(&relay.lease, &b()).await.unwrap().cursor;
    let mut read = Vec::new();
    loop {
        let request = FetchRequest {
            lease: relay.lease.clone(),
            destinations: vec![b()],
            after: at.clone(),
            until: None,
            rows_max: 2,
            bytes_max: u64::MAX,
        };
        let page = relay.source.fetch(&request).await.unwrap();
        if page.rows.is_empty() {
            return read;
        }
        let mut settlement = settlement(&relay.lease, &at, &page.rows);
        settlement.parts[0].destination = b();
        relay.source.settle(&settlement).await.unwrap();
        read.extend(ids(&page.rows));
        at = page.end;
    }
}

#[tokio::test]
async fn a_renamed_destination_goes_on_where_it_stood() {
    for kind in Kind::ALL {
        let store = store(kind).await;
        let events = (1..=6).map(|n| event(&n.to_string(), n)).collect();
        let rows = store.commit(events).unwrap();
        let relay = Relay::take(store.clone(), "old").await;
        let start = relay.load().await;
        let page = relay.fetch(&start, 100).await.unwrap();
        let mut first = settlement(&relay.lease, &start, &page.rows[..2]);
        let attempted = Attempted { attempts: 3, reason: Reason::GaveUp, detail: "500".to_owned() };
        first.parts[0].passed[1].1 = Passed::Waiting;
        first.parts[0].waiting.push(NewWaiting {
            row: page.rows[1].row,
            key_hash: page.rows[1].key_hash,
            event: None,
            placement: Placement::Dead { attempted, holds_key: true },
        });
        let range = RangeChange::Open(Range {
            key_hash: page.rows[1].key_hash,
            key: "order/2".into(),
            cursor: page.rows[0].cursor.clone(),
            version: 1,
        });
        first.parts[0].ranges.push(range);
        relay.source.settle(&first).await.unwrap();
        let ranges = relay.source.load(&relay.lease, &a()).await.unwrap().ranges;
        let dead = vec![RowKey { destination: a(), seq: page.rows[1].row.seq }];
        let note = Note::new("somebody", "a test").unwrap();
        let asked = store.submit(&Submission { verb: Verb::Redrive(dead), note }).unwrap();
        let version = store.destinations().await.unwrap().version;

        store.rename(&a(), &b()).unwrap();

        let there = store.destinations().await.unwrap();
        assert_eq!(there.version, version + 1, "{kind:?}: owners hear of it");
        let names: Vec<&str> = there.rows.iter().map(|row| row.definition.id.as_str()).collect();
        assert_eq!(names, ["b", Destination::UNROUTED], "{kind:?}");

        // Who still has the old name saves nothing, and reads nothing more.
        let mut late = settlement(&relay.lease, &page.rows[1].cursor, &page.rows[2..]);
        late.parts.push(SettlementPart::new(b()));
        relay
            .source
            .settle(&Settlement { lease: relay.lease.clone(), parts: late.parts })
            .await
            .unwrap();
        assert!(store.settled(&a()).is_empty() && store.waiting(&a()).is_empty(), "{kind:?}");
        let gone = relay.source.load(&relay.lease, &a()).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound, "{kind:?}");

        let moved = relay.source.load(&relay.lease, &b()).await.unwrap().ranges;
        assert_eq!(moved, ranges, "{kind:?}");
        assert_eq!(moved.is_some_and(|all| all.len() == 1), relay.source.capabilities().ranges);

        // The request follows: it is carried out under the new name.
        let request = CarryOutRequest { leases: vec![relay.lease.clone()], rows_max: 10 };
        let carried = relay.source.carry_out(&request).await.unwrap();
        assert_eq!(carried.touched, [(relay.lease.partition, b())], "{kind:?}");
        let state = store.request(asked).unwrap();
        assert_eq!((state.done, state.finished), (1, true), "{kind:?}");
        assert_eq!(store.waiting(&b())[0].state, WaitingState::Retrying, "{kind:?}");

        // What was passed is not read again, and everything else is, once.
        let rest: Vec<_> = rows[2..].iter().map(|row| row.id).collect();
        assert_eq!(drain(&relay).await, rest, "{kind:?}");
        let settled: Vec<_> = store.settled(&b()).iter().map(|(row, _)| *row).collect();
        assert_eq!(settled, rows, "{kind:?}: each once, in order");
        assert_eq!(store.settled(&a()), [], "{kind:?}");
    }
}

#[tokio::test]
async fn a_refused_rename_changes_nothing() {
    let store = store(Kind::ChangeLog).await;
    let before = store.destinations().await.unwrap();
    let unrouted = DestinationId::new(Destination::UNROUTED).unwrap();
    let cases = [
        (b(), a(), ErrorKind::NotFound),
        (a(), unrouted.clone(), ErrorKind::Invalid),
        (unrouted, b(), ErrorKind::Invalid),
    ];
    for (from, to, kind) in cases {
        assert_eq!(store.rename(&from, &to).unwrap_err().kind(), kind, "{from} to {to}");
    }
    store.rename(&a(), &a()).unwrap();
    assert_eq!(store.destinations().await.unwrap(), before);

    let route = postrider_core::Route::all("orders".parse().unwrap());
    let other = Destination::new(b(), "memory", vec![route]);
    let change = postrider_core::source::DefinitionChange {
        put: vec![(other, postrider_core::Start::Now)],
        ..Default::default()
    };
    store.apply(&change).await.unwrap();
    assert_eq!(store.rename(&a(), &b()).unwrap_err().kind(), ErrorKind::Conflict);
}
