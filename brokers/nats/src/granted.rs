//! Questions to the server that this user may not be let ask, or hear the answer of.
//!
//! Invariant (INV-8): who is not let do something is told what to grant, and does not wait for what never comes.

use async_nats::jetstream::consumer::PullConsumer;
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

use crate::connection::{Hindrance, Up};

/// What comes of a question that was sent to a subject since then, unless the server says that none of it will.
///
/// # Errors
/// `Unauthorized` with what to grant; `Unavailable` where the connection is lost.
pub(crate) async fn answered<T>(
    up: &mut Up,
    subject: &str,
    since: Instant,
    asked: impl Future<Output = T>,
) -> Result<T> {
    let (kind, said) = tokio::select! {
        biased;
        answer = asked => return Ok(answer),
        hindrance = up.hindered(subject, since) => match hindrance {
            Hindrance::Lost => (ErrorKind::Unavailable, "the connection was lost".to_owned()),
            Hindrance::Refused => {
                let subject = family(subject);
                (ErrorKind::Unauthorized, format!("it does not let this user publish to `{subject}`: grant it"))
            }
            Hindrance::Deaf => (
                ErrorKind::Unauthorized,
                "it does not let this user subscribe to `_INBOX.>`, where its answers come: grant it".to_owned(),
            ),
        },
    };
    let message = format!("NATS: {said}; what is not settled comes again");
    Err(Error::new(kind, "consume").message(message))
}

/// A subject as it is granted: that of an answer to a delivery is another one for each.
fn family(subject: &str) -> &str {
    if subject.starts_with("$JS.ACK.") { "$JS.ACK.>" } else { subject }
}

/// Where a consumer is asked for its next messages.
pub(crate) fn next_of(up: &Up, consumer: &PullConsumer) -> String {
    let info = consumer.cached_info();
    format!("{}.CONSUMER.MSG.NEXT.{}.{}", up.api, info.stream_name, info.name)
}
