//! Operator codes: a stable number for each error that a person must act on, with its advice.

use std::fmt;

use crate::ErrorKind;

/// A stable code, `PR-1001`, that names an operator's error for ever.
///
/// A code is printed with the error, can be searched for, and has advice that says what was not
/// lost and what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Code {
    /// The store has no Postrider tables.
    SchemaMissing = 1001,
    /// The store was made by a newer Postrider.
    SchemaTooNew = 1002,
    /// The store cannot be written to.
    ReadOnly = 1003,
    /// The store's disk is full.
    DiskFull = 1004,
    /// The store's file is damaged or is no database.
    Corrupt = 1005,
    /// The store's sequence lies behind a cursor.
    Rewound = 1006,
    /// The store is locked by another writer for longer than the relay waits.
    Busy = 1007,
    /// The store's file went away while it was in use.
    StoreVanished = 1008,
    /// The same event id came with another payload.
    PayloadMismatch = 1101,
    /// This relay's definition of a destination is not the one in the store.
    DefinitionOutdated = 1201,
    /// No route matches the event.
    NoRoute = 1202,
    /// The lease is held by another relay.
    LeaseHeld = 1203,
    /// The destination does not accept our credentials.
    Unauthorized = 1301,
    /// The topic, queue, or subject does not exist.
    Unroutable = 1302,
    /// The configuration contradicts itself.
    Config = 1401,
}

impl Code {
    /// Every code, in order.
    pub const ALL: &'static [Code] = &[
        Code::SchemaMissing,
        Code::SchemaTooNew,
        Code::ReadOnly,
        Code::DiskFull,
        Code::Corrupt,
        Code::Rewound,
        Code::Busy,
        Code::StoreVanished,
        Code::PayloadMismatch,
        Code::DefinitionOutdated,
        Code::NoRoute,
        Code::LeaseHeld,
        Code::Unauthorized,
        Code::Unroutable,
        Code::Config,
    ];

    /// The code that a kind of error carries by default.
    pub const fn of_kind(kind: ErrorKind) -> Option<Code> {
        Some(match kind {
            ErrorKind::SchemaMissing => Code::SchemaMissing,
            ErrorKind::SchemaTooNew => Code::SchemaTooNew,
            ErrorKind::ReadOnly => Code::ReadOnly,
            ErrorKind::DiskFull => Code::DiskFull,
            ErrorKind::Corrupt => Code::Corrupt,
            ErrorKind::Rewound => Code::Rewound,
            ErrorKind::Busy => Code::Busy,
            ErrorKind::Unauthorized => Code::Unauthorized,
            ErrorKind::Unroutable => Code::Unroutable,
            ErrorKind::Config => Code::Config,
            _ => return None,
        })
    }

    /// What was not lost, and what to do next: one or two sentences for the person who is awake.
    pub const fn advice(self) -> &'static str {
        match self {
            Code::SchemaMissing => {
                "Nothing was read or written. Run `postrider init URL` to create the tables, or \
                 check that the URL names the right database."
            }
            Code::SchemaTooNew => {
                "Nothing was read or written. Run the Postrider version that made these tables, \
                 or a newer one."
            }
            Code::ReadOnly => {
                "Committed events stay in the store and are delivered once it can be written to. \
                 Check the file's owner, its permissions, and whether its file system is mounted \
                 read-only."
            }
            Code::DiskFull => {
                "Committed events stay in the store. Free space; the relay goes on by itself."
            }
            Code::Corrupt => {
                "Nothing was written. Check that the URL names a database, then run the \
                 database's own integrity check before anything else."
            }
            Code::Rewound => {
                "Nothing was published past the cursor. The database was probably restored from \
                 a backup: new events would get numbers that were already passed. Restore the \
                 sequence above the cursor before the relay runs again."
            }
            Code::Busy => {
                "Nothing was lost; the relay tries again. Look for a transaction that stays open \
                 for seconds in the application."
            }
            Code::StoreVanished => {
                "The file the relay had open is no longer at its path. Put it back and start the \
                 relay again; writing to a deleted file would be lost."
            }
            Code::PayloadMismatch => {
                "The handler was not called. Two different events carry one id: find the producer \
                 that reuses ids."
            }
            Code::DefinitionOutdated => {
                "Its events wait. Start this relay with the current definition, or apply the new \
                 definition to the store."
            }
            Code::NoRoute => {
                "The event is kept as a dead letter. Add a route that matches it, or one that \
                 drops it."
            }
            Code::LeaseHeld => {
                "Events are delivered by the relay that holds the lease. Stop it first, or let it \
                 run."
            }
            Code::Unauthorized => {
                "Its events wait and no attempt is counted. Correct the credentials."
            }
            Code::Unroutable => {
                "Its events wait and no attempt is counted. Create the topic, or correct the \
                 route's template."
            }
            Code::Config => "Nothing was started. Correct the value that the message names.",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PR-{}", *self as u16)
    }
}
