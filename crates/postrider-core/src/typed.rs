//! Events with a type of their own: a struct that knows how it becomes an event, and how it is read
//! from one.
//!
//! Invariant: a struct is read only from an event of its own type and version. Whatever else comes
//! is an error that names both sides, so that the handler can refuse it aloud and nothing is dropped.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

#[doc(no_inline)]
pub use serde::Serialize;

use crate::{Error, ErrorKind, Event, Headers, NewEvent, Payload, Result, Timestamp};

/// A struct that is an event: one type, one version, and a field that says what it is about.
///
/// `#[derive(Event)]` of the crate `postrider` writes the implementation; by hand it is short as
/// well. The struct, as JSON, is the payload. Marking it `#[must_use]` makes the compiler warn when
/// a function that returns one is called and the answer forgotten.
///
/// ```
/// use std::borrow::Cow;
/// use postrider_core::{NewEvent, TypedEvent};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct OrderPlaced { order_id: u64, total_cents: i64 }
///
/// impl TypedEvent for OrderPlaced {
///     const TYPE: &'static str = "order.placed";
///     const AGGREGATE: &'static str = "order";
///
///     fn aggregate_id(&self) -> Cow<'_, str> {
///         Cow::Owned(self.order_id.to_string())
///     }
/// }
///
/// let event: NewEvent = OrderPlaced { order_id: 42, total_cents: 1250 }.to_event()?;
/// assert_eq!(event.key(), "order/42");
/// let read = OrderPlaced::from_event(event.event())?;
/// assert_eq!(read.total_cents, 1250);
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub trait TypedEvent: Serialize {
    /// What happened, like `order.placed`: at most 255 bytes.
    const TYPE: &'static str;

    /// The version of the struct's shape, from 1. It grows with each change that a reader of the
    /// old shape would misunderstand.
    const VERSION: u32 = 1;

    /// The kind of thing it happened to, like `order`: at most 255 bytes.
    const AGGREGATE: &'static str;

    /// Which one of them.
    fn aggregate_id(&self) -> Cow<'_, str>;

    /// The ordering key, where it is not the aggregate.
    fn ordering_key(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// The tenant, where there are tenants.
    fn tenant(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// When the fact happened; `None` is the moment of [`to_event`](TypedEvent::to_event).
    fn occurred_at(&self) -> Option<Timestamp> {
        None
    }

    /// Headers that come from the struct.
    fn headers(&self) -> Headers {
        Headers::new()
    }

    /// The event, with a fresh id: two calls make two events.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the struct cannot be written as JSON. Sizes and characters are
    /// checked by `enqueue`, which knows the limits.
    #[must_use = "an event that is not enqueued in a transaction never happened"]
    fn to_event(&self) -> Result<NewEvent> {
        let mut new = NewEvent::new(Self::AGGREGATE, self.aggregate_id(), Self::TYPE)
            .version(Self::VERSION)
            .json(&self)?;
        if let Some(key) = self.ordering_key() {
            new = new.ordered_by(&key);
        }
        if let Some(tenant) = self.tenant() {
            new = new.tenant(&tenant);
        }
        if let Some(time) = self.occurred_at() {
            new = new.occurred_at(time);
        }
        new.event.headers = self.headers();
        Ok(new)
    }

    /// Reads the struct from an event of its type and version.
    ///
    /// An error means that the handler has not acted: let it refuse the event
    /// (`Verdict::Reject`), and the event is kept as a dead letter. A handler that reads several
    /// types or versions matches on `(&*event.event_type, event.event_version)` first; `TYPE` and
    /// `VERSION` may stand in the patterns.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the event has another type or version, if its payload is encoded
    /// or erased, or if the payload is not the JSON of this struct. The message tells where the
    /// payload stops making sense, and repeats nothing of its content.
    fn from_event(event: &Event) -> Result<Self>
    where
        Self: DeserializeOwned,
    {
        check::<Self>(event)?;
        serde_json::from_slice(event.payload.as_bytes())
            .map_err(|error| refused::<Self>(event, &unreadable(&error.to_string())))
    }
}

/// Whether the payload is this struct's, and stands there in the clear.
fn check<T: TypedEvent>(event: &Event) -> Result<()> {
    if *event.event_type != *T::TYPE || event.event_version != T::VERSION {
        return Err(refused::<T>(event, "it has another shape"));
    }
    if let Some(codec) = event.encoding.as_deref() {
        let message = format!("its payload is encoded by `{}`: decode it first", escape(codec));
        return Err(refused::<T>(event, &message));
    }
    if event.payload == Payload::Erased {
        return Err(refused::<T>(event, "its payload was erased on request"));
    }
    Ok(())
}

fn refused<T: TypedEvent>(event: &Event, reason: &str) -> Error {
    let message = format!(
        "the event is `{}` version {}, and is read as `{}` version {}: {reason}; nothing was done, \
         refuse it to keep it as a dead letter",
        escape(&event.event_type),
        event.event_version,
        T::TYPE,
        T::VERSION,
    );
    Error::new(ErrorKind::Invalid, "read event").message(message).context("event", event.id)
}

fn escape(text: &str) -> std::str::EscapeDebug<'_> {
    text.escape_debug()
}

/// What a JSON error may say. Its text quotes what was found, which may be anybody's address; what
/// was expected, and where, is the reader's own.
fn unreadable(error: &str) -> String {
    if error.starts_with("missing field `") {
        return error.to_owned();
    }
    let place = error.rfind(" at line ").map_or("", |start| &error[start..]);
    let quotes = error.starts_with("invalid ") || error.starts_with("unknown ");
    match error.rsplit_once(", expected ").filter(|_| quotes) {
        Some((_, expected)) => format!("its payload does not fit: expected {expected}"),
        None => format!("its payload does not fit{place}"),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{EventId, EventLimits};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Placed {
        order: u64,
        customer: String,
    }

    impl TypedEvent for Placed {
        const TYPE: &'static str = "order.placed";
        const VERSION: u32 = 2;
        const AGGREGATE: &'static str = "order";

        fn aggregate_id(&self) -> Cow<'_, str> {
            Cow::Owned(self.order.to_string())
        }

        fn ordering_key(&self) -> Option<Cow<'_, str>> {
            Some(Cow::Borrowed(&self.customer))
        }

        fn headers(&self) -> Headers {
            Headers::from([("correlationid".to_owned(), "c-1".to_owned())])
        }
    }

    fn placed() -> Placed {
        Placed { order: 42, customer: "ada".to_owned() }
    }

    fn recorded() -> Event {
        placed().to_event().unwrap().event().clone()
    }

    fn refusal(event: &Event) -> String {
        let error = Placed::from_event(event).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    }

    /// R016: the struct's version travels in the envelope.
    #[test]
    fn a_struct_becomes_an_event_and_is_read_again() {
        let event = recorded();
        assert_eq!((&*event.event_type, event.event_version), ("order.placed", 2));
        assert_eq!((&*event.aggregate_type, &*event.aggregate_id), ("order", "42"));
        assert_eq!(event.key(), "ada");
        assert_eq!(event.tenant, None);
        assert_eq!(event.headers["correlationid"], "c-1");
        assert_eq!(Placed::from_event(&event).unwrap(), placed());
        assert_ne!(recorded().id, event.id);
        EventLimits::default().check(&event).unwrap();
    }

    /// R126: an unknown type or version is refused, and the refusal names both sides.
    #[test]
    fn another_type_or_version_is_an_error_that_names_both() {
        let mut newer = recorded();
        newer.event_version = 3;
        let error = refusal(&newer);
        assert!(error.contains("`order.placed` version 3"), "{error}");
        assert!(error.contains("`order.placed` version 2"), "{error}");
        let mut other = recorded();
        other.event_type = "order.cancelled".into();
        let error = refusal(&other);
        assert!(error.contains("`order.cancelled` version 2"), "{error}");
        assert!(error.contains(&other.id.to_string()), "{error}");
    }

    #[test]
    fn a_payload_that_is_not_in_the_clear_is_not_read() {
        let mut encoded = recorded();
        encoded.encoding = Some("aes-1".into());
        assert!(refusal(&encoded).contains("`aes-1`"));
        let mut erased = recorded();
        erased.payload = Payload::Erased;
        assert!(refusal(&erased).contains("erased"));
    }

    #[test]
    fn a_refusal_says_where_and_repeats_nothing_of_the_payload() {
        let mut event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
        event.event_version = 2;
        for (payload, told) in [
            (r#"{"order":"hidden","customer":"a"}"#, "expected u64 at line 1 column 17"),
            (r#"{"order":"hidden, expected too"}"#, "expected u64 at line 1 column 31"),
            (r#"{"order":1}"#, "missing field `customer` at line 1 column 11"),
            (r#"{"order":hidden"#, "does not fit at line 1 column 10"),
            ("", "does not fit at line 1 column 0"),
        ] {
            event.payload = Payload::Bytes(payload.into());
            let error = format!("{:?}", Placed::from_event(&event).unwrap_err());
            assert!(error.contains(told), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }
}
