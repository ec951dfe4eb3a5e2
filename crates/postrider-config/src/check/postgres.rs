//! What is PostgreSQL's own, against the databases that there are.

use crate::address::Address;
use crate::choice::Pooler;
use crate::config::Config;
use crate::path::Path;
use crate::postgres::PublishAfter;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(config: &Config, reading: &mut Reading) {
    let at = |name: &str| Path::of("postgres").key(name);
    let store = Path::of("store");
    // An address that stands elsewhere is looked at when it is read.
    let other = |address: &Address| {
        address.scheme().is_some_and(|scheme| !matches!(&*scheme, "postgres" | "postgresql"))
    };
    let no_store = config.store.as_ref().is_some_and(other);
    let no_inbox = config.consume.values().all(|consumer| other(&consumer.inbox));
    let databases = config.store.iter().count() + config.consume.len();
    let no_database = databases > 0 && (no_store || config.store.is_none()) && no_inbox;
    // A default that is written out asks for nothing.
    let postgres = &config.postgres;
    let pools = postgres.pooler != Pooler::Auto;
    let waits = postgres.publish_after != PublishAfter::Local;
    for (name, foreign, means) in [
        ("pooler", pools && no_database, "database"),
        ("publish_after", waits && no_store, "store"),
    ] {
        if foreign {
            let message = format!(
                "`{name}` is about PostgreSQL, and no {means} of this configuration is one"
            );
            let advice = format!("leave {name} out, or name a database: postgres://HOST/DATABASE");
            reading.contradict(&[at(name), store.clone()], Complaint::new(message, advice));
        }
    }
}
