//! The planted bugs, each with the mistake in a sentence. Every one has been made by somebody.

macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutant {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name),+];

            /// The name in the code.
            pub const fn name(self) -> &'static str {
                match self { $(Mutant::$name => stringify!($name)),+ }
            }

            /// The mistake in a sentence.
            pub const fn mistake(self) -> &'static str {
                match self { $(Mutant::$name => concat!($($doc),+)),+ }
            }
        }
    };
}

mutants! {
    /// What is handed to the broker is settled before the broker has acknowledged it.
    SettleBeforeAck,
    /// The cursor is saved past an event that is neither acknowledged nor waiting.
    CursorPastUnacknowledged,
    /// A write checks that the partition is leased, and not under which token.
    LeaseWithoutToken,
    /// The floor is read from the sequence with the fetch, instead of by the last tick before it.
    FloorAtFetch,
    /// A fresh sequence says 1 before 1 was given, and that is taken as given.
    FreshSequenceAsGiven,
    /// The sequence's row is read without its lock, while it says that 32 more were given than were.
    SequenceReadUnlocked,
    /// One cursor serves two destinations.
    OneCursorForTwo,
    /// The token does not grow when the same owner takes its lease again.
    TokenStandsForSameOwner,
    /// The token is read before the write and not locked until it.
    TokenReadNotLocked,
    /// The lease row is locked over a round trip of the client.
    LockOverRoundTrip,
    /// Two relays overwrite each other's token of a crash.
    CrashTokenOverwritten,
    /// The owner fetches before it knows the waiting keys.
    FetchBeforeWaitingKeys,
    /// The failures of one dead endpoint count against its events.
    EndpointCountsAgainstEvents,
    /// A server crashed unnoticed, and used a transaction number twice.
    CrashUnnoticed,
    /// An outage of everything counts against the events.
    OutageCountsAgainstEvents,
    /// The inbox claims in one write and checks in another.
    ClaimThenCheck,
    /// A later event of a key is sent while an earlier one waits for its retry.
    RetryOvertakes,
    /// A dead letter is recorded apart from the cursor that passes it.
    DeadOutsideTransaction,
    /// A worker trusts its wall clock for how long its claim stands.
    HeartbeatByWallClock,
    /// An open breaker drops what it refuses.
    BreakerDrops,
    /// What is redriven comes out in no order of its key, unmarked.
    RedriveOutOfOrder,
    /// What was in the window is forgotten when the partition moves.
    WindowForgetsOnRebalance,
    /// A message is acknowledged when its handler begins.
    AckBeforeDone,
    /// The idempotency key of a step is another one at every attempt.
    StepKeyPerAttempt,
    /// The result of a step is recorded before its effect is made.
    StepRecordedFirst,
    /// A step whose result is stored is made again.
    StepNotResumed,
    /// A handler runs for an event that was done before.
    DuplicateRunsHandler,
    /// Two deliveries of one key are in work at once in one process.
    KeyConcurrently,
    /// A failure of the inbox's store counts against the message.
    StoreFailureCountsAgainstMessage,
    /// What waits ahead of the cursor is tried before the fetch has passed it (INV-3).
    WaitingAheadTriedEarly,
    /// An old answer of what is due is believed about a key of which something entered waiting since
    /// (INV-3).
    EnteringForgotten,
    /// An acknowledgement that comes late counts for whatever stands at the head of its key by then
    /// (INV-1, INV-7).
    LateAckForNext,
    /// A lease is counted from when its answer came, rather than from when it was asked for (a
    /// publish may begin when the lease is over).
    LeaseCountedFromAnswer,
    /// A publish that was held up begins although its lease may be over.
    PublishAfterLease,
    /// An event of a batch that was not tried counts as acknowledged (INV-1, INV-7).
    SkippedCountsAsAcked,
    /// Several events of a key are in one batch, though the broker promises no order in it (INV-3).
    PrefixAssumed,
    /// A settlement whose answer was lost is not sent again (INV-1: what it let wait is forgotten).
    SettleNotResent,
    /// A partition is let go before what is under way in it has an outcome that is saved (events come
    /// twice without a crash).
    DrainLetsGoUnsaved,
    /// A publish without an answer counts as acknowledged (INV-1, INV-7).
    TimeoutCountsAsAcked,
    /// When the head of a lane goes to wait, what stands behind it is not written (INV-1).
    SpillForgetsRest,
    /// What follows a dead letter that holds its key is sent (INV-3).
    DeadKeyFlows,
    /// One acknowledgement counts for the whole batch (INV-1, INV-7).
    OneAckForBatch,
    /// A settlement whose answer was lost is sent again over what operators asked for meanwhile (a
    /// redriven event is dead again).
    SettleUndoesRequest,
    /// A tick reads the sequence in a transaction that has its number already.
    TickInsideTransaction,
    /// What follows a dead letter that does not hold its key is sent before that is recorded (INV-3).
    SkipNotRecorded,
    /// Whatever waits, what is new is read, and some of it waits as well (INV-6).
    WaitingUnbounded,
    /// What a part of an endpoint does not take counts against its events, since others are taken (INV-5).
    HinderedCounts,
    /// What the saved cursor has not passed when a range ends is not copied (INV-1).
    RangeForgetsWindow,
    /// A type that an endpoint refused is never tried again (INV-8).
    HeldForEver,
}
