//! What is named where events do not move, and that nothing is where they do.

use postrider_core::operate::{ErrorGroup, PartitionView, RelayView, SettledTotals};
use postrider_core::source::StoreFacts;
use postrider_core::waiting::Counts;
use postrider_core::{DestinationId, PartitionId, RelayId, Timestamp};

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000_000);
const LIMITS: Limits = Limits { age_max: Duration::from_secs(300), strict: false };

fn relay(name: &str) -> RelayId {
    RelayId::new(name).unwrap()
}

fn view() -> DestinationView {
    DestinationView {
        id: DestinationId::new("default").unwrap(),
        kind: "url".into(),
        version: 1,
        state: DestinationState::Active,
        pending: 3,
        pending_since: Some(Timestamp::from_micros(0)),
        waiting: Counts::default(),
        ranges: 0,
        waiting_since: None,
        dead_since: None,
        retry_next: None,
        settled: SettledTotals::default(),
        saved_at: None,
        errors: Vec::new(),
        disabled: Vec::new(),
    }
}

/// A store with one relay that owns the partition.
fn overview() -> Overview {
    let left = Duration::from_secs(12);
    Overview {
        facts: StoreFacts { name: "shop".into(), partitions: 1, schema: 2 },
        now: NOW,
        definitions: 1,
        enqueued: 10,
        kept: 10,
        oldest: None,
        relays: vec![RelayView {
            owner: relay("a"),
            current: true,
            expires_in: left,
            hindrances: Vec::new(),
        }],
        partitions: vec![PartitionView {
            partition: PartitionId(0),
            owner: Some(relay("a")),
            host: Some("db1".into()),
            expires_in: Some(left),
            takeovers: 0,
            paused: false,
        }],
        destinations: vec![view()],
        scheduled: 0,
        scheduled_next: None,
        requests: 0,
        stray_bytes: None,
        copy: false,
    }
}

/// The causes, each with whether it is critical.
fn causes(overview: &Overview, moved: Option<bool>) -> Vec<Blocker> {
    let seen: Vec<Seen<'_>> = overview
        .destinations
        .iter()
        .map(|view| Seen { view, moved, dead_keys: DeadKeys { keys: 1, at_least: false } })
        .collect();
    held_up_by(overview, &seen, LIMITS, None)
}

fn kinds(blockers: &[Blocker]) -> Vec<(&str, bool)> {
    blockers.iter().map(|blocker| (blocker.kind, blocker.critical)).collect()
}

/// The negative control: a backlog that moves is held up by nobody, however old.
#[test]
fn what_moves_is_held_up_by_nobody() {
    let found = causes(&overview(), Some(true));
    assert_eq!(kinds(&found), []);
    assert_eq!(verdict(&found, true), Verdict::Healthy);
}

/// INV-8: whatever stands has a cause, also where nobody knows which.
#[test]
fn every_standstill_has_a_cause() {
    type Change = fn(&mut Overview);
    let cases: [(Change, &str); 9] = [
        (|overview| overview.destinations.clear(), "no_destination"),
        (|overview| (overview.destinations.clear(), overview.relays.clear()).0, "no_relay"),
        (|_| {}, "unknown"),
        (|overview| overview.copy = true, "copy"),
        (|overview| overview.relays.clear(), "no_relay"),
        (|overview| overview.kept = overview.enqueued + 1, "numbers"),
        (|overview| overview.relays[0].current = false, "definitions"),
        (|overview| overview.partitions[0].paused = true, "partition_paused"),
        (
            |overview| overview.destinations[0].state = DestinationState::Paused,
            "destination_paused",
        ),
    ];
    for (change, expected) in cases {
        let mut overview = overview();
        change(&mut overview);
        for moved in [Some(false), None] {
            let found = causes(&overview, moved);
            assert!(kinds(&found).contains(&(expected, true)), "{expected}: {found:?}");
            assert_eq!(verdict(&found, false), Verdict::Unhealthy, "{expected}");
            assert!(found.iter().all(|blocker| !blocker.advice.is_empty()));
        }
    }
}

