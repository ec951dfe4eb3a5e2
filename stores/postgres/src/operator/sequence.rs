//! Raising the store's sequence above everything that was passed already.
//!
//! Invariant: it is only ever raised, and only while nobody owns a partition and no producer has a transaction open: an
//! owner knows how far it has read, and what a producer has drawn lies below what it is raised to. Events that were given numbers which a cursor had passed get new ones, also where the
//! sequence has been carried past all of them since, and every cursor
//! begins anew at its floor, or before its ranges: duplicates are possible, loss is not (INV-1). What is numbered by the
//! cursors alone is so by ranges too, each of which is a place behind its destination's.

use postrider_core::Result;
use postrider_core::operate::Note;

use super::{note, producers, rebase};
use crate::PostgresStore;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{params, signed, unsigned};

const STATE: Sql = sql!("operator/sequence_state");
const RAISE: Sql = sql!("operator/sequence_raise");
const REPAIRING: Sql = sql!("operator/repairing");
const GONE_BACK: Sql = sql!("operator/sequence_gone_back");
const NEXT: Sql = sql!("since/next");
const RENUMBER: Sql = sql!("operator/sequence_renumber");

/// What producers may draw between the look at the sequence and its raise: many times what they can.
const SLACK: u64 = 1_000;

const OPERATION: &str = "repair sequence";

/// The first number behind one that an event has: whoever goes through the outbox in stretches goes on there,
/// because between two numbers there may be a trillion that nobody was given.
pub(super) async fn next(
    session: &Session,
    operation: &'static str,
    after: u64,
) -> Result<Option<u64>> {
    let row = session.row(operation, &NEXT, params![signed(after + 1)]).await?;
    Ok(row.get::<_, Option<i64>>(0).map(unsigned))
}

/// What a repair did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceRepair {
    /// Where the sequence stood.
    pub before: u64,
    /// Where it stands.
    pub after: u64,
    /// Events that got new numbers.
    pub renumbered: u64,
    /// Cursors that began anew: all, or none.
    pub cursors: u64,
}

impl PostgresStore {
    /// Repairs the sequence as [`Operator::repair_sequence`](postrider_core::Operator::repair_sequence) does, and says
    /// all that it did.
    ///
    /// # Errors
    /// `Busy` if a relay owns a partition, or a transaction that has written to the outbox stays open.
    pub async fn repair_numbers(&self, note: &Note) -> Result<SequenceRepair> {
        repair(self, note).await
    }
}

/// Repairs the sequence. Producers wait meanwhile.
pub(super) async fn repair(store: &PostgresStore, note: &Note) -> Result<SequenceRepair> {
    let note = note::checked(note)?;
    let tx = producers::keep_out(store, OPERATION).await?;
    let state = State::read(&tx).await?;
    let renumbered = state.raise(&tx, false).await?;
    let after = state.after();
    let mut cursors = 0;
    if after > state.given || state.counter < state.counter_known || renumbered > 0 {
        cursors = rebase::all(&tx, OPERATION).await? as u64;
        let subject = match renumbered {
            0 => format!("from {} to {after}", state.given),
            many => format!("from {} to {after}; {many} events got new numbers", state.given),
        };
        note::write(&tx, &note, OPERATION, &subject).await?;
    }
    tx.commit(OPERATION).await?;
    Ok(SequenceRepair { before: state.given, after, renumbered, cursors })
}

/// Where the server's numbers are, and what the store knows of them.
pub(super) struct State {
    given: u64,
    known: u64,
    counter: u64,
    counter_known: u64,
}

impl State {
    pub(super) async fn read(tx: &Session) -> Result<State> {
        let row = tx.row(OPERATION, &STATE, params![]).await?;
        let number = |column| unsigned(row.get::<_, Option<i64>>(column).unwrap_or_default());
        let (given, known) = (number(0), number(1));
        Ok(State { given, known, counter: number(2), counter_known: number(3) })
    }

    /// What lies behind what the store knows, in words.
    pub(super) fn behind(&self) -> Option<String> {
        let said = |what: &str, given: u64, known: u64| {
            (given < known)
                .then(|| format!("{what} stands at {given}, and {known} was given already"))
        };
        said("the sequence", self.given, self.known)
            .or_else(|| said("the transaction counter", self.counter, self.counter_known))
    }

    fn after(&self) -> u64 {
        if self.known > self.given { self.known + SLACK } else { self.given }
    }

    /// Raises the sequence where it lies behind, and gives new numbers to what it gave a second time.
    /// `elsewhere`: the rows came from another server. Returns how many events got new numbers.
    pub(super) async fn raise(&self, tx: &Session, elsewhere: bool) -> Result<u64> {
        if self.known > self.given {
            tx.row(OPERATION, &RAISE, params![signed(self.after())]).await?;
        } else if elsewhere || !gone_back(tx).await? {
            return Ok(0);
        }
        tx.row(OPERATION, &REPAIRING, params![]).await?;
        tx.execute(OPERATION, &RENUMBER, params![signed(self.given), elsewhere]).await
    }
}

/// Whether some cursor would pass events unread though the sequence lies above all of them.
async fn gone_back(tx: &Session) -> Result<bool> {
    Ok(passed_unread(tx, OPERATION).await? > 0)
}

/// How many events some cursor would pass unread.
pub(super) async fn passed_unread(session: &Session, operation: &'static str) -> Result<u64> {
    Ok(unsigned(session.row(operation, &GONE_BACK, params![]).await?.get(0)))
}
