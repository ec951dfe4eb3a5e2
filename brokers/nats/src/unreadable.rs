//! Messages that the client cannot read: a header that is no text, or has a name that is none. The server does not look at
//! them; the client gives its whole connection up over one, and again each time it is handed out.
//!
//! Invariant (INV-1): such a message is handed out as a fault, with its body and its place, or told of; and nobody looks for
//! one whose connection was lost but once, as it is when a server is started again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessage;
use async_nats::{HeaderMap, Subject};
use postrider_core::subscription::Receipt;
use postrider_core::{Error, ErrorKind, Fault, Result};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bury::LEFT_OUT;
use crate::connection::{Hindrance, Up};
use crate::group::Member;
use crate::receipts::{Original, Receipts};
use crate::settings::SubscriptionSettings;

/// Two connections that are lost within so many visibilities are looked into. What cannot be read comes once in each, to one
/// of the instances.
const VISIBILITIES: u32 = 10;
/// A short visibility does not make it come sooner than a client is connected again.
const WINDOW_MIN: Duration = Duration::from_secs(30);

/// Messages that are read before others are handed out again. It goes on from there.
const READ_MAX: u32 = 512;

/// What a server writes for bytes that are no text.
const NO_TEXT: char = char::REPLACEMENT_CHARACTER;

/// What makes somebody look for such a message, and how far that is.
pub(crate) struct Unreadable {
    window: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The connection that was lost last while messages were waited for, and when.
    lost: Option<(u64, Instant)>,
    search: Option<Search>,
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Search {
    member: usize,
    /// The next message.
    from: u64,
}

/// A message that cannot be read as the client reads it.
pub(crate) struct Found {
    /// Whose it is.
    pub(crate) member: usize,
    pub(crate) receipt: Receipt,
    /// Where the server hears of it.
    pub(crate) reply: Subject,
    pub(crate) original: Original,
    pub(crate) fault: Fault,
}

impl Unreadable {
    /// Of a group whose deliveries are hidden for so long.
    pub(crate) fn new(visibility: Duration) -> Unreadable {
        let window = visibility.saturating_mul(VISIBILITIES).max(WINDOW_MIN);
        Unreadable { window, inner: Mutex::default() }
    }

    /// A connection was lost while messages were waited for. Several may say so of one.
    pub(crate) fn lost(&self, epoch: u64) {
        let (mut inner, now) = (self.lock(), Instant::now());
        match inner.lost {
            Some((known, _)) if known == epoch => {}
            Some((_, at)) if at.elapsed() < self.window => {
                inner.lost = None;
                inner.search.get_or_insert_default();
            }
            _ => inner.lost = Some((epoch, now)),
        }
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self) -> bool {
        self.lock().search.is_some()
    }

