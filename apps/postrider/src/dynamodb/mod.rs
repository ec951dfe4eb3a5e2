//! Tables of DynamoDB as a store, where this program has a client.
//!
//! Invariant: whoever opens a store need not know whether the program was built with one: without it,
//! there is no value of [`Tables`].

#[cfg(not(feature = "dynamodb"))]
mod absent;
#[cfg(feature = "dynamodb")]
mod tables;
#[cfg(feature = "dynamodb")]
mod tally;

#[cfg(not(feature = "dynamodb"))]
pub(crate) use self::absent::{Tables, show_tally};
#[cfg(feature = "dynamodb")]
pub(crate) use self::tables::Tables;
#[cfg(feature = "dynamodb")]
pub(crate) use self::tally::show as show_tally;
