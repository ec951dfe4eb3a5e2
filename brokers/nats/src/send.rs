//! One message on its way to a stream, and what the stream says of it.
//!
//! Invariant: nothing is given to a connection that is gone, nor waits there past its deadline, and only an answer of
//! the stream with a place in it is an acknowledgement (INV-7).

use async_nats::Subject;
use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use postrider_core::{ErrorKind, Fault, Outcome};
use tokio::time::{Instant, sleep_until};

use crate::answer::judge;
use crate::connection::{Hindrance, Unsent, Up};
use crate::encode::Encoded;

/// One event, sent or not.
pub(crate) enum Sent {
    Waiting(PublishAckFuture),
    Decided(Outcome),
}

/// What is known of one event.
pub(crate) enum Answer {
    Decided(Outcome),
    /// The stream has a message of this id already.
    Known(PublishAck),
}

impl Unsent {
    /// Of the event that could not be given to the connection.
    pub(crate) fn outcome(self) -> Outcome {
        let fault = Fault::new(self.kind(), format!("{}; the event was not sent", self.what()));
        Outcome::Retry { fault, after: None }
    }
}

/// Gives it to the connection, while it stands and until then. Whoever drops this has not sent it, or has.
pub(crate) async fn send(
    up: &mut Up,
    subject: &Subject,
    message: Encoded,
    until: Instant,
) -> Result<Sent, Unsent> {
    let message = PublishMessage::build().payload(message.body).headers(message.headers);
    let sending = up.jetstream.send_publish(subject.clone(), message);
    Ok(match up.line.give(sending, until).await? {
        Ok(acknowledgement) => Sent::Waiting(acknowledgement),
        Err(error) => Sent::Decided(judge(subject, &error)),
    })
}

/// What the stream says of one event. An answer that is there already counts, also when the connection is
/// gone since.
pub(crate) async fn answer(
    up: &mut Up,
    subject: &str,
    sent: Sent,
    since: Instant,
    deadline: Instant,
) -> Answer {
    let acknowledgement = match sent {
        Sent::Waiting(acknowledgement) => acknowledgement,
        Sent::Decided(outcome) => return Answer::Decided(outcome),
    };
    let unknown = |kind, what: &str| {
        let detail = format!("{what}; whether the event arrived is not known");
        Outcome::Retry { fault: Fault::new(kind, detail), after: None }
    };
    Answer::Decided(tokio::select! {
        biased;
        answered = acknowledgement.into_future() => match answered {
            // A leader knows the id from before the cluster agreed, and older servers say so with an acknowledgement
            // that has no place in the stream, whose first is 1. If another one leads by then, nothing was stored.
            Ok(known) if known.sequence == 0 => {
                unknown(ErrorKind::Unavailable, "the stream knows the event's id, and has no place for it yet")
            }
            Ok(known) if known.duplicate => return Answer::Known(known),
            Ok(_) => Outcome::Acked,
            Err(error) => judge(subject, &error),
        },
        hindrance = up.hindered(subject, since) => match hindrance {
            Hindrance::Lost => unknown(ErrorKind::Unavailable, "the connection to NATS was lost"),
            Hindrance::Refused => refused(subject),
            Hindrance::Deaf => deaf(),
        },
        // waits: until nobody listens any more
        () = sleep_until(deadline) => unknown(ErrorKind::Timeout, "NATS did not answer in time"),
    })
}

/// Of an event whose subject this user may not publish to.
pub(crate) fn refused(subject: &str) -> Outcome {
    forbidden(format!(
        "NATS does not let this user publish to `{subject}`: grant it, or correct the credentials or the route's \
         topic; nothing was stored"
    ))
}

/// Of an event whose answer this user may not hear.
pub(crate) fn deaf() -> Outcome {
    forbidden(
        "NATS does not let this user subscribe to `_INBOX.>`, where its answers come: grant it; whether the event \
         arrived is not known"
            .to_owned(),
    )
}

/// Of an event that waits until an operator grants something.
pub(crate) fn forbidden(detail: String) -> Outcome {
    Outcome::Unroutable(Fault::new(ErrorKind::Unauthorized, detail))
}
