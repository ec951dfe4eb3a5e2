//! Subjects: which event a notice is about. A payload may be anybody's secret: none says it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::waiting::RowRef;
use postrider_core::{DestinationId, Event, EventId, Marks, PartitionId};

use crate::flow::Flow;
use crate::lane::{Entry, Origin};
use crate::notice::Notice;
use crate::outlet::Outlet;

/// Which event a notice is about, and where it was to go. Never its payload.
#[derive(Clone)]
pub struct Subject {
    /// Its number and id.
    pub row: RowRef,
    /// In which partition.
    pub partition: PartitionId,
    /// At which destination.
    pub destination: DestinationId,
    /// Its topic, subject, queue, or URL, where that is known.
    pub topic: Option<Arc<str>>,
    /// Which of the destination's routes took it, from 0.
    pub route: Option<u16>,
    /// The event, where the row can be read as one. Private: it has the payload.
    pub(crate) event: Option<Arc<Event>>,
}

impl Subject {
    /// The event's id.
    pub fn id(&self) -> EventId {
        self.row.id
    }

    /// Its ordering key, where the row can be read.
    pub fn key(&self) -> Option<String> {
        self.event.as_ref().map(|event| event.key())
    }

    /// Its type, where the row can be read.
    pub fn event_type(&self) -> Option<&str> {
        self.event.as_ref().map(|event| &*event.event_type)
    }

    /// The text of a place in a log line: the topic, or nothing.
    pub(crate) fn endpoint(&self) -> &str {
        self.topic.as_deref().unwrap_or_default()
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("row", &self.row)
            .field("key", &self.key())
            .field("partition", &self.partition)
            .field("destination", &self.destination)
            .field("topic", &self.topic)
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}

/// Which event an entry is, and where it goes.
pub(crate) fn subject(flow: &Flow, outlet: &Outlet, entry: &Entry) -> Subject {
    Subject {
        topic: Some(Arc::clone(&outlet.endpoint(entry.endpoint).topic)),
        route: Some(entry.route),
        ..flow.subject(entry.row, Some(Arc::clone(&entry.event)))
    }
}

/// Says that an event was acknowledged, by a call that took so long.
pub(crate) fn delivered(flow: &Flow, outlet: &Outlet, entry: &Entry, took: Duration) -> Notice {
    let (attempts, late) = match entry.origin {
        Origin::Stream(_) => (0, false),
        Origin::Waiting { attempts, late, .. } => (attempts, late),
    };
    Notice::Delivered {
        subject: subject(flow, outlet, entry),
        attempt: attempts + 1,
        marks: Marks { late, replay: entry.row.seq <= flow.replay_through },
        took,
        created_at: entry.event.created_at,
        lag: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::NewEvent;

    /// A payload may be anybody's secret: no notice says it.
    #[test]
    fn a_notice_has_the_key_and_not_the_payload() {
        let event = NewEvent::new("order", "42", "order.placed").bytes("hunter2", "text/plain");
        let event = event.header("authorization", "hunter2");
        let subject = Subject {
            row: RowRef { seq: 7, id: event.event().id },
            partition: PartitionId(0),
            destination: DestinationId::new("a").unwrap(),
            topic: Some(Arc::from("orders")),
            route: Some(0),
            event: Some(Arc::new(event.event().clone())),
        };
        let text = format!("{:?}", Notice::Parked { subject });
        assert!(text.contains("order/42") && !text.contains("hunter2"), "{text}");
    }
}
