//! A dead letter: a copy of a message that was refused for good, with its place and the reason.
//!
//! Invariant: a message is let go only when its copy is kept, or its place where the copy is too large (INV-1).

use async_nats::header::HeaderName;
use async_nats::jetstream::context::GetStreamByNameErrorKind;
use async_nats::{HeaderMap, Subject};
use bytes::Bytes;
use postrider_core::{Error, ErrorKind, Fault, Outcome, Result, Timestamp};
use tokio::time::Instant;

use crate::connection::Up;
use crate::copy::{Look, look};
use crate::encode::{Encoded, MESSAGE_ID, is_servers};
use crate::granted::answered;
use crate::group::matches;
use crate::partitions::Partitions;
use crate::receipts::Original;
use crate::send::{Answer, answer, send};
use crate::settings::{SubscriptionSettings, wrong};

/// Of a reason, which may quote what it is about.
const REASON_CHARS_MAX: usize = 1_000;
/// The header of a dead letter that says what of the message is not in it.
pub(crate) const LEFT_OUT: &str = "postrider-dead-left-out";
/// Where its stream has no room for it.
const NO_ROOM: &str = "headers and body: the stream of dead letters cannot take them";

/// See the module.
pub(crate) struct DeadLetter<'a> {
    /// As it came, and not as its stream has it: that may have let it go, and who receives need not be allowed to read it.
    pub(crate) original: &'a Original,
    /// Where it goes.
    pub(crate) subject: &'a str,
    pub(crate) stream: &'a str,
    pub(crate) group: &'a str,
    pub(crate) sequence: u64,
    pub(crate) fault: &'a Fault,
}

impl DeadLetter<'_> {
    /// Keeps it. What the stream of dead letters has no room for is told by its place, where it can be read: else it
    /// would come again without an end, and hold up what comes behind it.
    ///
    /// # Errors
    /// `Unroutable` if its copy was not kept, and why.
    pub(crate) async fn bury(&self, up: &mut Up, until: Instant) -> Result<()> {
        let headers = self.original.headers.as_ref().map(carried).unwrap_or_default();
        let copy = Encoded { headers: self.described(headers), body: self.original.body.clone() };
        let mut kept = self.keep(up, copy, until).await;
        if matches!(&kept, Outcome::Rejected(fault) if fault.kind == ErrorKind::TooLarge) {
            let mut headers = self.described(HeaderMap::new());
            headers.insert(LEFT_OUT, NO_ROOM);
            kept = self.keep(up, Encoded { headers, body: Bytes::new() }, until).await;
        }
        match kept {
            Outcome::Acked => Ok(()),
            Outcome::Retry { fault, .. }
            | Outcome::Rejected(fault)
            | Outcome::Unroutable(fault)
            | Outcome::Hindered(fault)
            | Outcome::Gone(fault) => Err(self.failed(&fault.detail)),
            Outcome::Skipped => Err(self.failed("it was not tried")),
        }
    }

    /// With the place and the reason, and an id of its own: one copy a group, however often this is tried.
    fn described(&self, mut headers: HeaderMap) -> HeaderMap {
        let sequence = self.sequence.to_string();
        let id = self.id();
        for (name, value) in [
            (MESSAGE_ID, &*id),
            ("postrider-dead-stream", self.stream),
            ("postrider-dead-subject", self.original.subject.as_str()),
            ("postrider-dead-sequence", &*sequence),
            ("postrider-dead-group", self.group),
            ("postrider-dead-reason", &*one_line(&self.fault.to_string())),
        ] {
            headers.insert(name, value);
        }
        headers
    }

    fn id(&self) -> String {
        // A stream that is made anew counts anew, and what it has at the same place is another message.
        format!("{}/{}/{}/{}", self.stream, self.group, self.sequence, self.original.at)
    }

    /// What its stream calls a copy is looked at: it remembers the ids of what somebody purged. Where the letter does not stand
    /// there, or is not shown, it is sent under another id: rather twice than never.
    async fn keep(&self, up: &mut Up, letter: Encoded, until: Instant) -> Outcome {
        let mut again = letter.clone();
        let known = match self.tell(up, letter, until).await {
            Answer::Decided(outcome) => return outcome,
            Answer::Known(known) => known,
        };
        let id = self.id();
        if look(up, self.subject, &id, &known, until).await == Look::Here {
            return Outcome::Acked;
        }
        let now = Timestamp::now().as_micros();
        again.headers.insert(MESSAGE_ID, format!("{id}/{now}").as_str());
        match self.tell(up, again, until).await {
            Answer::Decided(outcome) => outcome,
            // Nobody else has sent this id.
            Answer::Known(_) => Outcome::Acked,
        }
    }

    async fn tell(&self, up: &mut Up, letter: Encoded, until: Instant) -> Answer {
        let begun = Instant::now();
        match send(up, &Subject::from(self.subject), letter, until).await {
            Ok(sent) => answer(up, self.subject, sent, begun, until).await,
            Err(unsent) => Answer::Decided(unsent.outcome()),
        }
    }

    fn failed(&self, said: &str) -> Error {
        Error::new(ErrorKind::Unroutable, "reject")
            .message(format!(
                "the dead letter was not kept: {said}; the message comes again. A stream has to take the subject of \
                 `dead_letters`"
            ))
            .context("dead_letters", self.subject)
    }
}

