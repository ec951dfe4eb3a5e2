//! The NDJSON destinations against their contract, and against files and pipes that fail.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

mod archive;
mod files;
mod suite;
mod support;
mod writers;
