//! Whoever holds what waits is named.

use postrider_core::operate::{ErrorGroup, Level, SettledTotals};
use postrider_core::waiting::Counts;
use postrider_core::{DestinationState, PartitionId, Timestamp};

use super::*;

fn view(waiting: Counts, errors: &[(&str, &str, u64)]) -> DestinationView {
    let group = |(reason, detail, count): &(&str, &str, u64)| ErrorGroup {
        reason: (*reason).to_owned(),
        detail: (*detail).to_owned(),
        count: *count,
    };
    DestinationView {
        id: DestinationId::new("hook").unwrap(),
        kind: "webhook".into(),
        version: 1,
        state: DestinationState::Active,
        pending: 0,
        pending_since: None,
        waiting,
        ranges: 0,
        waiting_since: None,
        dead_since: None,
        retry_next: None,
        settled: SettledTotals::default(),
        saved_at: None,
        errors: errors.iter().map(group).collect(),
        disabled: Vec::new(),
    }
}

fn row(key: &str, endpoint: Option<&str>) -> WaitingView {
    WaitingView {
        destination: DestinationId::new("hook").unwrap(),
        partition: PartitionId(0),
        seq: 1,
        id: None,
        event_type: None,
        key: key.to_owned(),
        tenant: None,
        created_at: None,
        status: Status::Parked,
        attempts: 0,
        reason: "behind".to_owned(),
        detail: String::new(),
        endpoint: endpoint.map(str::to_owned),
        next_at: None,
        moved_at: Timestamp::from_micros(0),
        holds_key: true,
        late: false,
    }
}

#[test]
fn a_key_a_reason_and_an_endpoint_are_named() {
    let waiting = Counts { dead: 1, parked: 99, ..Counts::default() };
    let errors = [("behind", "", 99), ("rejected", "422 no such order", 1)];
    let rows: Vec<_> = (0..100).map(|n| row(if n < 30 { "order/42" } else { "x" }, None)).collect();
    let mut keys = rows.clone();
    (30..100).for_each(|n| keys[n].key = n.to_string());
    let told = holder(&view(waiting, &errors), &keys);
    assert_eq!(told, "1 are rejected (422 no such order); 30 of the first 100 are of key order/42");
    keys.iter_mut().for_each(|row| row.endpoint = Some("https://p.example".to_owned()));
    let told = holder(&view(waiting, &[]), &keys[30..]);
    assert_eq!(told, "70 of the first 70 are of endpoint https://p.example");
    let told = holder(&view(waiting, &[]), &rows[..1]);
    assert_eq!(told, "1 of the first 1 are of key order/42");
}

/// INV-8: half is a warning, and the bound is critical, in the doctor and in the status.
#[test]
fn half_of_the_bound_warns_and_all_of_it_is_critical() {
    let half = Counts { dead: 20, parked: 30, ..Counts::default() };
    assert!(!is_crowded(&view(Counts { parked: 29, ..half }, &[]), 100));
    assert!(is_crowded(&view(half, &[]), 100));
    let of = |waiting| Crowd {
        destination: DestinationId::new("hook").unwrap(),
        waiting,
        most: 100,
        holder: "50 are rejected".to_owned(),
    };
    let (warns, full) = (of(50).finding(), of(100).finding());
    assert_eq!((warns.level, warns.code), (Level::Warning, Some(Code::WaitingFull)));
    assert_eq!(warns.message, "50 events of hook wait, of 100 that may: 50 are rejected");
    assert_eq!(full.level, Level::Critical);
    assert!(full.message.contains("nothing new is read"), "{}", full.message);
    assert!(!of(99).blocker().critical && of(100).blocker().critical);
}
