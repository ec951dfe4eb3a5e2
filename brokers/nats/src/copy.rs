//! What a stream says it has already: this very message, or the copy that went to another subject of the stream.
//!
//! Invariant (INV-1): an event counts as published only if its own subject has it, as far as the stream shows what it
//! has. A stream remembers ids and not subjects, so the copy of one destination makes it drop that of another, and says
//! that all is well.

use std::time::Duration;

use async_nats::jetstream::publish::PublishAck;
use postrider_core::Outgoing;
use tokio::time::{Instant, sleep};

use crate::connection::Up;
use crate::encode::MESSAGE_ID;

/// How long the stream may take to show what it has. Without a leader it says nothing at all.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// The id under which the stream knows a message. None for what is sent again on purpose: the stream would
/// drop it as a copy, and an operator would wait for it in vain.
pub(crate) fn identity(outgoing: &Outgoing) -> Option<String> {
    let again = outgoing.marks.late || outgoing.marks.replay;
    (!again).then(|| outgoing.event.id.to_string())
}

/// The id of a message whose own id another subject of the stream has taken.
pub(crate) fn identity_within(outgoing: &Outgoing) -> String {
    format!("{}/{}", outgoing.event.id, outgoing.topic)
}

/// What a stream shows where it says that it has a message of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The message, on its subject.
    Here,
    /// Another one: the event on another subject, or what stands where the message stood before a server lost it.
    Another,
    /// Nothing, or nothing in time, or not to us.
    Unknown,
}

/// Looks at the message that the stream says it has under this id. Looking takes half of what is left of the publish's time at
/// most, since a message that is not there has to be sent, and answered, in the other half.
pub(crate) async fn look(
    up: &mut Up,
    subject: &str,
    id: &str,
    known: &PublishAck,
    until: Instant,
) -> Look {
    let begun = Instant::now();
    let wait = (until.saturating_duration_since(begun) / 2).min(LOOK_MAX);
    let question = format!("{}.STREAM.MSG.GET.{}", up.api, known.stream);
    let (jetstream, sequence) = (up.jetstream.clone(), known.sequence);
    let shown = async {
        let stream = jetstream.get_stream_no_info(&known.stream).await.ok()?;
        stream.get_raw_message(sequence).await.ok()
    };
    tokio::select! {
        shown = shown => shown.map_or(Look::Unknown, |shown| {
            let of_id = shown.headers.get(MESSAGE_ID);
            // An id with the subject in it is nobody else's, also where the stream or the account renames subjects.
            let is_own = *shown.subject == *subject || id.ends_with(&format!("/{subject}"));
            match of_id.is_some_and(|it| it.as_str() == id) && is_own {
                true => Look::Here,
                false => Look::Another,
            }
        }),
        _ = up.hindered(&question, begun) => Look::Unknown,
        // waits: half of a publish's deadline
        () = sleep(wait) => Look::Unknown,
    }
}
