//! The snapshot cursor: how a reader finds what is new in a table to which many transactions write,
//! without a mark on any row and without waiting for any of them.
//!
//! A row carries two numbers: the number of the transaction that wrote it, and one from a sequence,
//! drawn in that order. Neither is the order of commits: a lower number may become visible after a
//! higher one was read. So a cursor is not a number but a *snapshot*, and what is new is what is
//! visible now and was not visible then. Keeps INV-1 (nothing is skipped) and its part of INV-3
//! (within one difference rows come in the order of the sequence, and differences follow each other).
//!
//! Here is only the arithmetic: pure, without I/O, for every store whose snapshots are of this form.
//!
//! | What | Where |
//! |---|---|
//! | which transactions a snapshot sees | [`Snapshot`] |
//! | how far a destination is, and what is new to it | [`SnapshotCursor`] |
//! | what lies between two cursors | [`Leg`] |
//! | how low a scan must begin | [`SequenceTicks`] |
//! | when all of this must be forgotten | [`CrashToken`] |
//!
//! # What is taken from the server
//!
//! PostgreSQL's documentation says of `pg_current_snapshot()` ("Transaction ID and Snapshot Information
//! Functions"): `xmin` is the lowest transaction number still active; all below it are finished;
//! `xmax` is one past the highest *completed* number, and all from it on had not completed; those
//! listed between them were in progress. The proofs in this module use this, and three more facts:
//!
//! 1. Snapshots of one server are nested: a later one sees all that an earlier one saw.
//! 2. Transaction numbers are given in ascending order, and so are numbers of a sequence without a
//!    cache, whoever draws them and whether or not he commits.
//! 3. A writer has its transaction number before it draws from the sequence. The outbox sees to
//!    that: the column `xid` stands before the column `seq`, and defaults are evaluated in order.

mod crash;
mod cursor;
mod encoding;
mod leg;
mod tick;
mod visible;

pub use crash::{CrashToken, Incarnation, Verdict};
pub use cursor::{Drawn, Pending, SnapshotCursor};
pub use encoding::{ENCODED_BYTES_MAX, RUNNING_MAX};
pub use leg::Leg;
pub use tick::{SequenceTick, SequenceTicks, TICK_PAUSE, given_through};
pub use visible::Snapshot;