/// The headers that go with a copy. What the server reads as an order was meant for the stream that the message came
/// from: another one would refuse the copy because of it, let it expire, or drop what it has for it.
fn carried(headers: &HeaderMap) -> HeaderMap {
    let mut copied = HeaderMap::new();
    let orders = |name: &HeaderName| is_servers(name.as_ref());
    for (name, values) in headers.iter().filter(|(name, _)| !orders(name)) {
        for value in values {
            copied.append(name.clone(), value.clone());
        }
    }
    copied
}

/// A reason, as a header can carry it.
fn one_line(reason: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    reason.chars().take(REASON_CHARS_MAX).map(plain).collect()
}

/// A stream has to take the dead letters, and the group must not get them back.
///
/// # Errors
/// `Unroutable` or `Config` where that is not so.
pub(crate) async fn find_place(
    up: &Up,
    settings: &SubscriptionSettings,
    partitions: Option<&Partitions>,
) -> Result<()> {
    let Some(subject) = &settings.dead_letters else { return Ok(()) };
    let own = partitions.map(Partitions::all);
    let own = own.as_deref().or(settings.subject.as_deref()).unwrap_or(">");
    let (mut asking, asked) = (up.clone(), format!("{}.STREAM.NAMES", up.api));
    let taken = up.jetstream.stream_by_subject(subject);
    let taken = match answered(&mut asking, &asked, Instant::now(), taken).await {
        // A dead letter that nobody takes is not let go, so who may not ask is not refused.
        Err(error) if error.kind() == ErrorKind::Unauthorized => return Ok(()),
        answer => answer?,
    };
    match taken {
        Ok(stream) if stream == settings.stream => {
            match matches(own, subject) {
                true => Err(wrong(
                    "the group's own subjects take its dead letters, which would come again as new \
                     messages: choose another subject for `dead_letters`, or fewer subjects for the group",
                )
                .context("dead_letters", subject)),
                false => Ok(()),
            }
        }
        Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => Err(Error::new(
            ErrorKind::Unroutable,
            "subscribe",
        )
        .message(format!(
            "no stream takes the dead letters: create one for the subject `{subject}`, or choose \
                     another one for `dead_letters`"
        ))
        .context("dead_letters", subject)),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_to_the_server_do_not_go_with_a_copy() {
        let mut headers = HeaderMap::new();
        for name in ["Nats-Msg-Id", "nats-ttl", "NATS-Rollup", "Nats-", "x-Nats-", "Nats", "a"] {
            headers.insert(name, "1");
        }
        headers.append("a", "2");
        let copied = carried(&headers);
        let mut names: Vec<String> = copied.iter().map(|(name, _)| name.to_string()).collect();
        names.sort();
        assert_eq!(names, ["Nats", "a", "x-Nats-"]);
        assert_eq!(copied.get_all("a").count(), 2);
    }

    #[test]
    fn a_reason_has_one_line_and_an_end() {
        assert_eq!(one_line("a\r\nb\0ü"), "a  b ü");
        assert_eq!(one_line(&"ü".repeat(5_000)).chars().count(), REASON_CHARS_MAX);
    }
}
