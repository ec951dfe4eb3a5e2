//! Trace context in headers: W3C `traceparent` and `tracestate`, read and written.
//!
//! Invariant: nothing that stands in a header makes an event fail. What is no valid `traceparent` is
//! no context; a `tracestate` that is none leaves the context without state.
//!
//! The SDK has a propagator that does nearly this; a library that uses it would bring the SDK into
//! every application.

use std::str::FromStr as _;

use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use postrider_core::{Headers, NewEvent};

pub(crate) const PARENT: &str = "traceparent";
pub(crate) const STATE: &str = "tracestate";

/// The longest state that is written. W3C asks that 512 characters travel; more would take room that
/// the application's own headers have a right to.
const STATE_LENGTH_MAX: usize = 512;

/// The creation context that an event carries, if it carries a valid one.
pub(crate) fn read(headers: &Headers) -> Option<SpanContext> {
    let (trace, span, flags) = parse(headers.get(PARENT)?)?;
    let state = headers.get(STATE).and_then(|text| TraceState::from_str(text).ok());
    Some(SpanContext::new(trace, span, flags, true, state.unwrap_or_default()))
}

/// Puts a creation context into an event, in place of whatever was there.
pub(crate) fn write(event: NewEvent, context: &SpanContext) -> NewEvent {
    let event = event.header(PARENT, parent(context));
    match state(context) {
        Some(state) => event.header(STATE, state),
        None => event.without_header(STATE),
    }
}

/// The headers of the current span, for a request that is sent from it: `traceparent`, and `tracestate`
/// if there is one. Empty outside of a span.
///
/// A handler that calls a service passes these on instead of the event's own, so that the service's
/// spans hang below the handler's.
pub fn current_headers() -> Headers {
    Context::map_current(|context| {
        let span = context.span();
        let current = span.span_context();
        if !current.is_valid() {
            return Headers::new();
        }
        let state = state(current).map(|state| (STATE.to_owned(), state));
        [(PARENT.to_owned(), parent(current))].into_iter().chain(state).collect()
    })
}

fn parent(context: &SpanContext) -> String {
    let flags = context.trace_flags() & TraceFlags::SAMPLED;
    format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id())
}

/// The state, unless it is empty or somebody on the way would refuse it, and the event with it.
fn state(context: &SpanContext) -> Option<String> {
    let state = context.trace_state().header();
    let fits = state.len() <= STATE_LENGTH_MAX && !state.chars().any(char::is_control);
    (!state.is_empty() && fits).then_some(state)
}

/// Reads `version-trace-parent-flags`. Versions to come may append fields, and nothing else.
fn parse(text: &str) -> Option<(TraceId, SpanId, TraceFlags)> {
    const LENGTH: usize = 55;
    let (known, rest) = text.trim_matches([' ', '\t']).split_at_checked(LENGTH)?;
    let mut fields = known.split('-');
    let version = hex(fields.next()?, 2)?;
    let trace = hex(fields.next()?, 32)?;
    let parent = hex(fields.next()?, 16)?;
    let flags = hex(fields.next()?, 2)?;
    let ends = rest.is_empty() || (version != "00" && rest.starts_with('-'));
    if version == "ff" || !ends || fields.next().is_some() {
        return None;
    }
    let trace = TraceId::from_hex(trace).ok().filter(|id| *id != TraceId::INVALID)?;
    let parent = SpanId::from_hex(parent).ok().filter(|id| *id != SpanId::INVALID)?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    // Flags that are not known here are not passed on.
    Some((trace, parent, TraceFlags::new(flags) & TraceFlags::SAMPLED))
}

/// The field, if it is so many digits in lower case.
fn hex(field: &str, digits: usize) -> Option<&str> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (field.len() == digits && field.bytes().all(is_digit)).then_some(field)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(parent: &str, state: Option<&str>) -> Headers {
        let mut headers = Headers::from([(PARENT.to_owned(), parent.to_owned())]);
        headers.extend(state.map(|state| (STATE.to_owned(), state.to_owned())));
        headers
    }

    #[test]
    fn a_valid_context_is_read_as_remote() {
        let context = read(&headers(VALID, Some("a=1, b@c=2"))).unwrap();
        assert!(context.is_valid() && context.is_remote() && context.is_sampled());
        assert_eq!(context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id().to_string(), "b7ad6b7169203331");
        assert_eq!(context.trace_state().header(), "a=1,b@c=2");
    }

    #[test]
    fn flags_and_versions_to_come_are_read_as_far_as_they_are_known() {
        for (ending, sampled) in [("00", false), ("01", true), ("02", false), ("ff", true)] {
            let text = format!("{}{ending}", &VALID[..53]);
            assert_eq!(read(&headers(&text, None)).unwrap().is_sampled(), sampled, "{ending}");
        }
        let later = format!("cc{}-what-will-be", &VALID[2..]);
        assert!(read(&headers(&later, None)).is_some());
    }

    #[test]
    fn what_is_no_context_is_none() {
        for text in [
            "",
            "00",
            "00-ab-cd-01",
            "not a context, but as long as one would be, to be fair..",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more",
            "00-0af7651916cd43dd8448eb211c80319cb-7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333é-1",
        ] {
            assert!(read(&headers(text, None)).is_none(), "{text}");
        }
        assert!(read(&Headers::new()).is_none());
    }

    #[test]
    fn a_state_that_is_none_leaves_the_context() {
        let context = read(&headers(VALID, Some("no state"))).unwrap();
        assert_eq!(context.trace_state(), &TraceState::NONE);
    }

    #[test]
    fn a_state_of_another_trace_does_not_stay() {
        let event = NewEvent::new("order", "1", "t").header(PARENT, "?").header(STATE, "old=1");
        let event = write(event, &read(&headers(VALID, None)).unwrap());
        assert_eq!(event.event().headers, headers(VALID, None));
    }

    #[test]
    fn a_state_that_takes_too_much_room_is_left_out() {
        let long = |length: usize| format!("a={}", "x".repeat(length - 2));
        let states: Vec<String> = (0..3).map(|n| format!("k{n}={}", "x".repeat(200))).collect();
        for (state, stays) in
            [(long(200), true), (states[..2].join(","), true), (states.join(","), false)]
        {
            let context = read(&headers(VALID, Some(&state))).unwrap();
            assert_eq!(context.trace_state().header(), state);
            let event = write(NewEvent::new("order", "1", "t"), &context);
            assert_eq!(event.event().headers.contains_key(STATE), stays, "{}", state.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Whatever is written reads back the same; the flags as far as they are known.
        #[test]
        fn what_is_written_reads_back(trace in 1..u128::MAX, span in 1..u64::MAX, flags: u8) {
            let flags = TraceFlags::new(flags);
            let context =
                SpanContext::new(trace.into(), span.into(), flags, true, TraceState::NONE);
            let event = write(NewEvent::new("order", "1", "t"), &context);
            let read = read(&event.event().headers).unwrap();
            prop_assert_eq!(read.trace_id(), context.trace_id());
            prop_assert_eq!(read.span_id(), context.span_id());
            prop_assert_eq!(read.is_sampled(), context.is_sampled());
        }

        /// No text is a panic, and one is only read if it writes back as it was.
        #[test]
        fn any_text_is_read_or_none(text in "(00-)?[0-9a-f\\-é ]{0,60}|\\PC{0,80}", state in "\\PC{0,40}") {
            if let Some(context) = read(&headers(&text, Some(&state))) {
                let event = write(NewEvent::new("order", "1", "t"), &context);
                prop_assert_eq!(&event.event().headers[PARENT][..53], &text.trim()[..53]);
            }
        }
    }
}
