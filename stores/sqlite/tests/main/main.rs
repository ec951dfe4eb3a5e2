//! The store's integration tests, one binary: contract suites, the SQL contract, faults of the
//! file, and the parts of the requirements that this store answers for.

mod contract;
mod endpoints;
mod enqueue;
mod faults;
mod inbox;
mod migrate;
mod model;
mod operator;
mod page;
mod plans;
mod play;
mod preflight;
mod ranges;
mod relay;
mod requests;
mod retire;
mod rewind;
mod schema;
#[cfg(feature = "sqlx")]
mod sqlx;
mod support;
mod wake;
mod watermark;
