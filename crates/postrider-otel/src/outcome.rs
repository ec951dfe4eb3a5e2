//! Outcomes: how a span says what became of an event.
//!
//! Invariant: a span ends exactly once, also when the future around it is dropped; then it says that
//! nobody knows.

use std::borrow::Cow;

use opentelemetry::trace::{Status, TraceContextExt as _};
use opentelemetry::{Context, KeyValue};
use postrider_core::{ErrorKind, Fault};

use crate::semconv;

/// So many characters of a failure's text stand on a span: enough for a sentence of an answer.
const DETAIL_CHARS_MAX: usize = 256;

/// A span that has not ended.
#[derive(Debug)]
pub(crate) struct Open {
    context: Context,
    detailed: bool,
    ended: bool,
}

impl Open {
    pub(crate) fn new(context: Context, detailed: bool) -> Open {
        Open { context, detailed, ended: false }
    }

    /// It went well, or was not tried.
    pub(crate) fn end(self, outcome: &'static str) {
        self.close(outcome, None);
    }

    /// It failed, by the kind of a failure; its text is for spans with details.
    pub(crate) fn fail(self, outcome: &'static str, kind: ErrorKind, detail: &str) {
        let description = match self.detailed {
            true => detail.chars().take(DETAIL_CHARS_MAX).collect::<String>().into(),
            false => Cow::Borrowed(""),
        };
        self.close(outcome, Some((kind.snake_case().into(), description)));
    }

    pub(crate) fn fault(self, outcome: &'static str, fault: &Fault) {
        self.fail(outcome, fault.kind, &fault.detail);
    }

    fn close(
        mut self,
        outcome: &'static str,
        error: Option<(Cow<'static, str>, Cow<'static, str>)>,
    ) {
        self.ended = true;
        self.say(outcome, error);
    }

    fn say(&self, outcome: &'static str, error: Option<(Cow<'static, str>, Cow<'static, str>)>) {
        let span = self.context.span();
        span.set_attribute(KeyValue::new(semconv::OUTCOME, outcome));
        if let Some((kind, description)) = error {
            span.set_attribute(KeyValue::new(semconv::ERROR_TYPE, kind));
            span.set_status(Status::Error { description });
        }
        span.end();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let why = if std::thread::panicking() { "panic" } else { "dropped" };
        self.say("unknown", Some((why.into(), Cow::Borrowed(""))));
    }
}
