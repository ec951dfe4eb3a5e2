//! Lanes: the messages of an invocation, each key's in its order.
//!
//! Invariant: in a lane nothing is begun before the one before it was settled; after a failure nothing more is.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_aws::Pushed;
use postrider_core::KeyHash;

/// What is kept in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Line {
    /// A group of a queue of the kind FIFO: the queue keeps its order, and so do we.
    Group(Arc<str>),
    /// A key. A standard queue promises no order; what came together need not be turned round here as well.
    Key(KeyHash),
    /// What is no event stands for itself.
    Alone(usize),
}

/// Parts messages into lanes, in the order of their first ones.
pub(crate) fn part(messages: Vec<Pushed>) -> Vec<Vec<Pushed>> {
    let mut lanes: Vec<Vec<Pushed>> = Vec::new();
    let mut known: HashMap<Line, usize> = HashMap::new();
    for (index, message) in messages.into_iter().enumerate() {
        let line = match (&message.group, &message.delivery.event) {
            (Some(group), _) => Line::Group(Arc::clone(group)),
            (None, Ok(_)) => Line::Key(message.delivery.key_hash()),
            (None, Err(_)) => Line::Alone(index),
        };
        let lane = *known.entry(line).or_insert_with(|| {
            lanes.push(Vec::new());
            lanes.len() - 1
        });
        lanes[lane].push(message);
    }
    lanes
}
