//! From what the client said to what became of the event.
//!
//! Invariant (INV-7): only the partition's answer is an acknowledgement. What is the cluster's, the topic's,
//! or this machine's trouble is never counted against the event.

use postrider_core::{ErrorKind, Fault, Outcome};
use rdkafka::error::RDKafkaErrorCode as Code;

/// What became of a record that was refused or given up, and of its topic `topic`. `trouble` is what the
/// client last complained about.
pub(crate) fn judge(topic: &str, code: Code, trouble: Option<String>) -> Outcome {
    // Of a partition, as a rule: those of others go on.
    let hindered = |kind, detail: String| Outcome::Hindered(Fault::new(kind, detail));
    let unroutable = |kind, detail: String| Outcome::Unroutable(Fault::new(kind, detail));
    let said = || described(code, trouble.as_deref());
    let unknown = || format!("{}; whether the event arrived is not known", said());
    match code {
        Code::UnknownTopicOrPartition | Code::UnknownTopic => Outcome::Unroutable(missing(topic)),
        // The client counts fewer than we do: it has not heard of the new ones, or the topic is another one now.
        Code::UnknownPartition => hindered(
            ErrorKind::Unavailable,
            format!("the partitions of the topic `{topic}` have just changed; nothing was sent"),
        ),
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::SaslAuthenticationFailed
        | Code::Authentication => Outcome::Unroutable(denied(topic, code)),
        Code::InvalidRecord => Outcome::Rejected(invalid(topic, code)),
        // Its neighbour in the same request was refused, and the request with it.
        Code::InvalidDifferentRecord => Outcome::Skipped,
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => {
            Outcome::Rejected(Fault::new(ErrorKind::TooLarge, said()))
        }
        Code::PolicyViolation => Outcome::Rejected(Fault::new(ErrorKind::Rejected, said())),
        // The record's time is this machine's time.
        Code::InvalidTimestamp => unroutable(
            ErrorKind::Config,
            format!("the topic `{topic}` refuses this machine's time: {}; set its clock", said()),
        ),
        Code::UnsupportedCompressionType | Code::UnsupportedForMessageFormat => unroutable(
            ErrorKind::Config,
            format!("the topic `{topic}` does not take this compression or format: {}", said()),
        ),
        Code::InvalidTopic => unroutable(
            ErrorKind::Unroutable,
            format!("`{topic}` is a topic that nobody may write to: {}", said()),
        ),
        Code::ThrottlingQuotaExceeded => hindered(ErrorKind::Busy, said()),
        Code::QueueFull => hindered(
            ErrorKind::Busy,
            "the client's queue is full: the cluster takes less than is sent; nothing was sent"
                .to_owned(),
        ),
        Code::MessageTimedOut | Code::OperationTimedOut | Code::TimedOutQueue => {
            hindered(ErrorKind::Timeout, unknown())
        }
        Code::PurgeQueue | Code::PurgeInflight => hindered(
            ErrorKind::Unavailable,
            "the connection was given up; whether the event arrived is not known".to_owned(),
        ),
        // It may be this record that the server, or the way to it, cannot bear.
        Code::Unknown | Code::InvalidMessage => {
            Outcome::Retry { fault: Fault::new(ErrorKind::Unavailable, unknown()), after: None }
        }
        _ => hindered(ErrorKind::Unavailable, unknown()),
    }
}

/// The topic refuses the record itself. The client keeps the server's own words to itself.
fn invalid(topic: &str, code: Code) -> Fault {
    let detail = format!("the topic `{topic}` refuses the record: {}", described(code, None));
    Fault::new(ErrorKind::Rejected, detail)
}

/// The same for a record that has no key, with what is the reason as a rule.
pub(crate) fn keyless(topic: &str) -> Fault {
    let mut fault = invalid(topic, Code::InvalidRecord);
    fault.detail += " (it has no key: a compacted topic takes no record without a key)";
    fault
}

/// Whether it is the record, or the request that it came in, that was too large.
pub(crate) fn is_too_large(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize
    )
}

/// A record of which nothing was heard until the deadline.
pub(crate) fn unheard(trouble: Option<String>) -> Outcome {
    judge("", Code::MessageTimedOut, trouble)
}

/// What ran out of time while servers keep the client back, which `said` says: they have a quota, and nothing is broken.
pub(crate) fn throttled(outcome: Outcome, said: impl FnOnce() -> Option<String>) -> Outcome {
    let Outcome::Hindered(fault) = outcome else { return outcome };
    let why = if fault.kind == ErrorKind::Timeout { said() } else { None };
    Outcome::Hindered(match why {
        Some(why) => Fault::new(ErrorKind::Busy, format!("{why} ({})", fault.detail)),
        None => fault,
    })
}

