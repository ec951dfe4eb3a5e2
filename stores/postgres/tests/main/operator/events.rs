//! Lists of events, and single ones.

use postrider_core::operate::{Filter, Operator, Status};
use postrider_core::{ErrorKind, EventId, Glob, Payload};
use proptest::prelude::*;

use super::{Act, Play, all, everything, joined, later, of_type, only, page};
use crate::support::id;

fn statuses(play: &[(String, Status)]) -> Vec<(&str, Status)> {
    play.iter().map(|(name, status)| (name.as_str(), *status)).collect()
}

async fn told(play: &Play, seq: u64) -> Vec<(String, Status)> {
    let listed = play.store.events(&all(), &page(100, None)).await.expect("a page");
    let view = listed.rows.into_iter().find(|row| row.seq == seq).expect("the event");
    let pairs = view.deliveries.into_iter();
    pairs.map(|delivery| (delivery.destination.to_string(), delivery.status)).collect()
}

#[tokio::test]
async fn each_event_says_what_became_of_it_everywhere() {
    let Some(play) = Play::begin(&[everything("a"), only("b", "order.*")]).await else { return };
    play.commit(&[
        of_type("order.placed", 1),
        of_type("bill.sent", 2),
        of_type("order.placed", 3),
        of_type("order.placed", 3),
        of_type("order.placed", 5),
        of_type("bill.sent", 6),
    ])
    .await;
    play.settle("a", &[Act::Ack, Act::Ack, Act::Dead, Act::Park]).await;
    play.settle("b", &[Act::Ack, Act::Elsewhere, Act::Retry]).await;
    let expected: [&[(&str, Status)]; 6] = [
        &[("a", Status::Published), ("b", Status::Published)],
        &[("a", Status::Published)],
        &[("a", Status::Dead), ("b", Status::Retrying)],
        &[("a", Status::Parked), ("b", Status::Pending)],
        &[("a", Status::Pending), ("b", Status::Pending)],
        &[("a", Status::Pending)],
    ];
    for (seq, expected) in (1..).zip(expected) {
        assert_eq!(statuses(&told(&play, seq).await), expected, "event {seq}");
    }
    let listed = play.store.events(&all(), &page(2, None)).await.unwrap();
    let numbers: Vec<u64> = listed.rows.iter().map(|row| row.seq).collect();
    assert_eq!(numbers, [6, 5], "newest first");
    assert_eq!(listed.rows[1].key, "order/5");
    assert_eq!(listed.rows[1].payload_bytes, 1);
}

/// An event that nobody takes is `unrouted`'s; one from before a destination began is shown as that.
#[tokio::test]
async fn what_nobody_takes_and_what_came_before_are_told() {
    let Some(play) = Play::begin(&[only("b", "order.*")]).await else { return };
    play.commit(&[of_type("bill.sent", 1), of_type("order.placed", 2)]).await;
    assert_eq!(told(&play, 1).await, [("unrouted".to_owned(), Status::Pending)]);
    play.settle("unrouted", &[Act::Dead, Act::Elsewhere]).await;
    assert_eq!(told(&play, 1).await, [("unrouted".to_owned(), Status::Dead)]);
    play.settle("b", &[Act::Elsewhere, Act::Ack]).await;
    play.fresh
        .run("update {outbox_cursor} set origin = pg_current_snapshot() where destination = 'b'")
        .await;
    assert_eq!(told(&play, 2).await, [("b".to_owned(), Status::BeforeStart)]);
}

#[tokio::test]
async fn filters_say_what_they_mean() {
    let Some(play) = Play::begin(&[everything("a"), only("b", "order.*")]).await else { return };
    play.commit(&[
        of_type("order.placed", 1).tenant("acme"),
        of_type("bill.sent", 2),
        of_type("order.paid", 3),
        of_type("order.placed", 4),
    ])
    .await;
    play.settle("a", &[Act::Ack, Act::Retry, Act::Dead]).await;
    let found = async |change: &dyn Fn(&mut Filter)| {
        let mut filter = all();
        change(&mut filter);
        let rows = play.store.events(&filter, &page(100, None)).await.unwrap().rows;
        rows.iter().map(|row| row.seq).collect::<Vec<_>>()
    };
    let whole = play.store.events(&all(), &page(100, None)).await.unwrap().rows;
    let second = whole.iter().find(|row| row.seq == 2).unwrap();
    assert_eq!(found(&|f| f.event_type = Some(Glob::new("order.*"))).await, [4, 3, 1]);
    assert_eq!(found(&|f| f.event_type = Some(Glob::new("order.p?id"))).await, [] as [u64; 0]);
    assert_eq!(found(&|f| f.aggregate_type = Some(Glob::new("o*r"))).await, [4, 3, 2, 1]);
    assert_eq!(found(&|f| f.tenant = Some("acme".into())).await, [1]);
    assert_eq!(found(&|f| f.key = Some("order/3".into())).await, [3]);
    assert_eq!(found(&|f| f.id = Some(second.id)).await, [2]);
    assert_eq!(found(&|f| f.destination = Some(id("b"))).await, [4, 3, 1]);
    assert_eq!(found(&|f| f.status = vec![Status::Dead, Status::Published]).await, [3, 1]);
    assert_eq!(found(&|f| f.error = Some("bad REQUEST".into())).await, [3]);
    assert_eq!(found(&|f| f.attempts_min = Some(1)).await, [3, 2]);
    assert_eq!(found(&|f| f.since = Some(later())).await, [] as [u64; 0]);
    assert_eq!(found(&|f| f.until = Some(later())).await, [4, 3, 2, 1]);
    assert_eq!(found(&|f| f.since = Some(second.created_at)).await.len(), 4 - skipped(&whole));
    // One delivery must meet all conditions: b's is pending, a's is dead.
    let both = |f: &mut Filter| {
        f.destination = Some(id("b"));
        f.status = vec![Status::Dead];
    };
    assert_eq!(found(&both).await, [] as [u64; 0]);
}

