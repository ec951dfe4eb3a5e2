//! Which cluster and database the store publishes from.

use postrider_core::Result;
use postrider_core::operate::Note;

use super::{note, producers, rebase, sequence};
use crate::sql::{Sql, sql};
use crate::typed::{params, signed, unsigned};
use crate::{PostgresStore, identity};

const REPAIRING: Sql = sql!("operator/repairing");
const BOUNDS: Sql = sql!("operator/adopt_bounds");
const XIDS: Sql = sql!("operator/adopt_xids");

/// Numbers of the outbox that one transaction goes through: far less than its deadline allows.
const STRETCH: u64 = 200_000;

/// Makes this copy of the store the one to publish from. On another server transactions are counted anew, and
/// the sequence may be: so it is raised where it lies behind, every cursor begins anew at its floor, or before its ranges, and
/// only then is the place remembered. What is interrupted is finished by doing it again.
pub(super) async fn adopt(store: &PostgresStore, note: &Note) -> Result<()> {
    let note = note::checked(note)?;
    // Not by a line of the relay's, should it be of the same handle: those are refused where nobody adopted.
    let place = identity::read(&store.sessions().connect("adopt").await?).await?;
    if !place.is_same() {
        // Producers too: they may have begun here before anybody adopts it.
        let tx = producers::keep_out(store, "adopt").await?;
        sequence::State::read(&tx).await?.raise(&tx, true).await?;
        rebase::all(&tx, "adopt").await?;
        tx.commit("adopt").await?;
        renumber_transactions(store).await?;
    }
    let tx = store.sessions().begin("adopt").await?;
    identity::remember(&tx).await?;
    let (known, found) = (&place.known, &place.found);
    let subject = format!(
        "{}: database {} of cluster {} (was: database {} of cluster {})",
        store.name(),
        found.1,
        found.0,
        known.1,
        known.0
    );
    note::write(&tx, &note, "adopt", &subject).await?;
    tx.commit("adopt").await
}

/// Gives events that are still to be passed the number of a transaction that this server knows as finished.
async fn renumber_transactions(store: &PostgresStore) -> Result<()> {
    let tx = store.sessions().begin("adopt").await?;
    let bounds = tx.row("adopt", &BOUNDS, params![]).await?;
    tx.commit("adopt").await?;
    let number = |column| bounds.get::<_, Option<i64>>(column).map(unsigned);
    let (mut next, Some(last)) = (number(0), number(1)) else { return Ok(()) };
    while let Some(from) = next.filter(|from| *from <= last) {
        let through = last.min(from.saturating_add(STRETCH - 1));
        let tx = store.sessions().begin("adopt").await?;
        tx.row("adopt", &REPAIRING, params![]).await?;
        tx.execute("adopt", &XIDS, params![signed(from), signed(through)]).await?;
        next = sequence::next(&tx, "adopt", through).await?;
        tx.commit("adopt").await?;
    }
    Ok(())
}
