//! What a run can reach: states and transitions of lanes, leases, settlements, and claims.

macro_rules! spots {
    ($($area:literal: $($name:ident = $what:literal,)+)+) => {
        /// A state or a transition.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Spot {
            $($(#[doc = $what] $name,)+)+
        }

        impl Spot {
            /// All of them.
            pub const ALL: &'static [Spot] = &[$($(Spot::$name),+),+];

            /// Of what it is a part.
            pub const fn area(self) -> &'static str {
                match self { $($(Spot::$name => $area),+),+ }
            }

            /// What happens there.
            pub const fn what(self) -> &'static str {
                match self { $($(Spot::$name => $what),+),+ }
            }
        }
    };
}

spots! {
    "lease":
    LeaseGranted = "a partition was granted",
    LeaseLost = "a lease was not kept by a renewal",
    "lane":
    LaneOpened = "a lane was made for a key",
    "settle":
    SettleFenced = "a settlement was refused as stale",
    "claim":
    ClaimGranted = "an event was claimed for a handler",
    ClaimTakenOver = "a claim that was let go or ran out was granted to the next",
    ClaimHeldByAnother = "an event was claimed by somebody else",
    ClaimProcessed = "an event that had been done was asked for again",
    ClaimMismatch = "an event came with another payload than before",
    ClaimCompleted = "a result was recorded under its claim",
    ClaimRefusedStale = "a result was refused, because somebody else owns the claim",
    ClaimReleased = "a claim was let go",
    ClaimOverstayed = "a handler that lost its claim did not stop, and was dropped",
    HeartbeatSent = "a heartbeat was sent",
    HeartbeatProlonged = "a heartbeat prolonged its claim",
    HeartbeatFailed = "a heartbeat was not answered",
    HeartbeatRefused = "a heartbeat was refused: the claim is somebody else's",
    HeartbeatLost = "a claim ran out by its owner's clock",
    "step":
    StepBegun = "the effect of a step was asked for",
    StepDone = "the result of a step was stored",
    StepResumed = "a step had its result, and was not repeated",
    StepRefused = "a step did not begin, because its claim was lost",
    "consumer":
    HandlerStarted = "a handler was started",
    HandlerTold = "a handler was told to stop",
    HandlerKilled = "a handler that did not stop was dropped",
    HandlerOvertime = "a handler worked longer than it may",
    HandlerPanicked = "a handler panicked",
    DeliveryBehind = "a delivery came back before one of its key that is away",
    DeliveryFull = "a key had too many deliveries in a process",
    DeliveryBlocked = "a delivery waited for another one of its key",
    DeliveryLost = "the visibility of a delivery ended before a handler was free",
    DeliveryExtended = "the visibility of a delivery was prolonged",
    DeliveredTooOften = "a message came too often without a verdict",
    AwayForgotten = "a message that was given back did not come again in time",
    SettledAck = "a message was acknowledged",
    SettledNackCounted = "a message was given back, and the try counted",
    SettledNackUncounted = "a message was given back, and the try did not count",
    SettledReject = "a message went to the dead letters",
    SettlementFailed = "the broker did not take a settlement",
    SettlementStale = "a settlement was refused, because the message is another's",
    StoreBreakerOpened = "the inbox's store failed too often in a row",
    StoreBreakerProbed = "one handler was started to try the inbox's store",
    StoreBreakerClosed = "the inbox's store answered again",
    ReceiveFailed = "the broker did not answer a consumer",
    DrainBegun = "a consumer was told to drain",
    DrainEnded = "a consumer had drained",
}
