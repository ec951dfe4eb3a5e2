//! What is DynamoDB's own, against the store that there is, and what its store does not do.

use crate::address::Address;
use crate::config::Config;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(config: &Config, reading: &mut Reading) {
    // An address that stands elsewhere is looked at when it is read.
    match config.store.as_ref().and_then(Address::scheme).as_deref() {
        None => {}
        Some("dynamodb") => examine_store(config, reading),
        Some(_) => examine_other(config, reading),
    }
}

/// What the store does not do.
fn examine_store(config: &Config, reading: &mut Reading) {
    let store = Path::of("store");
    if config.destinations.len() > 1 {
        let message = "an event has one mark in DynamoDB, so it goes to one destination";
        let advice = "leave one destination, and let others subscribe to its topic or bus";
        let paths = [Path::of("destinations"), store.clone()];
        reading.contradict(&paths, Complaint::new(message, advice));
    }
    if config.retention.archive.is_some() {
        let message = "published events leave DynamoDB by the table's time to live, and no archive is \
                       written before";
        let advice = "leave archive out; a stream to S3 keeps what the time to live removes";
        let paths = [Path::of("retention").key("archive"), store];
        reading.contradict(&paths, Complaint::new(message, advice));
    }
}

/// What is asked for and means nothing to another store.
fn examine_other(config: &Config, reading: &mut Reading) {
    for name in config.dynamodb.asked() {
        let message =
            format!("`{name}` is about DynamoDB, and the store of this configuration is another");
        let advice = format!("leave {name} out, or name tables: dynamodb://REGION");
        let paths = [Path::of("dynamodb").key(name), Path::of("store")];
        reading.contradict(&paths, Complaint::new(message, advice));
    }
}
