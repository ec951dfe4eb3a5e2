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
}
