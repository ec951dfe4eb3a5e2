//! A snapshot cursor as the bytes of a [`Cursor`], and back.
//!
//! One cursor has one encoding, so cursors are equal when their bytes are: engines and stores compare
//! them so. Bytes that are no encoding are an error, whatever they are, and what they claim to hold is
//! never allocated before it is there.
//!
//! ```text
//! version  flags  xmax  floor  n  n × (xid, floor)
//!                 [target: xmin  xmax−xmin  n  n × xid  floor−base's floor]
//! ```
//! Numbers are LEB128. Ascending numbers are the distance to the one before; floors of pending
//! transactions are as they are.

use std::sync::Arc;

use super::cursor::Target;
use super::{Pending, Snapshot, SnapshotCursor};
use crate::{Cursor, Error, ErrorKind, Result};

const VERSION: u8 = 1;
const WITH_TARGET: u8 = 1;

/// So many running transactions fit in a cursor: more than servers have connections.
pub const RUNNING_MAX: usize = 16_384;

/// No encoding is longer: two lists of running transactions with up to 20 and 10 bytes for each.
pub const ENCODED_BYTES_MAX: usize = 128 + RUNNING_MAX * 30;

impl SnapshotCursor {
    /// The cursor as engines carry it: its base is the bytes, its position the position.
    ///
    /// # Errors
    /// `TooLarge` if more than [`RUNNING_MAX`] transactions were running.
    pub fn encode(&self) -> Result<Cursor> {
        let running = self.target.as_ref().map_or(0, |target| target.snapshot.xip().len());
        if self.pending.len().max(running) > RUNNING_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "write cursor")
                .message("more transactions are running than a cursor can name; nothing was passed")
                .context("most", RUNNING_MAX));
        }
        let mut bytes = Vec::with_capacity(64 + self.pending.len() * 6 + running * 3);
        let flags = if self.target.is_some() { WITH_TARGET } else { 0 };
        bytes.extend([VERSION, flags]);
        put(&mut bytes, self.xmax);
        put(&mut bytes, self.floor);
        put(&mut bytes, self.pending.len() as u64);
        let mut last = 0;
        for pending in &self.pending {
            put(&mut bytes, pending.xid - last);
            put(&mut bytes, pending.floor);
            last = pending.xid;
        }
        if let Some(Target { snapshot, floor }) = &self.target {
            put(&mut bytes, snapshot.xmin());
            put(&mut bytes, snapshot.xmax() - snapshot.xmin());
            put(&mut bytes, snapshot.xip().len() as u64);
            let mut last = 0;
            for xid in snapshot.xip() {
                put(&mut bytes, xid - last);
                last = *xid;
            }
            put(&mut bytes, floor - self.floor);
        }
        Ok(Cursor::new(Arc::from(bytes), self.position))
    }

    /// The cursor that was encoded.
    ///
    /// # Errors
    /// `Corrupt` if the bytes are no cursor; `SchemaTooNew` if a newer program wrote them.
    pub fn decode(cursor: &Cursor) -> Result<SnapshotCursor> {
        let bytes: &[u8] = cursor.base();
        if bytes.len() > ENCODED_BYTES_MAX {
            return Err(corrupt());
        }
        match bytes.first() {
            Some(&VERSION) => {}
            Some(version) if *version > VERSION => return Err(too_new(*version)),
            _ => return Err(corrupt()),
        }
        let mut rest = &bytes[1..];
        let decoded = read(&mut rest, cursor.position()).filter(|_| rest.is_empty());
        decoded.ok_or_else(corrupt)
    }
}

fn read(rest: &mut &[u8], position: u64) -> Option<SnapshotCursor> {
    let flags = byte(rest)?;
    if flags & !WITH_TARGET != 0 {
        return None;
    }
    let xmax = take(rest)?;
    let floor = take(rest)?;
    let running = count(rest)?;
    let mut pending = Vec::with_capacity(running);
    let mut last = None;
    for _ in 0..running {
        let xid = next(rest, &mut last)?;
        pending.push(Pending { xid, floor: take(rest)? });
    }
    // Only a rebased cursor looks for transactions beyond its own numbers.
    if xmax > 0 && last.is_some_and(|last| last >= xmax) {
        return None;
    }
    let target = match flags & WITH_TARGET {
        0 => None,
        _ => Some(read_target(rest, floor)?),
    };
    if target.is_none() && position != 0 {
        return None;
    }
    let cursor = SnapshotCursor { xmax, floor, pending, target: None, position };
    match target {
        None => Some(cursor),
        Some(Target { snapshot, floor }) => {
            let toward = cursor.toward(snapshot, Some(floor)).ok()?;
            Some(toward.at_position(position))
        }
    }
}

fn read_target(rest: &mut &[u8], base_floor: u64) -> Option<Target> {
    let xmin = take(rest)?;
    let xmax = xmin.checked_add(take(rest)?)?;
    let running = count(rest)?;
    let mut xip = Vec::with_capacity(running);
    let mut last = None;
    for _ in 0..running {
        xip.push(next(rest, &mut last)?);
    }
    let snapshot = Snapshot::new(xmin, xmax, xip).ok()?;
    let floor = base_floor.checked_add(take(rest)?)?;
    Some(Target { snapshot, floor })
}

/// A length, which cannot be more than the bytes that are left.
fn count(rest: &mut &[u8]) -> Option<usize> {
    let count = usize::try_from(take(rest)?).ok()?;
    (count <= RUNNING_MAX && count <= rest.len()).then_some(count)
}

/// The next of an ascending list: the first as it is, the others as a distance that is not 0.
fn next(rest: &mut &[u8], last: &mut Option<u64>) -> Option<u64> {
    let distance = take(rest)?;
    let number = match *last {
        None => distance,
        Some(_) if distance == 0 => return None,
        Some(last) => last.checked_add(distance)?,
    };
    *last = Some(number);
    Some(number)
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A number in its shortest form: a longer one would give a cursor two encodings.
fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let next = byte(rest)?;
        let part = u64::from(next & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        number |= part << shift;
        if next & 0x80 == 0 {
            return (next != 0 || shift == 0).then_some(number);
        }
    }
    None
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (first, behind) = rest.split_first()?;
    *rest = behind;
    Some(*first)
}

fn corrupt() -> Error {
    Error::new(ErrorKind::Corrupt, "read cursor")
        .message("the saved cursor is damaged; nothing was read, and nothing is lost")
}

fn too_new(version: u8) -> Error {
    Error::new(ErrorKind::SchemaTooNew, "read cursor")
        .message("the cursor was saved by a newer program; nothing was read")
        .context("version", version)
        .context("known", VERSION)
}
