//! A table of the application's own, against what can be done with one.

use crate::address::Address;
use crate::choice::TableLayout;
use crate::config::Config;
use crate::own_table::OwnTableConfig;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(config: &Config, reading: &mut Reading) {
    let own = &config.own_table;
    let at = |name: &str| Path::of("own_table").key(name);
    if own.table.is_none() {
        return;
    }
    of_the_layout(own, reading);
    let scheme = config.store.as_ref().and_then(Address::scheme);
    if scheme.as_deref().is_some_and(|scheme| !scheme.starts_with("postgres")) {
        let message = "a table of your own is served from PostgreSQL alone";
        let advice = "name its database as the store: postgres://HOST/DATABASE";
        reading.contradict(&[at("table"), Path::of("store")], Complaint::new(message, advice));
    }
    if config.destinations.len() > 1 {
        let message = "a row of your own table has one mark, so it goes to one destination";
        let advice = "leave one destination, or move to Postrider's outbox";
        reading
            .contradict(&[at("table"), Path::of("destinations")], Complaint::new(message, advice));
    }
    if config.retention.outbox.is_some() {
        let paths = [at("table"), Path::of("retention").key("outbox")];
        let message = "nothing is removed from a table of your own";
        let advice = "leave outbox out, and remove what is published yourself";
        reading.contradict(&paths, Complaint::new(message, advice));
    }
}

/// A key of another layout would be passed over, and with it what says that a row was published: it would be sent again.
fn of_the_layout(own: &OwnTableConfig, reading: &mut Reading) {
    let at = |name: &str| Path::of("own_table").key(name);
    let keys = [
        ("published_at", own.published_at.is_some(), TableLayout::PublishedAt, "published_at"),
        ("status", own.status.is_some(), TableLayout::Status, "status"),
        ("pending", own.pending != "pending", TableLayout::Status, "status"),
        ("published", own.published != "published", TableLayout::Status, "status"),
    ];
    for (key, given, of, layout) in keys {
        if given && own.layout != of {
            let message = format!("`{key}` is of the layout `{layout}`");
            let advice = format!("write layout = \"{layout}\", or leave {key} out");
            reading.contradict(&[at(key), at("layout")], Complaint::new(message, advice));
        }
    }
    if own.compare && own.layout == TableLayout::Debezium {
        let message = "rows that are deleted when they are published cannot be compared";
        let advice = "leave compare out, and compare what arrives";
        reading.contradict(&[at("compare"), at("layout")], Complaint::new(message, advice));
    }
}
