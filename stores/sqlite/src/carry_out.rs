//! Carrying out what operators asked for, as the owner of the partitions.
//!
//! Invariants: a row is changed and marked in one fenced transaction, so that it is never done twice; of
//! the events that hold a key only the first becomes due; and nothing that may be under way is touched:
//! only dead letters, events of disabled endpoints, and what the cursor has passed.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::source::{CarriedOut, CarryOutRequest};
use postrider_core::waiting::{Reason, WaitingState};
use postrider_core::{DestinationId, KeyHash, Lease, PartitionId, Payload, Result};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::During;
use crate::row::{Decoder, EVENT_COLUMNS};
use crate::settle::BUCKET;
use crate::store::{now, signed, unsigned};
use crate::waiting::Place;
use crate::{endpoint, lease, page, range, schema, settle, sql, waiting};

/// The answer if nothing is asked of the owner of these partitions.
pub(crate) fn idle(
    connection: &Connection,
    request: &CarryOutRequest,
) -> Result<Option<CarriedOut>> {
    let mut statement = connection.prepare_cached(sql::REQUEST_ANY).during("carry out")?;
    for lease in &request.leases {
        if statement.exists([lease.partition.0]).during("carry out")? {
            return Ok(None);
        }
    }
    let definitions = schema::read_number(connection, "definitions_version")?;
    Ok(Some(CarriedOut { definitions, ..CarriedOut::default() }))
}

/// Carries out what is open, oldest request first, up to the limit.
pub(crate) fn carry_out(connection: &Connection, request: &CarryOutRequest) -> Result<CarriedOut> {
    let mut carrying = Carrying {
        connection,
        decoder: Decoder::new(&page::default_source(connection)?),
        now: now(connection)?,
        room: request.rows_max.max(1) as usize,
        touched: BTreeSet::new(),
        answer: CarriedOut::default(),
    };
    for lease in &request.leases {
        carrying.partition(lease)?;
    }
    let mut answer = carrying.answer;
    answer.touched = carrying.touched.into_iter().collect();
    answer.definitions = schema::read_number(connection, "definitions_version")?;
    Ok(answer)
}

/// One row of a request.
struct Asked {
    request: i64,
    destination: DestinationId,
    seq: u64,
    verb: String,
    topic: Option<String>,
    target: Option<i64>,
    /// A part of the request was done by an earlier call.
    begun: bool,
}

/// What became of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Skipped,
    /// It is more than one call may do at once.
    Begun,
}

impl Outcome {
    fn of(done: bool) -> Outcome {
        if done { Outcome::Done } else { Outcome::Skipped }
    }
}

/// A waiting event that a request is about.
struct Candidate {
    state: WaitingState,
    key_hash: KeyHash,
    holds_key: bool,
    readable: bool,
}

/// One call: what it may still do, and its answer so far.
struct Carrying<'a> {
    connection: &'a Connection,
    decoder: Decoder,
    now: i64,
    /// Rows, of requests and of `waiting`, that may still be changed.
    room: usize,
    touched: BTreeSet<(PartitionId, DestinationId)>,
    answer: CarriedOut,
}

