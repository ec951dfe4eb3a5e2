//! Counts what the relay says of itself: each notice is a metric or two.

use postrider_core::BoxFuture;
use postrider_relay::{Notice, Observer, Point};

use crate::serve::catalog;
use crate::serve::metrics::Metrics;

impl Observer for Metrics {
    fn reached(&self, _: Point) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn noted(&self, notice: &Notice) {
        match notice {
            Notice::Delivered { subject, took, lag, .. } => {
                let destination = [subject.destination.as_str()];
                self.add(catalog::PUBLISHED, &destination, 1);
                self.add(catalog::ATTEMPTS, &[destination[0], "acked"], 1);
                self.observe(catalog::PUBLISH, &destination, *took);
                if let Some(lag) = lag {
                    self.observe(catalog::DELIVERY, &destination, *lag);
                }
            }
            Notice::AttemptFailed { subject, .. } => {
                self.add(catalog::ATTEMPTS, &[subject.destination.as_str(), "failed"], 1);
            }
            Notice::EndpointFailed { destination, .. } => {
                self.add(catalog::ATTEMPTS, &[destination.as_str(), "endpoint"], 1);
            }
            Notice::DeadLetter { subject, reason, .. } => {
                let labels = [subject.destination.as_str(), reason.as_str()];
                self.add(catalog::DEAD, &labels, 1);
            }
            Notice::Retired { rows, .. } => self.add(catalog::RETIRED, &[], u64::from(*rows)),
            _ => {}
        }
    }
}