/// Events created before the second one.
fn skipped(whole: &[postrider_core::operate::EventView]) -> usize {
    let second = whole.iter().find(|row| row.seq == 2).expect("the second").created_at;
    whole.iter().filter(|row| row.created_at < second).count()
}

/// F32: what a filter holds is compared, never carried out.
#[tokio::test]
async fn filters_are_data() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    play.commit(&[of_type("order.placed", 1), of_type("100%_[x]?'", 2)]).await;
    for hostile in [
        "'; drop table outbox; --",
        "' or '1'='1",
        "%",
        "_",
        "order.placed\0",
        "\0",
        "[a-z]*",
        "?????.??????",
        "\u{202e}order",
        &"*a".repeat(5_000),
    ] {
        let filter = |change: &dyn Fn(&mut Filter)| {
            let mut filter = all();
            change(&mut filter);
            filter
        };
        for filter in [
            filter(&|f| f.key = Some(hostile.into())),
            filter(&|f| f.tenant = Some(hostile.into())),
            filter(&|f| f.event_type = Some(Glob::new(hostile))),
            filter(&|f| f.aggregate_type = Some(Glob::new(hostile))),
            filter(&|f| f.error = Some(hostile.into())),
        ] {
            let events = play.store.events(&filter, &page(100, None)).await.unwrap();
            assert_eq!(events.rows.len(), 0, "{filter:?}");
            assert_eq!(play.store.waiting(&filter, &page(100, None)).await.unwrap().rows.len(), 0);
            let rows = play.store.scheduled(&filter, &page(100, None)).await.unwrap().rows;
            assert_eq!(rows.len(), 0);
        }
        for list in ["events", "waiting", "scheduled"] {
            let request = page(10, Some(hostile));
            let refused = match list {
                "events" => play.store.events(&all(), &request).await.map(drop),
                "waiting" => play.store.waiting(&all(), &request).await.map(drop),
                _ => play.store.scheduled(&all(), &request).await.map(drop),
            };
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid, "{list} {hostile:?}");
        }
    }
    let mut literal = all();
    literal.event_type = Some(Glob::new("100%_[x]?'"));
    assert_eq!(play.store.events(&literal, &page(10, None)).await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn pages_have_limits() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    for limit in [0, 10_001, u32::MAX] {
        let request = page(limit, None);
        for refused in [
            play.store.events(&all(), &request).await.map(drop),
            play.store.waiting(&all(), &request).await.map(drop),
            play.store.scheduled(&all(), &request).await.map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}

/// One call looks at a bounded stretch; a filter that lets nothing through says where to go on.
#[tokio::test]
async fn a_long_search_goes_on_from_page_to_page() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    play.commit(&[of_type("rare", 1)]).await;
    play.fresh
        .run(
            "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
            select 'order', n::text, 'common', '{}' from generate_series(1, 120000) as n",
        )
        .await;
    let mut filter = all();
    filter.event_type = Some(Glob::new("rare"));
    let first = play.store.events(&filter, &page(10, None)).await.unwrap();
    assert_eq!(first.rows.len(), 0);
    let next = first.next.expect("there is more to look at");
    let second = play.store.events(&filter, &page(10, Some(&next))).await.unwrap();
    assert_eq!((second.rows.len(), second.rows[0].seq, second.next), (1, 1, None));
    let mut dead = all();
    dead.status = vec![Status::Dead];
    play.settle("a", &[Act::Dead]).await;
    let read = async |p: &postrider_core::operate::PageRequest| play.store.events(&dead, p).await;
    let found: Vec<u64> = joined(10, read).await.iter().map(|row| row.seq).collect();
    assert_eq!(found, [1]);
}

#[tokio::test]
async fn an_event_is_found_wherever_it_is() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    let events: Vec<_> = (0..3).map(|_| of_type("order.placed", 7)).collect();
    play.commit(&events).await;
    let scheduled = of_type("order.reminder", 7).deliver_after(later());
    play.commit(std::slice::from_ref(&scheduled)).await;
    play.settle("a", &[Act::Dead, Act::Park]).await;
    let third = play.store.event(events[2].event().id).await.unwrap();
    assert_eq!((third.seq, third.due), (Some(3), None));
    assert_eq!(third.event.payload, Payload::Json("7".into()));
    assert_eq!(third.deliveries[0].status, Status::Pending);
    let behind: Vec<_> = third.behind.iter().map(|row| (row.seq, row.status)).collect();
    assert_eq!(behind, [(1, Status::Dead), (2, Status::Parked)]);
    let later = play.store.event(scheduled.event().id).await.unwrap();
    assert_eq!((later.seq, later.due), (None, scheduled.due()));
    assert_eq!(later.deliveries[0].status, Status::Scheduled);
    play.fresh.run("delete from {outbox}").await;
    let kept = play.store.event(events[0].event().id).await.unwrap();
    assert_eq!((kept.seq, kept.deliveries[0].status), (Some(1), Status::Dead));
    assert_eq!(kept.deliveries[0].detail.as_deref(), Some("400 Bad Request"));
    let refused = play.store.event(EventId::mint()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
}

/// F29: a row that a relay cannot read is shown as far as it can be read.
#[tokio::test]
async fn an_unreadable_event_can_be_looked_at() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    let event = of_type("order.placed", 7);
    play.commit(std::slice::from_ref(&event)).await;
    play.fresh
        .run(
            "set postrider.repair = 'on';
            update {outbox} set format = 9, tenant = E'\\x01A', headers = '{\"a\": \"b\"}'",
        )
        .await;
    let found = play.store.event(event.event().id).await.unwrap();
    assert_eq!(found.event.payload, Payload::Json("7".into()));
    assert_eq!(found.event.tenant.as_deref(), Some("\u{1}A"));
    assert_eq!(found.event.headers.len(), 1);
    assert_eq!(play.store.events(&all(), &page(10, None)).await.unwrap().rows.len(), 1);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![Just(Act::Ack), Just(Act::Retry), Just(Act::Dead), Just(Act::Park)]
}

