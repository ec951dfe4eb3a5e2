//! The answer of a fetch, read row by row as it comes.
//!
//! The server is still at the later rows while the earlier ones become events here. Invariant: nothing is handed
//! out from here; what is not durable yet, or of another life of the server, is judged by [`crate::fetch`].

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::snapshot::{Drawn, Incarnation, Snapshot};
use postrider_core::{DestinationId, Error, ErrorKind, Result};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::place::{self, Places, Suspect};
use crate::room::Room;
use crate::row::{self, Decoded, Decoder};
use crate::session::Session;
use crate::tick::life;
use crate::typed::unsigned;

/// Columns before an event's: n, cut, xid.
const EVENT: usize = 3;

/// A row of a page.
pub(crate) struct Found {
    pub(crate) drawn: Drawn,
    /// `None` where its payload and headers were larger than expected, and stayed behind.
    pub(crate) decoded: Option<Decoded>,
}

/// An answer on its way.
pub(crate) struct Answer {
    first: Option<Row>,
    pages: HashMap<i32, Vec<Found>>,
    /// The partition of each page.
    partitions: Vec<i16>,
    decoder: Decoder,
    places: Places,
    /// Rows that seem to be where their keys do not belong: of which page, and which of its rows.
    strayed: Vec<(i32, usize)>,
    events: u64,
    /// The largest payload that came, and the largest that did not.
    largest: u64,
    cut: Option<u64>,
}

impl Answer {
    /// An answer with a page of each of these partitions.
    pub(crate) fn new(fixed: &Fixed, partitions: Vec<i16>) -> Answer {
        Answer {
            first: None,
            pages: HashMap::new(),
            partitions,
            decoder: Decoder::new(&fixed.source, EVENT),
            places: Places::new(fixed.partitions),
            strayed: Vec::new(),
            events: 0,
            largest: 0,
            cut: None,
        }
    }

    /// The next row. It is let go when it is read: the answer and what becomes of it are not both there as a
    /// whole.
    pub(crate) fn take(&mut self, row: Row) {
        if self.first.is_none() {
            self.first = Some(row);
            return;
        }
        self.events += 1;
        let decoded = match is_cut(&row) {
            true => {
                let size = row.get::<_, i32>(EVENT + row::EVENT_VERSION).unsigned_abs();
                self.cut = self.cut.max(Some(size.into()));
                None
            }
            false => {
                self.largest = self.largest.max(row::variable_len(&row, EVENT));
                Some(self.decoder.decode(&row))
            }
        };
        let drawn = Drawn { xid: unsigned(row.get(2)), seq: unsigned(row.get(EVENT)) };
        let number = row.get(0);
        let page = self.pages.entry(number).or_default();
        if let Some(Decoded { event: Ok(event), .. }) = &decoded
            && self.partitions.get(place_of(number)) != Some(&self.places.of(event))
        {
            self.strayed.push((number, page.len()));
        }
        page.push(Found { drawn, decoded });
    }

    /// Makes a dead letter of each row that is not where its key belongs, by the database's word.
    pub(crate) async fn refuse_strayed(&mut self, session: &Session) -> Result<()> {
        let strayed = std::mem::take(&mut self.strayed);
        let suspects: Vec<Suspect> =
            strayed.into_iter().filter_map(|at| self.suspect(at)).collect();
        if suspects.is_empty() {
            return Ok(());
        }
        let judged = place::judge(session, &suspects).await?;
        for (suspect, belongs) in suspects.iter().zip(judged) {
            let (number, nth) = suspect.at;
            let found = self.pages.get_mut(&number).and_then(|page| page.get_mut(nth));
            if let Some(Found { decoded: Some(decoded), .. }) = found
                && let Ok(event) = &decoded.event
                && let Some(belongs) = belongs
            {
                decoded.event = Err(place::refused(Arc::clone(event), suspect.partition, belongs));
            }
        }
        Ok(())
    }