/// The topic is not there.
pub(crate) fn missing(topic: &str) -> Fault {
    Fault::new(
        ErrorKind::Unroutable,
        format!("there is no topic `{topic}`: create it, or correct the route's topic"),
    )
}

/// We may not write there.
pub(crate) fn denied(topic: &str, code: Code) -> Fault {
    Fault::new(
        ErrorKind::Unauthorized,
        format!(
            "this user may not write to the topic `{topic}`: {code}; grant it WRITE and DESCRIBE on the topic \
             (before Kafka 3.0 also IDEMPOTENT_WRITE on the cluster)"
        ),
    )
}

/// We may not read there.
pub(crate) fn unreadable(topic: &str, code: Code) -> String {
    format!(
        "this user may not read the topic `{topic}`: {code}; grant it READ on the topic and on the group"
    )
}

/// A record larger than the topic takes.
pub(crate) fn too_large(topic: &str, bytes: u64, bytes_max: Option<u64>) -> Fault {
    let limit = bytes_max.map(|max| format!(", which takes {max}")).unwrap_or_default();
    Fault::new(
        ErrorKind::TooLarge,
        format!(
            "the record has {bytes} bytes or more, too many for the topic `{topic}`{limit} (`max.message.bytes`)"
        ),
    )
}

fn described(code: Code, trouble: Option<&str>) -> String {
    let transient = matches!(code, Code::MessageTimedOut | Code::BrokerTransportFailure);
    match trouble.filter(|_| transient) {
        Some(trouble) => format!("Kafka: {code} ({trouble})"),
        None => format!("Kafka: {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(outcome: &Outcome) -> ErrorKind {
        match outcome {
            Outcome::Retry { fault, .. }
            | Outcome::Rejected(fault)
            | Outcome::Hindered(fault)
            | Outcome::Unroutable(fault) => fault.kind,
            other => panic!("{other:?}"),
        }
    }

    /// What the cluster suffers from kills no event; what is wrong with the record does.
    #[test]
    fn each_answer_has_its_class() {
        let judged = |code| judge("orders", code, None);
        for code in [Code::UnknownTopicOrPartition, Code::UnknownTopic] {
            let outcome = judged(code);
            assert!(matches!(outcome, Outcome::Unroutable(_)), "{outcome:?}");
            assert_eq!(kind(&outcome), ErrorKind::Unroutable);
        }
        assert_eq!(kind(&judged(Code::TopicAuthorizationFailed)), ErrorKind::Unauthorized);
        for code in [Code::InvalidRecord, Code::MessageSizeTooLarge] {
            assert!(matches!(judged(code), Outcome::Rejected(_)));
        }
        // A clock that is wrong would refuse every event.
        assert!(matches!(judged(Code::InvalidTimestamp), Outcome::Unroutable(_)));
        assert_eq!(judged(Code::InvalidDifferentRecord), Outcome::Skipped);
        for code in [
            Code::MessageTimedOut,
            Code::NotEnoughReplicas,
            Code::KafkaStorageError,
            Code::Fatal,
            Code::OutOfOrderSequenceNumber,
            Code::PurgeInflight,
            Code::QueueFull,
            Code::ThrottlingQuotaExceeded,
            Code::UnknownPartition,
        ] {
            assert!(matches!(judged(code), Outcome::Hindered(_)), "{code:?}");
        }
        assert!(matches!(judged(Code::Unknown), Outcome::Retry { .. }));
    }

    /// F25: a quota is no outage, and what else was refused is none of its doing.
    #[test]
    fn what_runs_out_of_time_under_a_quota_is_throttled() {
        let said = || Some("a quota".to_owned());
        let outcome = throttled(unheard(None), said);
        assert_eq!(kind(&outcome), ErrorKind::Busy);
        let Outcome::Hindered(fault) = outcome else { panic!("it waits: {outcome:?}") };
        assert!(fault.detail.starts_with("a quota") && fault.detail.contains("not known"));
        assert_eq!(kind(&throttled(unheard(None), || None)), ErrorKind::Timeout);
        for code in [Code::NotEnoughReplicas, Code::MessageSizeTooLarge] {
            let before = judge("orders", code, None);
            assert_eq!(throttled(before.clone(), said), before);
        }
    }

    #[test]
    fn a_timeout_says_what_was_the_matter() {
        let Outcome::Hindered(fault) = unheard(Some("connection refused".to_owned())) else {
            panic!("unknown is tried again");
        };
        assert!(fault.detail.contains("connection refused"), "{fault}");
        assert!(fault.detail.contains("not known"), "{fault}");
    }
}
