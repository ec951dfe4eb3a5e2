//! Resume: the span of a delivery, in the thread in which its handler runs.
//!
//! A store may run a handler in a thread of its own, which knows nothing of the task that asked. So the
//! context of each delivery in work is kept here, by the event it is about, for that thread to find.
//!
//! Invariant: an entry lives as long as the delivery is in work, so there are as many as deliveries in
//! work, and the engine bounds those.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, ContextGuard};
use postrider_core::Event;

use crate::context;

/// By the address of the event: each delivery has a copy of its own, which lives as long as the entry.
static IN_WORK: LazyLock<Mutex<HashMap<usize, Context>>> = LazyLock::new(Mutex::default);

fn in_work() -> MutexGuard<'static, HashMap<usize, Context>> {
    IN_WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(event: &Event) -> usize {
    std::ptr::from_ref(event).addr()
}

/// A delivery that is in work until this is dropped.
pub(crate) struct InWork<'a>(&'a Arc<Event>);

impl InWork<'_> {
    pub(crate) fn begin<'a>(event: &'a Arc<Event>, context: &Context) -> InWork<'a> {
        in_work().insert(address(event), context.clone());
        InWork(event)
    }
}

impl Drop for InWork<'_> {
    fn drop(&mut self) {
        in_work().remove(&address(self.0));
    }
}

/// Makes the span of the event's delivery the current one of this thread, until the answer is dropped.
///
/// For handlers that are called in a thread of their store, as `Transactional` of the SQLite store
/// does, or by a task for several deliveries, as that of the PostgreSQL store does in groups; in any other asynchronous
/// handler the span is the current one already. Outside of a delivery to a
/// [`TracedReceiver`](crate::TracedReceiver), the event's own context takes its place, if it has one.
///
/// ```
/// use postrider_core::{Event, NewEvent};
/// use postrider_otel::{Traced as _, resume};
///
/// fn bill(order: &Event) -> NewEvent {
///     let _span = resume(order);
///     // A child of the span of this delivery.
///     NewEvent::new("invoice", "7", "invoice.issued").traced()
/// }
/// # use postrider_core::EventId;
/// # let _ = bill(&Event::new(EventId::from_u128(7), "order", "42", "order.placed"));
/// ```
#[must_use = "the span is the current one only until this is dropped"]
pub fn resume(event: &Event) -> Resumed {
    let kept = in_work().get(&address(event)).cloned();
    let context = kept.unwrap_or_else(|| match context::read(&event.headers) {
        Some(creation) => Context::current().with_remote_span_context(creation),
        None => Context::current(),
    });
    Resumed(context.attach())
}

/// A span that is the current one until this is dropped; see [`resume`].
pub struct Resumed(#[expect(dead_code, reason = "its drop is what it is for")] ContextGuard);

impl fmt::Debug for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resumed")
    }
}
