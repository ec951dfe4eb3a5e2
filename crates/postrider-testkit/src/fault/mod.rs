//! Scripted faults: wrap a broker or a store, say what the next calls do, and wait for signals
//! instead of sleeping.
//!
//! The case that defines an outbox is the call that *did it and lost the answer*; it stands beside
//! the plain failures here. A script that was not played to its end is visible, so that a test can
//! refuse to pass when its fault never happened.

mod broker;
mod script;
mod scripted;
mod signal;
mod source;

pub use broker::{BrokerAction, FaultyBroker};
pub use script::Script;
pub use scripted::{ScriptedBroker, SuiteScript};
pub use signal::{Gate, TestSignal, Wait};
pub use source::{FaultySource, Operation, SourceAction};
