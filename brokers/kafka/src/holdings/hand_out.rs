//! Which partition hands out next, and what a delivery of it says.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::Delivery;
use postrider_core::subscription::{Origin, Receipt};
use tokio::time::Instant;

use super::{Held, Inner, Place};
use crate::window::HandedOut;

impl Inner {
    /// From the partition behind the one that handed out last, all around.
    pub(super) fn hand_out(
        &mut self,
        group: &Arc<str>,
        visibility: Duration,
        max: usize,
    ) -> Vec<Delivery> {
        let now = Instant::now();
        let Inner { held, open, drawn, served, .. } = self;
        let mut deliveries = Vec::new();
        let mut around: Vec<(&Place, &mut Held)> =
            held.iter_mut().filter(|(_, held)| !held.leaving).collect();
        let behind = |last: &Place| around.partition_point(|(place, _)| *place <= last);
        let first = served.as_ref().map_or(0, behind);
        around.rotate_left(first);
        for (place, held) in around {
            let mut out = Vec::new();
            let token = || {
                *drawn += 1;
                *drawn
            };
            held.window.hand_out(now, visibility, max - deliveries.len(), token, &mut out);
            if !out.is_empty() {
                *served = Some(place.clone());
            }
            for (token, HandedOut { record, count, begun_before }) in out {
                let message = name_of(place, record.offset);
                open.insert(message, (place.clone(), record.offset));
                let receipt = Receipt { message, token };
                let mut delivery = Delivery::new(record.event, Arc::clone(&place.0), receipt);
                delivery.marks = record.marks;
                (delivery.count, delivery.begun_before) = (count, begun_before);
                let mut origin = Origin::new(crate::SYSTEM);
                origin.group = Some(Arc::clone(group));
                (origin.partition, origin.offset) = (Some(place.1), Some(record.offset));
                delivery.origin = Some(origin);
                deliveries.push(delivery);
            }
            if deliveries.len() >= max {
                break;
            }
        }
        deliveries
    }
}

/// A number for a record, the same at each delivery. Two records that share one would fence each other out, and
/// come again; with a 64-bit hash that does not happen.
fn name_of(place: &Place, offset: i64) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (place, offset).hash(&mut hasher);
    hasher.finish()
}
