//! Leases: one relay's right to a partition, fenced by a token that grows at every acquisition.
//!
//! Who owns is decided by the database's clock; when to stop, by the owner's monotonic clock. The
//! essay with the formula and the list of failures is `docs/internals/leases.md`.

use std::time::Duration;

use crate::{PartitionId, RelayId};

/// The right to a partition, as it was granted. Every conditional write carries it, and the store
/// refuses the write when the row no longer has this owner and this token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// What is owned.
    pub partition: PartitionId,
    /// Who owns it: random per process.
    pub owner: RelayId,
    /// Grows at every acquisition, also when the same owner takes it again.
    pub token: u64,
}

/// How another process on the same machine can prove that an owner is dead, without waiting for the
/// lease to expire: the owner holds an advisory lock on a file for as long as it lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Presence {
    /// The owner's host name.
    pub host: String,
    /// The host's boot id: a lock from before a reboot proves nothing.
    pub boot: String,
    /// The file it holds locked.
    pub path: String,
}

/// What a relay asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireRequest {
    /// Who asks.
    pub owner: RelayId,
    /// How long the lease lasts without renewal, on the database's clock.
    pub lease_duration: Duration,
    /// How many partitions it wants in addition to those it has.
    pub wanted: u16,
    /// Take only what has been free for so long. A relay whose definitions are out of date waits a
    /// lease, so that one that can serve everything comes first.
    pub free_for: Duration,
    /// Where its own proof of life is.
    pub presence: Option<Presence>,
    /// Whether its definitions are those of the store.
    pub current: bool,
    /// A holder that is proved dead. If owner and token still match, all leases of that owner, who is one process, count
    /// as expired, and he is not counted among the relays any more.
    pub dead: Option<Lease>,
}

/// The answer to [`AcquireRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Acquired {
    /// The leases granted now, in partition order.
    pub granted: Vec<Granted>,
    /// The partitions that others hold, and those that the asker had before: it may not have heard of
    /// them, because an answer was lost.
    pub held: Vec<HeldLease>,
    /// Who is there.
    pub census: Census,
}

/// A lease that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The lease.
    pub lease: Lease,
    /// How many times in a row this partition was taken over from an owner that did not let go,
    /// with its cursors standing still. From 2 on the new owner suspects that an event kills the
    /// process, and sends one event at a time. A store on a server that was itself down in between
    /// does not count that.
    pub takeovers: u32,
}

/// A lease that somebody else holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLease {
    /// The lease.
    pub lease: Lease,
    /// How long until it expires, on the database's clock.
    pub expires_in: Duration,
    /// Where the holder's proof of life is.
    pub presence: Option<Presence>,
}

/// Which relays are alive, by the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Census {
    /// Relays that renewed within their lease, the asker included.
    pub relays: u32,
    /// Those of them whose definitions are the store's.
    pub current: u32,
}

/// Which leases to prolong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewRequest {
    /// Who asks.
    pub owner: RelayId,
    /// The leases it believes to have.
    pub leases: Vec<Lease>,
    /// For how long, from now on the database's clock.
    pub lease_duration: Duration,
    /// Whether its definitions are those of the store.
    pub current: bool,
}

/// The answer to a renewal.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Renewed {
    /// The leases that still stand; the others are lost.
    pub kept: Vec<Lease>,
    /// Who is there.
    pub census: Census,
    /// The version of the destinations' definitions; a change means: load them again.
    pub definitions: u64,
    /// Saves of a cursor are dear now, and the store wants so much time between two of them: each finds its row behind
    /// versions of it that nothing may clean away, and adds one. Zero where it does not mind. The engine has a bound of its
    /// own, and what has to be written is written.
    pub saves_apart: Duration,
}
