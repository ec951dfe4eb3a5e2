//! What happens to the parts of a whole way.

use crate::outbox::Store;

/// Whom it happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A relay is killed, and another one started.
    RelayKilled,
    /// A relay stands still for longer than its lease.
    RelayStopped,
    /// A consumer is killed, and another one started.
    ConsumerKilled,
    /// A consumer stands still for longer than what it holds is hidden.
    ConsumerStopped,
    /// The broker's server is killed, and started again.
    ServerKilled,
    /// The broker's server stands still.
    ServerStopped,
    /// The database of the inbox, and of the outbox if that is in PostgreSQL, is killed and recovers.
    DatabaseKilled,
    /// That database stands still, every process of it.
    DatabaseStopped,
    /// The broker has some events twice.
    Copied,
    /// The wall clock under relays and consumers steps by ten minutes or an hour.
    ClockStepped,
}

impl Fault {
    const ALL: [Fault; 10] = [
        Fault::RelayKilled,
        Fault::RelayStopped,
        Fault::ConsumerKilled,
        Fault::ConsumerStopped,
        Fault::ServerKilled,
        Fault::ServerStopped,
        Fault::DatabaseKilled,
        Fault::DatabaseStopped,
        Fault::Copied,
        Fault::ClockStepped,
    ];

    /// What happens to who reads an outbox, and one fault each of the broker and of the consumers behind it.
    const OF_AN_OUTBOX: [Fault; 5] = [
        Fault::RelayKilled,
        Fault::RelayStopped,
        Fault::ClockStepped,
        Fault::ServerKilled,
        Fault::ConsumerKilled,
    ];

    /// What a way from this store goes through. Brokers and consumers do not know where events come from: what happens to
    /// them happens on the way from one store.
    pub(crate) fn of(store: Store) -> &'static [Fault] {
        match store {
            Store::Postgres => &Fault::ALL,
            Store::Sqlite => &Fault::OF_AN_OUTBOX,
        }
    }
}
