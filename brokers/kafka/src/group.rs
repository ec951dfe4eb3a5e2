//! The group's coordinator, as the library's reports show it: while that stands still, the library says nothing.
//!
//! Invariant (INV-8): who is given nothing since nobody coordinates its group says so, and does not seem to have nothing to do.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::ErrorKind;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::statistics::{Broker, Statistics};

/// The library's name for a connection that goes to whichever server coordinates the group.
const LOGICAL: &str = "logical";

/// Who is not let in asks now and then, and a report may be as old.
const SILENCE_MIN: Duration = Duration::from_secs(5);

/// States in which the coordinator answers when all members have, and no heartbeat is asked for.
const JOINING: [&str; 3] = ["wait-join", "wait-metadata", "wait-sync"];

/// See the module.
pub(crate) struct Coordinator {
    /// How long no answer may come to a member that asks several times in it.
    patience: Duration,
    /// The same of one that joins: the coordinator waits for all members, and each of these for its handlers.
    joining: Duration,
    heard: Mutex<Heard>,
}

struct Heard {
    /// When the last answer came, as far as is known: not before then.
    at: Instant,
    /// There was a connection at the last report.
    up: bool,
    /// What is said if that is too long ago.
    said: Option<String>,
}

impl Coordinator {
    /// Of a group that gives up members which were silent for `session`, and whose handlers have `visibility`.
    pub(crate) fn of(session: Duration, visibility: Duration) -> Coordinator {
        Coordinator {
            patience: (session / 2).max(SILENCE_MIN),
            joining: visibility.saturating_add(session),
            heard: Mutex::new(Heard { at: Instant::now(), up: false, said: None }),
        }
    }

    /// The library reports.
    pub(crate) fn hear(&self, said: &Statistics, now: Instant) {
        let coordinator = said.brokers.values().find(|broker| broker.source == LOGICAL);
        let joins = said.cgrp.as_ref().is_some_and(|it| JOINING.contains(&&*it.join_state));
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = coordinator.and_then(|broker| answered(broker, now));
        match answered {
            Some(at) => heard.at = heard.at.max(at),
            // One that has broken since then may have brought answers until just now.
            None if heard.up && heard.said.is_none() => heard.at = now,
            None => {}
        }
        heard.up = answered.is_some();
        let silent = now.saturating_duration_since(heard.at);
        let most = if joins { self.joining } else { self.patience };
        heard.said = (silent >= most).then(|| told(coordinator, joins, silent));
    }

    /// What keeps this member from being given anything, as far as is known.
    pub(crate) fn hindrance(&self) -> Option<String> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).said.clone()
    }
}

/// What is to be done where the group does not let a member in, for as long as that is so: by the code of its refusal.
pub(crate) fn not_let_in(code: RDKafkaErrorCode) -> Option<(ErrorKind, &'static str)> {
    match code {
        RDKafkaErrorCode::InconsistentGroupProtocol => Some((
            ErrorKind::Conflict,
            "another program is in this group, and shares the partitions in another way (its \
             `partition.assignment.strategy` is not `cooperative-sticky`): end that one, or take another group",
        )),
        RDKafkaErrorCode::InvalidSessionTimeout => Some((
            ErrorKind::Config,
            "choose a `session` that the servers allow: 6 s to 30 min unless they are told otherwise \
             (`group.min.session.timeout.ms`, `group.max.session.timeout.ms`)",
        )),
        RDKafkaErrorCode::GroupMaxSizeReached => Some((
            ErrorKind::Conflict,
            "the group has as many members as the servers allow (`group.max.size`): end some, or have more allowed",
        )),
        _ => None,
    }
}

/// Whether a topic is not there.
pub(crate) fn is_gone(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic)
    )
}

/// When something came from a server last, on a connection that there is.
fn answered(broker: &Broker, now: Instant) -> Option<Instant> {
    let idle = u64::try_from(broker.rxidle).ok().filter(|_| broker.state == "UP")?;
    now.checked_sub(Duration::from_micros(idle))
}

