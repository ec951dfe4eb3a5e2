//! From a batch of events to documents, before any lock is taken. An event that cannot be encoded is
//! refused alone, and those of its key behind it are skipped: that is what prefix order means here.

use std::collections::HashSet;
use std::sync::Arc;

use postrider_core::{ErrorKind, Fault, KeyHash, Outcome, Outgoing, cloudevents};

/// The longest name of a topic, in bytes.
const TOPIC_BYTES_MAX: usize = 255;

/// One message, ready to be stored.
pub(crate) struct Entry {
    /// Its place in the batch.
    pub(crate) index: usize,
    pub(crate) topic: Arc<str>,
    pub(crate) key: String,
    pub(crate) key_hash: KeyHash,
    pub(crate) event_id: String,
    pub(crate) source: Arc<str>,
    pub(crate) late: bool,
    pub(crate) document: Vec<u8>,
}

/// A batch, ready to be stored.
pub(crate) struct Encoded {
    pub(crate) entries: Vec<Entry>,
    /// One for each event of the batch; `Acked` for those that are entries.
    pub(crate) outcomes: Vec<Outcome>,
}

pub(crate) fn encode(batch: &[Outgoing], document_bytes_max: usize) -> Encoded {
    let mut stopped: HashSet<KeyHash> = HashSet::new();
    let mut entries = Vec::with_capacity(batch.len());
    let outcomes = batch
        .iter()
        .enumerate()
        .map(|(index, outgoing)| {
            let key_hash = outgoing.event.key_hash();
            if stopped.contains(&key_hash) {
                return Outcome::Skipped;
            }
            match encode_one(index, key_hash, outgoing, document_bytes_max) {
                Ok(entry) => {
                    entries.push(entry);
                    Outcome::Acked
                }
                Err(refused) => {
                    stopped.insert(key_hash);
                    refused
                }
            }
        })
        .collect();
    Encoded { entries, outcomes }
}

fn encode_one(
    index: usize,
    key_hash: KeyHash,
    outgoing: &Outgoing,
    document_bytes_max: usize,
) -> Result<Entry, Outcome> {
    let event = &outgoing.event;
    if outgoing.topic.is_empty() || outgoing.topic.len() > TOPIC_BYTES_MAX {
        let detail = format!(
            "a topic's name has 1 to {TOPIC_BYTES_MAX} bytes, this one has {}",
            outgoing.topic.len()
        );
        return Err(Outcome::Unroutable(Fault::new(ErrorKind::Unroutable, detail)));
    }
    let document = cloudevents::to_json(event, outgoing.marks)
        .map_err(|e| Outcome::Rejected(Fault::new(e.kind(), format!("{e:?}"))))?;
    if document.len() > document_bytes_max {
        let detail =
            format!("the document has {} bytes, at most {document_bytes_max}", document.len());
        return Err(Outcome::Rejected(Fault::new(ErrorKind::TooLarge, detail)));
    }
    Ok(Entry {
        index,
        topic: Arc::clone(&outgoing.topic),
        key: event.key(),
        key_hash,
        event_id: event.id.to_string(),
        source: Arc::clone(&event.source),
        late: outgoing.marks.late,
        document,
    })
}
