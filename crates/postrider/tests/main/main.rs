//! The facade's tests: the examples do what they say, and pages that repeat the code agree with it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod alerts;
mod columns;
mod delivery;
mod examples;
mod large_result;
mod pages;
mod walkthrough;
mod written;
