//! Postrider's test kit: contract suites that every backend passes, a memory store and broker to
//! test against, and scripted faults.
//!
//! | To | use |
//! |---|---|
//! | prove that a store or broker keeps its contract | [`store_suite!`], [`source_suite!`], [`broker_suite!`], [`inbox_suite!`] |
//! | judge what happened | the crate `postrider-history` |

pub mod suite;