impl Carrying<'_> {
    /// Does what is asked of the owner of one partition. A lease that is lost is left out.
    fn partition(&mut self, lease: &Lease) -> Result<()> {
        if !lease::stands(self.connection, lease).during("carry out")? {
            return Ok(());
        }
        let mut tallies: BTreeMap<i64, (u32, u32)> = BTreeMap::new();
        for asked in self.open(lease)? {
            if self.room == 0 {
                self.answer.more = true;
                break;
            }
            let outcome = self.carry(lease, &asked)?;
            let tally = tallies.entry(asked.request).or_default();
            match outcome {
                Outcome::Done => tally.0 += 1,
                Outcome::Skipped => tally.1 += 1,
                Outcome::Begun => {
                    self.answer.more = true;
                    break;
                }
            }
            self.mark(lease, &asked, outcome).during("carry out")?;
            self.answer.rows += 1;
            self.room = self.room.saturating_sub(1);
            if self.answer.surrendered.contains(lease) {
                break;
            }
        }
        self.tally(lease, &tallies).during("carry out")
    }

    /// The rows that are open, and one more, to see whether more are.
    fn open(&self, lease: &Lease) -> Result<Vec<Asked>> {
        let limit = i64::try_from(self.room).unwrap_or(i64::MAX).saturating_add(1);
        let mut statement =
            self.connection.prepare_cached(sql::REQUEST_OPEN).during("carry out")?;
        let mut rows = statement.query(params![lease.partition.0, limit]).during("carry out")?;
        let mut open = Vec::new();
        while let Some(row) = rows.next().during("carry out")? {
            let id: String = row.get(1).during("carry out")?;
            open.push(read_asked(row, DestinationId::new(id)?).during("carry out")?);
        }
        Ok(open)
    }

    fn carry(&mut self, lease: &Lease, asked: &Asked) -> Result<Outcome> {
        let known = settle::position(self.connection, &asked.destination, lease.partition);
        let Some((position, _)) = known.during("carry out")? else {
            return Ok(Outcome::Skipped);
        };
        let place =
            Place { destination: &asked.destination, partition: lease.partition, now: self.now };
        let outcome = match &*asked.verb {
            "redrive" => self.redrive(place, asked.seq).during("carry out")?,
            "discard" => self.discard(place, asked.seq).during("carry out")?,
            "requeue" if asked.seq <= position => {
                self.requeue(place, asked.seq).during("carry out")?
            }
            "enable" => self.enable(place, asked)?,
            "rewind" => return self.rewind(lease, place, asked.target, position),
            _ => Outcome::Skipped,
        };
        if outcome != Outcome::Skipped {
            self.touched.insert((lease.partition, asked.destination.clone()));
        }
        Ok(outcome)
    }

    fn mark(&self, lease: &Lease, asked: &Asked, outcome: Outcome) -> rusqlite::Result<()> {
        let outcome = if outcome == Outcome::Done { "done" } else { "skipped" };
        self.connection.prepare_cached(sql::REQUEST_MARK)?.execute(params![
            asked.request,
            lease.partition.0,
            asked.destination.as_str(),
            signed(asked.seq),
            outcome
        ])?;
        Ok(())
    }

    /// Counts what was done of each request, and ends those of which nothing is left.
    fn tally(&self, lease: &Lease, tallies: &BTreeMap<i64, (u32, u32)>) -> rusqlite::Result<()> {
        for (request, (done, skipped)) in tallies {
            self.connection.prepare_cached(sql::REQUEST_TALLY)?.execute(params![
                request,
                done,
                skipped,
                lease.owner.as_str(),
                self.now
            ])?;
        }
        Ok(())
    }

    fn candidate(&mut self, place: Place<'_>, seq: u64) -> rusqlite::Result<Option<Candidate>> {
        let decoder = &mut self.decoder;
        self.connection
            .prepare_cached(sql::WAITING_ONE)?
            .query_row(params![place.destination.as_str(), signed(seq)], |row| {
                let state: String = row.get(EVENT_COLUMNS)?;
                Ok(Candidate {
                    state: state.parse().unwrap_or(WaitingState::Discarded),
                    key_hash: KeyHash(row.get::<_, i64>(EVENT_COLUMNS + 3)?.cast_unsigned()),
                    holds_key: row.get(EVENT_COLUMNS + 5)?,
                    readable: decoder.decode(row).event.is_ok(),
                })
            })
            .optional()
    }

    /// Sends a dead letter again. What cannot be read as an event stays dead.
    fn redrive(&mut self, place: Place<'_>, seq: u64) -> rusqlite::Result<Outcome> {
        let found = self.candidate(place, seq)?;
        let Some(row) = found.filter(|row| row.state == WaitingState::Dead && row.readable) else {
            return Ok(Outcome::Skipped);
        };
        self.bring_out(place, (seq, row.holds_key), WaitingState::Dead, Reason::Redriven)?;
        Ok(Outcome::Done)
    }

    /// Makes an event due, or parks it behind the first of its key. What was due behind it is parked.
    fn bring_out(
        &self,
        place: Place<'_>,
        (seq, holds_key): (u64, bool),
        from: WaitingState,
        reason: Reason,
    ) -> rusqlite::Result<()> {
        let changed = self.connection.prepare_cached(sql::REQUEST_BRING_OUT)?.execute(params![
            place.destination.as_str(),
            place.partition.0,
            signed(seq),
            place.now,
            from.as_str(),
            reason.as_str()
        ])?;
        if changed > 0 && holds_key {
            waiting::demote(self.connection, place, seq)?;
        }
        Ok(())
    }

    /// Lets an event go for good; the next of its key comes out.
    fn discard(&mut self, place: Place<'_>, seq: u64) -> rusqlite::Result<Outcome> {
        let lost =
            |row: &Candidate| matches!(row.state, WaitingState::Dead | WaitingState::Disabled);
        let Some(row) = self.candidate(place, seq)?.filter(lost) else {
            return Ok(Outcome::Skipped);
        };
        let key = waiting::key_of(self.connection, place, seq)?;
        self.connection.prepare_cached(sql::REQUEST_DISCARD)?.execute(params![
            place.destination.as_str(),
            signed(seq),
            place.now
        ])?;
        if let Some(key) = key.filter(|_| row.holds_key) {
            waiting::promote(self.connection, place, &key)?;
            let freed = (place.partition, place.destination.clone(), row.key_hash);
            self.answer.freed.push(freed);
        }
        Ok(Outcome::Done)
    }

    /// Sends an event again that the cursor has passed, late. One that waits is left alone, and so is
    /// one that is erased, gone, or cannot be read.
    fn requeue(&mut self, place: Place<'_>, seq: u64) -> rusqlite::Result<Outcome> {
        let seq = signed(seq);
        let decoder = &mut self.decoder;
        let found = self
            .connection
            .prepare_cached(sql::OUTBOX_FETCH)?
            .query_row((seq - 1, seq), |row| Ok(decoder.decode(row)))
            .optional()?;
        let deliverable = found.and_then(|found| Some((found.key_hash, found.event.ok()?)));
        let Some((key_hash, _)) =
            deliverable.filter(|(_, event)| !matches!(event.payload, Payload::Erased))
        else {
            return Ok(Outcome::Skipped);
        };
        // Nor is one that a range stands for: it comes by itself, and would be counted twice.
        if range::covers(self.connection, place, key_hash, seq)? {
            return Ok(Outcome::Skipped);
        }
        let entered = self.connection.prepare_cached(sql::REQUEST_REQUEUE)?.execute(params![
            place.destination.as_str(),
            place.partition.0,
            seq,
            key_hash.0.cast_signed(),
            place.now
        ])?;
        Ok(Outcome::of(entered > 0))
    }

    /// Takes an endpoint into service again, and lets its events out in their order, so many at once.
    /// If it was disabled anew meanwhile, what is left stays.
    fn enable(&mut self, place: Place<'_>, asked: &Asked) -> Result<Outcome> {
        let Some(topic) = &asked.topic else { return Ok(Outcome::Skipped) };
        if !asked.begun {
            endpoint::enable(self.connection, place.destination, topic)?;
        } else if endpoint::is_disabled(self.connection, place.destination, topic)
            .during("carry out")?
        {
            return Ok(Outcome::Done);
        }
        let mut waiting = self.of_endpoint(place, topic).during("carry out")?;
        let outcome = if waiting.len() > self.room { Outcome::Begun } else { Outcome::Done };
        waiting.truncate(self.room);
        for row in &waiting {
            self.bring_out(place, *row, WaitingState::Disabled, Reason::Behind)
                .during("carry out")?;
        }
        self.room = self.room.saturating_sub(waiting.len());
        let name = (place.destination.clone(), Box::from(topic.as_str()));
        if !self.answer.enabled.contains(&name) {
            self.answer.enabled.push(name);
        }
        Ok(outcome)
    }

    /// The events that wait for an endpoint, and one more than there is room for.
    fn of_endpoint(&self, place: Place<'_>, topic: &str) -> rusqlite::Result<Vec<(u64, bool)>> {
        let limit = i64::try_from(self.room).unwrap_or(i64::MAX).saturating_add(1);
        let mut statement = self.connection.prepare_cached(sql::REQUEST_DISABLED)?;
        let of = params![place.destination.as_str(), topic, place.partition.0, limit];
        statement.query_map(of, |row| Ok((unsigned(row.get(0)?), row.get(1)?)))?.collect()
    }

    /// Sets a cursor back, and lets the lease go in the same write, so that its owner loads everything
    /// anew. The place is the beginning of a bucket of the settled log, because the log above it is
    /// written again. It lies before all that the destination's ranges stand for, and they end.
    fn rewind(
        &mut self,
        lease: &Lease,
        place: Place<'_>,
        target: Option<i64>,
        position: u64,
    ) -> Result<Outcome> {
        let history_start = schema::read_number(self.connection, "history_start")?;
        let target = target.map_or(0, unsigned);
        // As it was asked for: that ranges are gone back before as well is no reason to carry out what is not.
        if target < history_start || target > position {
            return Ok(Outcome::Skipped);
        }
        let ranged = range::first(self.connection, place).during("carry out")?;
        let target = ranged.map_or(target, |first| first.min(target));
        let boundary = (target / BUCKET * BUCKET).max(history_start).saturating_sub(1);
        let (destination, partition) = (place.destination.as_str(), place.partition.0);
        let rewind = || -> rusqlite::Result<()> {
            self.connection.prepare_cached(sql::REQUEST_REWIND)?.execute(params![
                destination,
                partition,
                signed(boundary),
                self.now
            ])?;
            let bucket = signed((boundary + 1) / BUCKET);
            self.connection.prepare_cached(sql::REQUEST_FORGET_SETTLED)?.execute(params![
                destination,
                partition,
                bucket
            ])?;
            range::end(self.connection, place)
        };
        rewind().during("carry out")?;
        lease::release(self.connection, std::slice::from_ref(lease))?;
        self.answer.surrendered.push(lease.clone());
        Ok(Outcome::Done)
    }
}

fn read_asked(row: &Row<'_>, destination: DestinationId) -> rusqlite::Result<Asked> {
    Ok(Asked {
        request: row.get(0)?,
        destination,
        seq: unsigned(row.get(2)?),
        verb: row.get(3)?,
        topic: row.get(4)?,
        target: row.get(5)?,
        begun: row.get(6)?,
    })
}
