//! A trial: a script of what writers and readers do, side by side, and the judgement at its end.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::reader::{Reader, Rule};
use crate::server::Server;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    TakeXid(usize),
    Enqueue(usize, u8),
    Commit(usize),
    RollBack(usize),
    Tick(usize),
    Fetch(usize),
    Save(usize, usize),
    Fall(usize),
}

pub(crate) const WRITERS: usize = 5;
pub(crate) const READERS: usize = 2;

/// Writers hold their transactions open for long as often as not, for every step is one of many.
pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any::<u32>(), 1..most)
        .prop_map(|draws| draws.into_iter().map(|draw| step(draw as usize)).collect())
}

/// One step of a number: a strategy for each would take longer than the trial.
fn step(draw: usize) -> Step {
    let (kind, who, what) = (draw % 28, draw / 28 % 60, draw / 1_680);
    let (writer, reader) = (who % WRITERS, who % READERS);
    match kind {
        0..2 => Step::TakeXid(writer),
        2..11 => Step::Enqueue(writer, (what % 4) as u8),
        11..15 => Step::Commit(writer),
        15 => Step::RollBack(writer),
        16..20 => Step::Tick(reader),
        20..26 => Step::Fetch(reader),
        26 => Step::Save(reader, what % 9),
        _ => Step::Fall(reader),
    }
}

/// What went wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Lost,
    Twice,
    OutOfOrder,
}

/// Runs a script, ends all transactions, reads to the end, and judges.
pub(crate) fn run(rule: Rule, page: usize, steps: &[Step]) -> Result<(), Fault> {
    let mut server = Server::new(WRITERS);
    let mut readers: Vec<_> = (0..READERS).map(|n| Reader::new(rule, page + n)).collect();
    for step in steps {
        match *step {
            Step::TakeXid(writer) => server.take_xid(writer),
            Step::Enqueue(writer, key) => server.enqueue(writer, key),
            Step::Commit(writer) => server.commit(writer),
            Step::RollBack(writer) => server.roll_back(writer),
            Step::Tick(reader) => readers[reader].tick(&mut server),
            Step::Fetch(reader) => _ = readers[reader].fetch(&server),
            Step::Save(reader, rows) => readers[reader].save(rows),
            Step::Fall(reader) => readers[reader].fall(),
        }
    }
    (0..WRITERS).for_each(|writer| server.commit(writer));
    for reader in &mut readers {
        while reader.fetch(&server) {
            assert!(reader.read.len() <= 2 * server.rows.len() + 2, "it reads on for ever");
        }
        judge(&server, reader)?;
    }
    Ok(())
}

fn judge(server: &Server, reader: &Reader) -> Result<(), Fault> {
    let distinct: BTreeSet<_> = reader.read.iter().copied().collect();
    if distinct.len() < reader.read.len() {
        return Err(Fault::Twice);
    }
    if server.rows.values().any(|row| !distinct.contains(row)) {
        return Err(Fault::Lost);
    }
    let mut last = BTreeMap::new();
    for row in &reader.read {
        if last.insert(row.key, row.version).is_some_and(|version| version >= row.version) {
            return Err(Fault::OutOfOrder);
        }
    }
    Ok(())
}
