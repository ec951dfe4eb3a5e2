//! A table of the application's own, against what can be done with one.

use crate::address::Address;
use crate::config::Config;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(config: &Config, reading: &mut Reading) {
    let own = &config.own_table;
    let at = |name: &str| Path::of("own_table").key(name);
    if own.table.is_none() {
        return;
    }
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