    /// Looks for some, up to so many, at what each member has handed out and nobody has settled. What is in work here was read.
    ///
    /// # Errors
    /// It cannot be looked at: then it says what might be one.
    pub(crate) async fn look(
        &self,
        up: &mut Up,
        settings: &SubscriptionSettings,
        members: &[Member],
        receipts: &Receipts,
        max: usize,
    ) -> Result<Vec<Found>> {
        let mut read = 0;
        while let Some(Search { member: at, from }) = self.search() {
            let Some(member) = members.get(at) else {
                self.go_on(None);
                break;
            };
            let info = tokio::select! {
                info = member.consumer.get_info() => info.map_err(|error| {
                    self.go_on(None);
                    failed(settings, ErrorKind::Unavailable, &error.to_string())
                })?,
                () = up.lost() => {
                    return Err(failed(settings, ErrorKind::Unavailable, "the connection was lost"));
                }
            };
            let last = info.delivered.stream_sequence;
            let mut from = from.max(info.ack_floor.stream_sequence + 1);
            let (mut found, mut all) = (Vec::new(), info.num_ack_pending == 0);
            while !all && read < READ_MAX && found.len() < max {
                let message = next(up, &info, from).await;
                let message = message.map_err(|unread| self.give_up(settings, &info, &unread))?;
                let Some(message) = message.filter(|message| message.sequence <= last) else {
                    all = true;
                    break;
                };
                from = message.sequence + 1;
                read += 1;
                if !receipts.is_open(message.sequence) {
                    found.extend(judge(message, at, &info));
                }
            }
            self.go_on(Some(match all {
                true => Search { member: at + 1, from: 0 },
                false => Search { member: at, from },
            }));
            if !found.is_empty() || read >= READ_MAX {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// What is told where a member's messages cannot be looked at. That is once for two connections that are lost: the others go
    /// on meanwhile.
    fn give_up(&self, settings: &SubscriptionSettings, info: &Info, unread: &Unread) -> Error {
        let (kind, said) = match unread {
            Unread::Lost => {
                return failed(settings, ErrorKind::Unavailable, "the connection was lost");
            }
            Unread::Refused(subject) => (
                ErrorKind::Unauthorized,
                format!("NATS does not let this user publish to `{subject}`: grant it"),
            ),
            Unread::Failed(said) => (ErrorKind::Unavailable, said.clone()),
        };
        self.go_on(None);
        let (first, last) = (info.ack_floor.stream_sequence + 1, info.delivered.stream_sequence);
        let error = failed(
            settings,
            kind,
            &format!(
                "the connection is lost again and again while messages come, as it is over one whose headers cannot be read: it \
                 may be one of {first} to {last}, which cannot be looked at: {said}; or delete that message"
            ),
        );
        error.context("consumer", &info.name)
    }

    fn search(&self) -> Option<Search> {
        self.lock().search
    }

    fn go_on(&self, search: Option<Search>) {
        self.lock().search = search;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(settings: &SubscriptionSettings, kind: ErrorKind, said: &str) -> Error {
    Error::new(kind, "consume")
        .message(format!("NATS: {said}"))
        .context("stream", &settings.stream)
        .context("group", &settings.group)
}

/// Why a message was not read.
enum Unread {
    Lost,
    /// This user may not ask there.
    Refused(String),
    Failed(String),
}

/// The consumer's next message from there on, as the stream has it: its headers are not read by the client.
async fn next(
    up: &mut Up,
    info: &Info,
    from: u64,
) -> std::result::Result<Option<RawMessage>, Unread> {
    let what = format!("STREAM.MSG.GET.{}", info.stream_name);
    let subject = format!("{}.{what}", up.api);
    let filter = Some(&*info.config.filter_subject).filter(|filter| !filter.is_empty());
    let question = json!({ "seq": from, "next_by_subj": filter.unwrap_or(">") });
    let (jetstream, begun) = (up.jetstream.clone(), Instant::now());
    let mut answer: Value = tokio::select! {
        answer = jetstream.request(what, &question) => {
            answer.map_err(|error| Unread::Failed(error.to_string()))?
        }
        hindrance = up.hindered(&subject, begun) => return Err(match hindrance {
            Hindrance::Lost => Unread::Lost,
            Hindrance::Refused => Unread::Refused(subject),
            Hindrance::Deaf => Unread::Failed("this user may not subscribe to `_INBOX.>`".to_owned()),
        }),
    };
    match (answer["error"]["code"].as_u64(), answer["error"]["description"].as_str()) {
        (Some(404), _) => Ok(None),
        (Some(_), said) => Err(Unread::Failed(said.unwrap_or_default().to_owned())),
        (None, _) => {
            let message = serde_json::from_value(answer["message"].take());
            message.map(Some).map_err(|error| Unread::Failed(error.to_string()))
        }
    }
}

/// One message, as its stream has it, if it is still there: without its headers where the client cannot read them, and its place alone
/// where this user may not read the stream.
///
/// # Errors
/// Why it cannot be read now.
pub(crate) async fn as_stored(
    up: &mut Up,
    info: &Info,
    sequence: u64,
) -> std::result::Result<Option<Original>, String> {
    let left_out = |said: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(LEFT_OUT, said);
        Some(headers)
    };
    let mut message = match next(up, info, sequence).await {
        Ok(Some(message)) if message.sequence == sequence => message,
        Ok(_) => return Ok(None),
        Err(Unread::Lost) => return Err("the connection was lost".to_owned()),
        Err(Unread::Failed(said)) => return Err(said),
        Err(Unread::Refused(subject)) => {
            let said = format!("headers and body: this user may not publish to {subject}");
            let (headers, body) = (left_out(&said), bytes::Bytes::new());
            let subject = Subject::from(info.config.filter_subject.as_str());
            return Ok(Some(Original { subject, headers, body, at: 0 }));
        }
    };
    let mut headers = None;
    let read = match StreamMessage::try_from(message.clone()) {
        Ok(read) => Some(read),
        Err(_) => {
            message.headers = None;
            headers = left_out("headers: they cannot be read");
            StreamMessage::try_from(message).ok()
        }
    };
    let Some(read) = read else { return Err("it cannot be read".to_owned()) };
    let headers = headers.or(Some(read.headers));
    let at = read.time.unix_timestamp_nanos();
    Ok(Some(Original { subject: read.subject, headers, body: read.payload, at }))
}

/// What is wrong with a message, if the client cannot read it.
fn judge(mut message: RawMessage, member: usize, info: &Info) -> Option<Found> {
    let said = match StreamMessage::try_from(message.clone()) {
        Err(error) => format!("its headers cannot be read: {error}"),
        Ok(read) if read.subject.contains(NO_TEXT) => "its subject is no text".to_owned(),
        Ok(_) => return None,
    };
    message.headers = None;
    let message = StreamMessage::try_from(message).ok()?;
    let (sequence, at) = (message.sequence, message.time.unix_timestamp_nanos());
    let token = info.delivered.consumer_sequence;
    // The server goes by the place in the stream, and looks whether the consumer has come as far as is said.
    let reply = format!("$JS.ACK.{}.{}.1.{sequence}.{token}.{at}.0", info.stream_name, info.name);
    let mut headers = HeaderMap::new();
    headers.insert(LEFT_OUT, "headers: they cannot be read");
    let (headers, subject, body) = (Some(headers), message.subject, message.payload);
    Some(Found {
        member,
        receipt: Receipt { message: sequence, token },
        reply: Subject::from(reply),
        original: Original { subject, headers, body, at },
        fault: Fault::new(ErrorKind::Invalid, said),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VISIBILITY: Duration = Duration::from_secs(3);

    /// A server that is started again takes the connection with it once, however many waited on it.
    #[tokio::test(start_paused = true)]
    async fn two_lost_connections_are_looked_into_and_one_is_not() {
        let unreadable = Unreadable::new(VISIBILITY);
        for _ in 0..8 {
            unreadable.lost(1);
        }
        assert!(!unreadable.is_due());
        tokio::time::advance(VISIBILITY * VISIBILITIES).await;
        unreadable.lost(2);
        assert!(!unreadable.is_due(), "long ago");
        tokio::time::advance(VISIBILITY).await;
        unreadable.lost(3);
        assert!(unreadable.is_due());
        unreadable.go_on(None);
        unreadable.lost(4);
        assert!(!unreadable.is_due(), "that was looked into");
    }
}
