//! What goes into the machine and what comes out: the whole border between decisions and I/O.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Acquired, Lease, Renewed};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, Definitions, DueRequest, FetchRequest, Loaded, Page,
    RenewRequest, RetireRequest, Retired,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{Cursor, DestinationId, Hindrance, Outcome, Outgoing, RelayId, Result, Tick};

/// Matches an answer to its command. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Something for the shell to do. Each has exactly one [`Answer`], in any order.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Read the destinations.
    Define,
    /// Ask for partitions.
    Acquire(AcquireRequest),
    /// Prolong leases.
    Renew(RenewRequest),
    /// Let leases go.
    Release(Vec<Lease>),
    /// Tell the store what keeps this relay from delivering.
    Report(RelayId, Vec<Hindrance>),
    /// Read where a destination stands in a partition.
    Load(Lease, DestinationId),
    /// Read the present end of a partition.
    Head(Lease),
    /// Read a page.
    Fetch(FetchRequest),
    /// Send a batch to a destination; after the deadline the outcome counts as unknown.
    Publish {
        /// Where to.
        destination: DestinationId,
        /// What, all to one endpoint.
        batch: Vec<Outgoing>,
        /// When it must have started, or not at all: later it could end after the lease.
        start_by: Tick,
        /// How long it may take; after that the outcome counts as unknown.
        deadline: Duration,
        /// When the call is dropped at the latest, if it goes on after its deadline: a margin before
        /// the lease can end.
        drop_by: Tick,
    },
    /// Write outcomes.
    Settle(Arc<Settlement>),
    /// Ask for waiting events whose turn has come.
    Due(DueRequest),
    /// Let scheduled events that are due enter the outbox.
    Admit(Lease, u32),
    /// Carry out what operators asked for.
    CarryOut(CarryOutRequest),
    /// Delete what is old: with an archive, what that has taken before. `only` is the shell's to fill
    /// in.
    Retire(RetireRequest),
    /// Count the events of a destination that wait.
    Count(DestinationId),
}

/// The answer to a command.
#[derive(Debug)]
pub enum Answer {
    /// To [`Command::Define`].
    Defined(Result<Definitions>),
    /// To [`Command::Acquire`].
    Acquired(Result<Acquired>),
    /// To [`Command::Renew`].
    Renewed(Result<Renewed>),
    /// To [`Command::Release`].
    Released(Result<()>),
    /// To [`Command::Report`].
    Reported(Result<()>),
    /// To [`Command::Load`].
    Loaded(Result<Loaded>),
    /// To [`Command::Head`].
    Head(Result<Cursor>),
    /// To [`Command::Fetch`].
    Fetched(Result<Page>),
    /// To [`Command::Publish`].
    Published(Result<Vec<Outcome>>),
    /// To [`Command::Settle`].
    Settled(Result<()>),
    /// To [`Command::Due`].
    Due(Result<Due>),
    /// To [`Command::Admit`].
    Admitted(Result<Admitted>),
    /// To [`Command::CarryOut`].
    CarriedOut(Result<CarriedOut>),
    /// To [`Command::Retire`].
    Retired(Result<Retired>),
    /// To [`Command::Count`].
    Counted(Result<Counts>),
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// Time passed.
    Passed,
    /// The store says that something may have been committed.
    Woken,
    /// The application says that it is about to commit.
    Nudged,
    /// An answer came.
    Answered(Ticket, Answer),
    /// The answer to a publish whose deadline had passed.
    Late(Ticket, Vec<Outcome>),
    /// The holder of a lease is proved dead.
    ProvedDead(Lease),
    /// Stop: finish what is under way, save, let the leases go.
    Drain,
}
