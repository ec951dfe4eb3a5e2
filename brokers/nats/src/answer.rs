//! From what the server said to what became of the event.
//!
//! Invariant (INV-7): only an answer of the stream is an acknowledgement. Whatever is the stream's or the
//! server's trouble is never counted against the event.

use std::error::Error as _;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use postrider_core::{ErrorKind, Fault, Outcome};

pub(crate) fn judge(subject: &str, error: &PublishError) -> Outcome {
    let said = described(error);
    let retry = |kind| Outcome::Retry { fault: Fault::new(kind, said.clone()), after: None };
    match error.kind() {
        PublishErrorKind::StreamNotFound => Outcome::Unroutable(Fault::new(
            ErrorKind::Unroutable,
            format!(
                "no stream takes the subject `{subject}`: create one, or correct the route's topic, unless its cluster is \
                 just electing a leader"
            ),
        )),
        PublishErrorKind::TimedOut => retry(ErrorKind::Timeout),
        PublishErrorKind::MaxAckPending => retry(ErrorKind::Busy),
        PublishErrorKind::MaxPayloadExceeded => {
            Outcome::Rejected(Fault::new(ErrorKind::TooLarge, said))
        }
        PublishErrorKind::WrongLastMessageId | PublishErrorKind::WrongLastSequence => {
            Outcome::Rejected(Fault::new(ErrorKind::Conflict, said))
        }
        PublishErrorKind::BrokenPipe => retry(ErrorKind::Unavailable),
        PublishErrorKind::Other => match code(error) {
            Some(code) => judge_code(code, said),
            None => retry(ErrorKind::Unavailable),
        },
    }
}

fn judge_code(code: ErrorCode, said: String) -> Outcome {
    match code {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            Outcome::Rejected(Fault::new(ErrorKind::TooLarge, said))
        }
        ErrorCode::STREAM_SEALED
        | ErrorCode::STREAM_NOT_FOUND
        | ErrorCode::STREAM_NOT_MATCH
        | ErrorCode::JETSTREAM_NOT_ENABLED
        | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            Outcome::Unroutable(Fault::new(ErrorKind::Unroutable, said))
        }
        // A stream that keeps the old and refuses the new is full: whoever reads it, or an operator, makes
        // room. The server has one number for that and for a disk that fails.
        ErrorCode::STREAM_STORE_FAILED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED => full(said),
        _ => Outcome::Retry { fault: Fault::new(ErrorKind::Unavailable, said), after: None },
    }
}

fn full(said: String) -> Outcome {
    let detail = format!("the stream takes nothing now: {said}");
    Outcome::Unroutable(Fault::new(ErrorKind::Backpressure, detail))
}

fn code(error: &PublishError) -> Option<ErrorCode> {
    let answer = error.source()?.downcast_ref::<jetstream::Error>()?;
    Some(answer.error_code())
}

/// The error with its causes, each said once.
fn described(error: &PublishError) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        cause = error.source();
    }
    said
}
