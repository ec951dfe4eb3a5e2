//! Routes: whether any destination takes an event, for those that this one does not.
//!
//! Keeps INV-1: what no route of any destination takes is a dead letter of `unrouted`, and never passed in silence.

use postrider_core::{Destination, Event};

/// What a flow needs to know of the other destinations to judge a row without a route.
pub(crate) trait Routed {
    /// Whether any destination has a route for the event.
    fn is_routed(&self, event: &Event) -> bool;
}

/// All routes of all destinations, for the events that none of them takes.
#[derive(Debug, Default)]
pub(crate) struct Routes(pub(crate) Vec<Destination>);

impl Routed for Routes {
    fn is_routed(&self, event: &Event) -> bool {
        self.0.iter().any(|destination| destination.route(event).is_some())
    }
}
