//! What is wrong between values that are right by themselves, named with both places.
//!
//! Invariant: nothing here looks at how a value was written, only at what it means; and nothing
//! that is wrong here would have been found only after connecting.

mod consume;
mod destination;
mod dynamodb;
mod nats;
mod observe;
mod own_table;
mod postgres;
mod relay;
mod retention;
mod route;
pub(crate) mod rules;
mod servers;
mod webhook;

use crate::address::Address;
use crate::config::Config;
use crate::load::Needs;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

/// Examines the whole configuration.
pub(crate) fn examine(config: &Config, needs: Needs, reading: &mut Reading) {
    require(config, needs, reading);
    rules::examine(config, reading);
    relay::examine(config, reading);
    retention::examine(config, reading);
    observe::examine(config, reading);
    own_table::examine(config, reading);
    postgres::examine(config, reading);
    dynamodb::examine(config, reading);
    let at = Path::of("destinations");
    for (id, destination) in &config.destinations {
        let at = at.key(id.as_str());
        destination::examine(destination, &at, reading);
        route::examine(destination, &at, reading);
        webhook::examine(destination, &at, reading);
    }
    destination::examine_pairs(config, reading);
    for (name, consumer) in &config.consume {
        consume::examine(consumer, &Path::of("consume").key(name.as_str()), reading);
    }
    consume::examine_pairs(config, reading);
}

/// Reports what the command cannot do without.
fn require(config: &Config, needs: Needs, reading: &mut Reading) {
    let cases = [
        (
            needs.store && config.store.is_none(),
            "store",
            "there is no store",
            "write store = \"sqlite:///var/lib/shop.db\", or set POSTRIDER_STORE",
        ),
        (
            needs.destinations && config.destinations.is_empty(),
            "destinations",
            "there is no destination",
            "write a table [destinations.NAME] with a kind, or set \
             POSTRIDER_DESTINATIONS__NAME__KIND",
        ),
        (
            needs.consumers && config.consume.is_empty(),
            "consume",
            "there is no consumer",
            "write a table [consume.NAME], or set POSTRIDER_CONSUME__NAME__FROM and its other keys",
        ),
    ];
    for (missing, name, message, advice) in cases {
        if missing {
            reading.contradict(&[Path::of(name)], Complaint::new(message, advice));
        }
    }
}

/// Reports an address that is not one of HTTP; says whether it may be one.
fn require_http(at: &Path, address: Option<&Address>, reading: &mut Reading) -> bool {
    let scheme = address.and_then(Address::scheme);
    let fits = scheme.as_deref().is_none_or(|scheme| scheme == "https" || scheme == "http");
    if !fits {
        let message = "requests go to addresses that begin with https:// or http://";
        let advice = "correct the scheme; the rest was not looked at";
        reading.contradict(std::slice::from_ref(at), Complaint::new(message, advice));
    }
    fits
}
