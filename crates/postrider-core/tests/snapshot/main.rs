//! The arithmetic of the snapshot cursor against a small model of a server: what is right passes, and
//! every rule that somebody has believed in is seen to lose.

#![allow(clippy::unwrap_used)]

mod encoding;
mod reader;
mod rules;
mod server;
mod token;
mod trial;