/// INV-8: what stands is told of long before it is old enough to be critical.
#[test]
fn a_standstill_is_told_of_before_it_is_critical() {
    let mut overview = overview();
    for (seconds, expected) in
        [(59, None), (61, Some(false)), (299, Some(false)), (301, Some(true))]
    {
        let since = NOW.as_micros() - seconds * 1_000_000;
        overview.destinations[0].pending_since = Some(Timestamp::from_micros(since));
        let expected: Vec<_> = expected.map(|critical| ("unknown", critical)).into_iter().collect();
        assert_eq!(kinds(&causes(&overview, Some(false))), expected, "{seconds}");
    }
}

/// INV-8: events of other routes pass while a destination is out, and it does not move because of them.
#[test]
fn a_destination_moves_as_its_oldest_does() {
    let (before, mut now) = (view(), view());
    now.settled.count = 50;
    assert_eq!(moved(NOW, &now, Some(&before)), Some(false));
    assert_eq!(moved(NOW, &now, None), None);
    now.pending_since = Some(Timestamp::from_micros(1));
    assert_eq!(moved(NOW, &now, Some(&before)), Some(true));
    now.pending_since = None;
    assert_eq!(moved(NOW, &now, Some(&before)), Some(true));
    now.settled.count = 0;
    assert_eq!(moved(NOW, &now, Some(&before)), Some(false));
    now.saved_at = Some(NOW);
    assert_eq!(moved(NOW, &now, None), Some(true));
}

#[test]
fn a_lease_of_the_dead_is_named_with_its_host_and_its_end() {
    let mut overview = overview();
    overview.partitions[0].owner = Some(relay("b"));
    let found = causes(&overview, Some(true));
    assert_eq!(kinds(&found), [("lease", false)]);
    assert!(found[0].message.contains("b on db1"), "{found:?}");
    assert!(found[0].advice.contains("12s"), "{found:?}");
}

#[test]
fn what_waits_is_named_with_what_was_answered() {
    let mut overview = overview();
    let view = &mut overview.destinations[0];
    view.waiting = Counts { retrying: 4, disabled: 2, dead: 1, parked: 7, held: 0 };
    view.disabled = vec!["https://a.example/hook".into()];
    view.retry_next = Some(NOW.plus(Duration::from_secs(5)));
    view.errors =
        vec![ErrorGroup { reason: "failed".into(), detail: "503 from the proxy".into(), count: 4 }];
    let found = causes(&overview, Some(true));
    assert_eq!(
        kinds(&found),
        [("endpoint_disabled", true), ("endpoint_down", false), ("dead_letters", false)]
    );
    assert!(found[0].advice.ends_with("enable default https://a.example/hook"), "{found:?}");
    assert!(found[1].message.contains("503 from the proxy"), "{found:?}");
    assert!(found[2].message.contains("holds 1 key; 7 events wait behind"), "{found:?}");
    let strict = Limits { strict: true, ..LIMITS };
    assert_eq!(verdict(&found[1..], false), Verdict::Healthy);
    assert_eq!(verdict(&found[1..], strict.strict), Verdict::Unhealthy);
}

#[test]
fn an_endpoint_that_is_down_for_long_is_critical_though_its_events_wait_aside() {
    let mut overview = overview();
    let view = &mut overview.destinations[0];
    view.pending = 0;
    view.pending_since = None;
    view.waiting = Counts { retrying: 1, ..Counts::default() };
    view.waiting_since = Some(Timestamp::from_micros(0));
    view.errors =
        vec![ErrorGroup { reason: "endpoint_down".into(), detail: "refused".into(), count: 1 }];
    for (moved, critical) in [(Some(false), true), (None, true), (Some(true), false)] {
        assert_eq!(kinds(&causes(&overview, moved)), [("endpoint_down", critical)], "{moved:?}");
    }
    // What is tried again by its own fault has its end in its attempts.
    overview.destinations[0].errors[0].reason = "failed".into();
    assert_eq!(kinds(&causes(&overview, None)), [("endpoint_down", false)]);
    overview.destinations[0].errors[0].reason = "endpoint_down".into();
    overview.destinations[0].waiting_since = Some(NOW);
    assert_eq!(kinds(&causes(&overview, None)), [("endpoint_down", false)]);
}

