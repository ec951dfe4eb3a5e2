//! Sidecars of NATS: partitions in the subjects that they take.

use postrider_core::template::partition_count;

use crate::config::Consume;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

/// What to write.
const EXAMPLE: &str = "write from = \"nats://HOST:4222/STREAM/shop.{partition:8}.>\", with the word and the \
                       number of the route's topic";

/// A word of the subjects may be a partition, which is counted, and has an order of its own.
pub(super) fn examine(consumer: &Consume, at: &Path, reading: &mut Reading) {
    let literal = consumer.from.literal().unwrap_or_default();
    let Some((_, text)) = literal.split_once('{') else { return };
    if consumer.is_elsewhere(&["nats", "tls"]) {
        return;
    }
    let field = text.split_once('}').map_or(text, |(field, _)| field);
    let from = at.key("from");
    match partition_count(field) {
        Some(Ok(_)) if consumer.nats.in_order => {
            let message = "`in_order` has one event in work in the whole group, and the partitions of `from` \
                           one in each";
            let advice = "leave in_order out: each key is in order by its partition";
            let paths = [at.key("nats").key("in_order"), from];
            reading.contradict(&paths, Complaint::new(message, advice));
        }
        Some(Ok(_)) => {}
        Some(Err(why)) => reading.contradict(&[from], Complaint::new(why, EXAMPLE)),
        None => {
            let message =
                "the subjects of a source have wildcards, * and >, and no fields but the partition";
            reading.contradict(&[from], Complaint::new(message, EXAMPLE));
        }
    }
}
