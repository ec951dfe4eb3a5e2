//! A sidecar's times and addresses.

use crate::config::Consume;
use crate::duration::print;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(consumer: &Consume, at: &Path, reading: &mut Reading) {
    if consumer.timeout >= consumer.lease {
        let message = format!(
            "a call may take {}, and its lease ends after {}: another consumer would call as well",
            print(consumer.timeout),
            print(consumer.lease)
        );
        let advice =
            format!("write lease = \"{}\", or a shorter timeout", print(consumer.timeout * 2));
        let paths = [at.key("timeout"), at.key("lease")];
        reading.contradict(&paths, Complaint::new(message, advice));
    }
    super::nats::examine_source(consumer, at, reading);
    super::kafka::examine_source(consumer, at, reading);
    super::require_http(&at.key("endpoint"), Some(&consumer.endpoint), reading);
}
