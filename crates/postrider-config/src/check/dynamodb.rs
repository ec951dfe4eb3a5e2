//! What is DynamoDB's own, against the store that there is, and what its store does not do.

use crate::address::Address;
use crate::config::Config;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(config: &Config, reading: &mut Reading) {
    examine_derived(config, reading);
    // An address that stands elsewhere is looked at when it is read.
    match config.store.as_ref().and_then(Address::scheme).as_deref() {
        None => {}
        Some("dynamodb") => examine_store(config, reading),
        Some(_) => examine_other(config, reading),
    }
}

/// The attributes of a stamp, which a mapping is not shown.
const STAMP: [&str; 4] = ["pr_shard", "pr_at", "pr_event", "pr_n"];

/// What no event could be made by.
fn examine_derived(config: &Config, reading: &mut Reading) {
    let (derived, table) = (&config.dynamodb.derived, Path::of("dynamodb").key("derived"));
    let at = |name: &str| table.key(name);
    let types = [at("event_type"), at("event_type_from")];
    let untyped = derived.event_type.is_none() && derived.event_type_from.is_none();
    if derived.aggregate_type.is_some() && untyped && reading.is_sound(&types) {
        let message = "no type says what happened to these items";
        let advice = "write event_type = \"order.changed\" for all of them, or event_type_from = \"status\" \
                      for the attribute that says it";
        reading.contradict(&[at("aggregate_type")], Complaint::new(message, advice));
    }
    for (name, attribute) in [
        ("aggregate_id_from", &derived.aggregate_id_from),
        ("event_type_from", &derived.event_type_from),
        ("payload_from", &derived.payload_from),
    ] {
        if attribute.as_deref().is_some_and(|attribute| STAMP.contains(&attribute)) {
            let message = format!("`{name}`: that attribute is the stamp's, and not the item's");
            let advice = "name an attribute of your own; the header itemversion has the version";
            reading.contradict(&[at(name)], Complaint::new(message, advice));
        }
    }
    if config.dynamodb.mark_first && derived.aggregate_type.is_some() {
        let message = "marks that come first would be written on your own items, which get none";
        let advice = "leave mark_first out, or the mapping";
        let paths = [Path::of("dynamodb").key("mark_first"), at("aggregate_type")];
        reading.contradict(&paths, Complaint::new(message, advice));
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
