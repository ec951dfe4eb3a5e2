//! From a batch of events to lines. An event that cannot be encoded is refused alone, and those of
//! its key behind it are skipped: that is what prefix order means here.

use std::collections::HashSet;

use postrider_core::{ErrorKind, Fault, KeyHash, Outcome, Outgoing, cloudevents};

/// The lines of a batch and one outcome for each event; `Acked` for those that have a line.
pub(crate) fn encode(batch: &[Outgoing], line_bytes_max: usize) -> (Vec<u8>, Vec<Outcome>) {
    let mut stopped: HashSet<KeyHash> = HashSet::new();
    let mut lines = Vec::new();
    let outcomes = batch
        .iter()
        .map(|outgoing| {
            let key_hash = outgoing.event.key_hash();
            if stopped.contains(&key_hash) {
                return Outcome::Skipped;
            }
            match encode_line(outgoing, line_bytes_max) {
                Ok(line) => {
                    lines.extend_from_slice(&line);
                    Outcome::Acked
                }
                Err(fault) => {
                    stopped.insert(key_hash);
                    Outcome::Rejected(fault)
                }
            }
        })
        .collect();
    (lines, outcomes)
}

fn encode_line(outgoing: &Outgoing, line_bytes_max: usize) -> Result<Vec<u8>, Fault> {
    let mut line = cloudevents::to_json(&outgoing.event, outgoing.marks)
        .map_err(|e| Fault::new(e.kind(), format!("{e:?}")))?;
    if line.len() > line_bytes_max {
        let detail = format!("the line has {} bytes, at most {line_bytes_max}", line.len());
        return Err(Fault::new(ErrorKind::TooLarge, detail));
    }
    // A JSON payload is kept as it was written, line breaks included. In valid JSON they stand only
    // between tokens, where a space means the same.
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    line.push(b'\n');
    Ok(line)
}