fn some_filter() -> impl Strategy<Value = Filter> {
    let status = prop_oneof![
        Just(vec![]),
        Just(vec![Status::Dead]),
        Just(vec![Status::Retrying, Status::Parked]),
        Just(vec![Status::Pending, Status::Published]),
    ];
    let glob = proptest::option::of(prop_oneof![Just("order.*"), Just("*.sent"), Just("x")]);
    let key = proptest::option::of(0u32..3);
    let destination = proptest::option::of(prop_oneof![Just("a"), Just("b")]);
    (status, glob, key, destination, proptest::option::of(0u32..4)).prop_map(
        |(status, glob, key, destination, attempts_min)| {
            let mut filter = Filter::default();
            filter.status = status;
            filter.event_type = glob.map(Glob::new);
            filter.key = key.map(|order| format!("order/{order}"));
            filter.destination = destination.map(id);
            filter.attempts_min = attempts_min;
            filter
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Pages of any size, under any filter, joined, are the whole list: nothing twice, nothing left
    /// out, in order.
    #[test]
    fn pages_joined_are_the_whole(
        kinds in proptest::collection::vec((any::<bool>(), 0u32..3, act()), 1..40),
        limit in 1u32..9,
        filter in some_filter(),
    ) {
        runtime().block_on(async {
            let Some(play) = Play::begin(&[everything("a"), only("b", "order.*")]).await else { return };
            let events: Vec<_> = kinds
                .iter()
                .map(|(order, number, _)| {
                    of_type(if *order { "order.placed" } else { "bill.sent" }, *number)
                })
                .collect();
            play.commit(&events).await;
            let acts: Vec<Act> = kinds.iter().map(|(_, _, act)| *act).collect();
            play.settle("a", &acts[..acts.len() / 2]).await;
            play.settle("b", &acts[..acts.len() / 3]).await;
            let whole = play.store.events(&filter, &page(10_000, None)).await.unwrap();
            assert_eq!(whole.next, None);
            let by_page = joined(limit, async |p| play.store.events(&filter, p).await).await;
            assert_eq!(by_page, whole.rows);
            assert!(whole.rows.is_sorted_by(|a, b| a.seq > b.seq));
            let whole = play.store.waiting(&filter, &page(10_000, None)).await.unwrap();
            assert_eq!(whole.next, None);
            let by_page = joined(limit, async |p| play.store.waiting(&filter, p).await).await;
            assert_eq!(by_page, whole.rows);
            let in_order = |a: &postrider_core::operate::WaitingView,
                            b: &postrider_core::operate::WaitingView| {
                (&a.destination, a.seq) < (&b.destination, b.seq)
            };
            assert!(whole.rows.is_sorted_by(in_order));
        });
    }
}
