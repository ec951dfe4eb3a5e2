//! Of everything that can be wrong with the flow of events, each finding has a code and says what to do.

use super::*;
use crate::operate::{PartitionView, RelayView, SettledTotals};
use crate::source::StoreFacts;
use crate::waiting::Counts;
use crate::{ErrorKind, PartitionId};

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000_000);

fn destination(id: &str, state: DestinationState) -> DestinationView {
    DestinationView {
        id: id.parse().unwrap(),
        kind: "file".to_owned(),
        version: 1,
        state,
        pending: 3,
        pending_since: None,
        waiting: Counts { dead: 1, parked: 1, ..Counts::default() },
        ranges: 0,
        waiting_since: None,
        dead_since: None,
        retry_next: None,
        settled: SettledTotals::default(),
        saved_at: None,
        errors: Vec::new(),
        disabled: vec!["orders".to_owned()],
    }
}

/// Everything that can be wrong, but for relays.
fn ill() -> Overview {
    let partition = PartitionView {
        partition: PartitionId(0),
        owner: None,
        host: None,
        expires_in: None,
        takeovers: TAKEOVERS_MAX,
        paused: true,
    };
    Overview {
        facts: StoreFacts { name: "memory".to_owned(), partitions: 1, schema: 1 },
        now: NOW.plus(SKEW_CRITICAL * 2),
        definitions: 2,
        enqueued: 3,
        kept: 3,
        oldest: None,
        relays: Vec::new(),
        partitions: vec![partition],
        destinations: vec![
            destination("a", DestinationState::Active),
            destination("b", DestinationState::Paused),
        ],
        scheduled: 0,
        scheduled_next: None,
        requests: 1,
        stray_bytes: None,
        copy: false,
    }
}

#[test]
fn what_is_not_good_has_a_code_and_says_what_to_do() {
    let mut overview = ill();
    let alone = flow(&overview, NOW, "--store memory");
    let outdated = RelayView {
        owner: "r1".parse().unwrap(),
        current: false,
        expires_in: Duration::from_secs(1),
        hindrances: Vec::new(),
    };
    overview.relays.push(outdated);
    overview.now = NOW.plus(SKEW_WARNING * 2);
    let apart = flow(&overview, NOW, "--store memory");
    for finding in alone.iter().chain(&apart).filter(|finding| finding.level != Level::Good) {
        assert!(finding.code.is_some() && finding.advice.is_some(), "{finding:?}");
    }
    let mut codes: Vec<Code> =
        alone.iter().chain(&apart).filter_map(|finding| finding.code).collect();
    codes.sort();
    codes.dedup();
    let expected = [
        Code::DefinitionOutdated,
        Code::NoRelay,
        Code::EndpointDisabled,
        Code::ClocksApart,
        Code::RelayAbsent,
        Code::RelaysDie,
        Code::FlowPaused,
        Code::DeadLetters,
    ];
    assert_eq!(codes, expected);
}

#[test]
fn what_could_not_be_examined_says_what_to_do_about_its_error() {
    let refused = unexamined("tables", &Error::new(ErrorKind::Unauthorized, "look"));
    assert_eq!(refused.code, Some(Code::Unauthorized));
    let late = unexamined("tables", &Error::new(ErrorKind::Timeout, "look"));
    assert_eq!((late.level, late.code), (Level::Warning, Some(Code::Unexamined)));
    assert_eq!(late.advice.as_deref(), Some(Code::Unexamined.advice()));
}