/// What a range stands for is in no count: it is named beside the counts that it is missing from.
#[test]
fn what_ranges_stand_for_is_named_beside_what_waits() {
    let mut overview = overview();
    let view = &mut overview.destinations[0];
    view.waiting = Counts { dead: 1, parked: 10_000, ..Counts::default() };
    view.ranges = 1;
    let seen = |overview: &Overview| {
        let dead_keys = DeadKeys { keys: 1, at_least: false };
        let seen = Seen { view: &overview.destinations[0], moved: Some(true), dead_keys };
        held_up_by(overview, &[seen], LIMITS, None).remove(0).message
    };
    assert!(seen(&overview).ends_with("; 10,000 events wait behind, and what 1 range stands for"));
    let view = &mut overview.destinations[0];
    (view.ranges, view.state) = (2, DestinationState::Paused);
    let told = seen(&overview);
    assert!(told.ends_with("10,003 events wait for it, and what 2 ranges stand for"), "{told}");
    overview.destinations[0].ranges = 0;
    assert!(seen(&overview).ends_with("10,003 events wait for it"));
}

/// `--to` writes a destination of its own: it is offered only where a store has none.
#[test]
fn a_relay_is_started_by_what_names_its_destinations() {
    let mut overview = overview();
    overview.relays.clear();
    let path = Path::new("/etc/postrider.toml");
    assert!(start_relay(&overview, Some(path)).ends_with("relay --config /etc/postrider.toml"));
    assert!(start_relay(&overview, None).contains("as it was before"));
    assert!(!start_relay(&overview, None).contains("--to"));
    // Every store has `unrouted`.
    overview.destinations[0].id = DestinationId::new(Destination::UNROUTED).unwrap();
    assert!(start_relay(&overview, None).contains("--to URL"));
    assert!(!start_relay(&overview, Some(path)).contains("--to"));
    overview.destinations.clear();
    assert!(start_relay(&overview, None).contains("--to URL"));
}

/// INV-8: what a relay says of itself is said where only the store is at hand, and is the cause of what stands.
#[test]
fn what_a_relay_says_of_itself_is_named() {
    let mut overview = overview();
    let refused = "endpoint orders: connection refused";
    let of = |id: &str| Some(DestinationId::new(id).unwrap());
    overview.relays[0].hindrances = vec![
        Hindrance::new(of("elsewhere"), "endpoint audit: no such topic"),
        Hindrance::new(of("default"), refused),
    ];
    let mut other = overview.relays[0].clone();
    other.owner = relay("b");
    overview.relays.push(other);
    let found = causes(&overview, Some(true));
    assert_eq!(kinds(&found), [("relay_hindered", false); 2], "each is named once: {found:?}");
    assert_eq!(found[1].message, format!("default: {refused}"));
    assert_eq!(verdict(&found, false), Verdict::Healthy, "what moves is not held up");
    let found = causes(&overview, Some(false));
    assert_eq!(found[0].kind, "unknown");
    assert!(found[0].advice.ends_with(refused), "{found:?}");
    let disk = "the disk is full";
    overview
        .relays
        .iter_mut()
        .for_each(|relay| relay.hindrances = vec![Hindrance::new(None, disk)]);
    let found = causes(&overview, Some(false));
    assert!(found[0].advice.ends_with(disk) && found[1].message == format!("store: {disk}"));
}
