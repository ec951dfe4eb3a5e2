//! The way from a process to the server of its store, and back: where a network stands in a
//! simulation. Without one, everything arrives at once.

use std::fmt;

use postrider_core::{BoxFuture, Result};

/// What a statement does to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It only looks: a server that is read-only or has no room answers it.
    Read,
    /// It changes something.
    Write,
}

/// A connection's way to the server, asked once before and once after each statement. A statement is
/// atomic on the server; an operation may be several.
pub trait Line: Send + Sync + fmt::Debug {
    /// On the way there. An error says that the server has not seen the statement.
    fn there(&self, statement: &'static str, access: Access) -> BoxFuture<'_, Result<()>>;

    /// On the way back. An error says that the answer is lost: the server has acted.
    fn back(&self, statement: &'static str) -> BoxFuture<'_, Result<()>>;
}