fn told(coordinator: Option<&Broker>, joins: bool, silent: Duration) -> String {
    let name = coordinator.map(|it| it.nodename.as_str()).filter(|name| !name.is_empty());
    let who = name.map_or_else(
        || "no server has said that it coordinates the group".to_owned(),
        |name| format!("the server that coordinates the group, {name}, has not answered"),
    );
    let why =
        if joins { ", or waits for a member that does not let its partitions go" } else { "" };
    format!(
        "{who} for {} s, so nothing can be committed, and nothing is given to this member when its session is over. It stands \
         still or is out of reach{why}: see whether that server runs. What is not settled comes again",
        silent.as_secs()
    )
}

/// How soon the group is joined anew when its coordinator has moved.
const ANEW: Duration = Duration::from_secs(1);
/// The same when somebody has to grant something first: others of the group are disturbed each time.
const ANEW_GRANTED: Duration = Duration::from_secs(30);

/// When to join anew after this, if at all: it may have left a partition that is ours and is not read. Where reading alone
/// is refused, it is read again as soon as that is granted.
pub(crate) fn until_anew(error: &KafkaError, of_reading: bool) -> Option<Duration> {
    match error.rdkafka_error_code()? {
        RDKafkaErrorCode::TopicAuthorizationFailed if of_reading => None,
        RDKafkaErrorCode::NotCoordinator | RDKafkaErrorCode::CoordinatorNotAvailable => Some(ANEW),
        RDKafkaErrorCode::TopicAuthorizationFailed => Some(ANEW_GRANTED),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::statistics::ConsumerGroup;

    fn report(join_state: &str, state: &str, idle: Duration) -> Statistics {
        let broker = Broker {
            source: LOGICAL.to_owned(),
            nodename: "kafka-2:9092".to_owned(),
            state: state.to_owned(),
            rxidle: i64::try_from(idle.as_micros()).unwrap(),
            ..Broker::default()
        };
        let cgrp = ConsumerGroup { join_state: join_state.to_owned(), ..ConsumerGroup::default() };
        let brokers = [("GroupCoordinator".to_owned(), broker)].into();
        Statistics { brokers, cgrp: Some(cgrp), ..Statistics::default() }
    }

    /// INV-8: neither a connection that is made anew nor another state hides that nobody answers; and who joins waits for others.
    #[test]
    fn a_coordinator_that_stands_still_is_told_of() {
        let seconds = Duration::from_secs;
        let (begun, of) = (Instant::now(), Coordinator::of(seconds(10), seconds(30)));
        for (at, join_state, state, idle, told) in [
            (2, "steady", "UP", 1, None),
            (5, "steady", "UP", 4, None),
            (7, "steady", "UP", 6, Some("kafka-2:9092, has not answered for 6 s")),
            (12, "wait-join", "CONNECT", 0, None),
            (20, "init", "CONNECT", 0, Some("for 19 s")),
            (40, "wait-join", "UP", 39, None),
            (42, "wait-join", "UP", 41, Some("waits for a member")),
            (43, "steady", "UP", 0, None),
            (48, "steady", "CONNECT", 0, None),
            (52, "steady", "CONNECT", 0, None),
            (53, "steady", "CONNECT", 0, Some("for 5 s")),
        ] {
            of.hear(&report(join_state, state, seconds(idle)), begun + seconds(at));
            let said = of.hindrance();
            assert_eq!(said.is_some(), told.is_some(), "{at} {said:?}");
            assert!(said.unwrap_or_default().contains(told.unwrap_or_default()), "{at}");
        }
    }

    /// Others of a group are disturbed by who joins anew, so nobody does whom that would not help.
    #[test]
    fn a_group_is_joined_anew_where_that_helps() {
        let denied = KafkaError::MessageConsumption(RDKafkaErrorCode::TopicAuthorizationFailed);
        assert_eq!(until_anew(&denied, false), Some(ANEW_GRANTED));
        assert_eq!(until_anew(&denied, true), None);
        let moved = KafkaError::MessageConsumption(RDKafkaErrorCode::NotCoordinator);
        assert_eq!(until_anew(&moved, false), Some(ANEW));
    }
}
