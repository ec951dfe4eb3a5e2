//! What the services can, as far as they are alike.

use std::time::Duration;

use postrider_core::{BrokerCapabilities, Format};

use crate::call::ROWS_MAX;
use crate::settings::AwsSettings;

/// Bytes of a batch: what a page of the relay has.
const BATCH_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// How long FIFO knows the id of an event.
const REMEMBERED: Duration = Duration::from_secs(5 * 60);

/// What all of these services can. None has prefix order: each takes 2 and 3 of a call in which it refuses 1.
pub(crate) fn of(settings: &AwsSettings) -> BrokerCapabilities {
    let mut can = BrokerCapabilities::least();
    can.prefix_order = false;
    can.durable = true;
    can.batch_rows_max = u32::try_from(ROWS_MAX).unwrap_or(u32::MAX);
    can.batch_bytes_max = BATCH_BYTES_MAX;
    can.batches_in_flight_max = settings.batches_in_flight;
    can.endpoint_batches_max = settings.batches_in_flight;
    can
}

/// The same, of a service with queues or topics of the kind FIFO.
pub(crate) fn of_fifo(settings: &AwsSettings) -> BrokerCapabilities {
    let mut can = of(settings);
    can.keeps_key_order = settings.fifo;
    can.deduplicates_for = settings.fifo.then_some(REMEMBERED);
    can.formats = &[Format::Structured, Format::Plain];
    can
}