    fn suspect(&self, at: (i32, usize)) -> Option<Suspect> {
        let found = self.pages.get(&at.0)?.get(at.1)?;
        let event = found.decoded.as_ref()?.event.as_ref().ok()?;
        let partition = self.partitions.get(place_of(at.0)).copied()?;
        Some(Suspect { at, key: event.key(), partition, seq: found.drawn.seq.cast_signed() })
    }

    /// What the server said of itself.
    pub(crate) fn server(&self) -> Result<Server> {
        let first = self.first.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Internal, "fetch").message("a fetch had no first row")
        })?;
        Server::read(first)
    }

    /// How many events came.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Remembers how large rows are, for the next statement.
    pub(crate) fn note_sizes(&self, room: &mut Room) {
        match self.cut {
            Some(largest) => room.too_small_for(largest),
            None => room.note(self.events, self.largest),
        }
    }

    /// The rows of a page by its number, which begins with 1, in their order.
    pub(crate) fn page(&mut self, number: i32) -> Vec<Found> {
        self.pages.remove(&number).unwrap_or_default()
    }
}

/// Pages are numbered from 1.
fn place_of(number: i32) -> usize {
    usize::try_from(number - 1).unwrap_or(usize::MAX)
}

/// What was fixed when the tables were made.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    /// The default of `outbox.source`.
    pub(crate) source: Arc<str>,
    pub(crate) partitions: u16,
}

fn is_cut(row: &Row) -> bool {
    row.try_get::<_, Option<bool>>(1).ok().flatten().unwrap_or_default()
}

/// What the server said of itself beside the rows.
pub(crate) struct Server {
    /// What the sequence has given: the floor of a tick.
    pub(crate) given: u64,
    /// Where it stands: what a cursor must not be ahead of.
    pub(crate) stands: u64,
    pub(crate) life: Option<Incarnation>,
    pub(crate) now: Snapshot,
    /// The end of the log when the snapshot was taken, as text.
    pub(crate) written: String,
    /// Everything that the snapshot sees is on the disk.
    pub(crate) is_flushed: bool,
    /// Destinations that were asked for and are not there, by that snapshot.
    gone: String,
    /// Whether policies of row security applied to this user.
    pub(crate) has_policies: bool,
}

impl Server {
    /// The first of these destinations that is not there.
    pub(crate) fn gone_of<'a>(&self, asked: &'a [DestinationId]) -> Option<&'a DestinationId> {
        asked.iter().find(|id| self.gone.split(',').any(|gone| gone == id.as_str()))
    }

    fn read(row: &Row) -> Result<Server> {
        let (given, by_row): (i64, i64) = (row.get(2), row.get(EVENT));
        let text = |column: usize| row.get::<_, Option<&str>>(EVENT + column).unwrap_or_default();
        Ok(Server {
            given: unsigned(given),
            // One that was set and has given nothing since stands where its row says.
            stands: unsigned(if given == 0 { by_row } else { given }),
            life: row.get::<_, Option<Uuid>>(EVENT + 1).map(life),
            now: text(2).parse()?,
            written: text(3).to_owned(),
            is_flushed: position(text(3)) <= position(text(4)),
            gone: text(5).to_owned(),
            has_policies: !text(6).is_empty(),
        })
    }
}

/// A position in the server's log: two numbers in hexadecimal, the higher first.
pub(crate) fn position(text: &str) -> u64 {
    let (high, low) = text.split_once('/').unwrap_or_default();
    let number = |text| u64::from_str_radix(text, 16).unwrap_or_default();
    (number(high) << 32) | number(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_the_log_are_compared_as_numbers() {
        assert!(position("0/FFFFFFFF") < position("1/0"));
        assert!(position("A/1C") > position("9/FFFFFFFF"));
        assert_eq!(position("16/B374D848"), (0x16 << 32) | 0xB374_D848);
    }
}
