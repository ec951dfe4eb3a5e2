//! What may have been meant where an event's id leads nowhere.

use postrider_core::operate::{EventDetail, Filter, PageRequest};
use postrider_core::{Error, ErrorKind, EventId};

use crate::failure::{Exit, Failure};
use crate::global::Store;

/// How many of the newest events are looked at for a similar id.
const LOOKED_AT: u32 = 1_000;

/// How many are suggested.
const SHOWN: usize = 3;

/// Characters in common at the beginning that make an id similar: more than events of one
/// millisecond share by themselves.
const ALIKE: usize = 6;

/// Reads an id.
///
/// # Errors
/// What may have been meant.
pub(crate) async fn event_id(store: &Store, text: &str) -> Result<EventId, Failure> {
    match text.parse() {
        Ok(id) => Ok(id),
        Err(_) => {
            let message = format!("`{}` is no event id", text.escape_debug());
            Err(Failure::plain(message).advice(advice(store, text).await).exit_as(Exit::Usage))
        }
    }
}

/// The failure of an operation on an event: with what may have been meant, if there is no such event.
pub(crate) async fn on_event(store: &Store, id: EventId, error: Error) -> Failure {
    if error.kind() == ErrorKind::NotFound { unknown(store, id).await } else { error.into() }
}

/// The failure for an event that is not there.
pub(crate) async fn unknown(store: &Store, id: EventId) -> Failure {
    Failure::plain(format!("there is no event {id}")).advice(advice(store, &id.to_string()).await)
}

/// Where an event stands, in a few words.
pub(crate) fn stands(detail: &EventDetail) -> String {
    let words: Vec<String> = detail
        .deliveries
        .iter()
        .map(|delivery| format!("{}: {}", delivery.destination, delivery.status))
        .collect();
    match (&*words, detail.due) {
        ([], Some(due)) => format!("the schedule, due {due}"),
        ([], None) => "no destination".to_owned(),
        (words, _) => words.join(", "),
    }
}

async fn advice(store: &Store, text: &str) -> String {
    let page = PageRequest { after: None, limit: LOOKED_AT };
    // A store that cannot be read says so in the answer that matters, not in a hint.
    let newest = store.operator.events(&Filter::default(), &page).await;
    let ids: Vec<String> = newest
        .map(|listed| listed.rows.iter().map(|row| row.id.to_string()).collect())
        .unwrap_or_default();
    let similar = similar(text, &ids);
    if similar.is_empty() {
        return "Nothing was changed. It may have been retired from the outbox, or be in another \
                store. `postrider outbox ls` shows the newest events."
            .to_owned();
    }
    format!("Nothing was changed. Did you mean {}?", similar.join(", or "))
}

/// The ids that begin like the text, or differ from it in a few characters; the most alike first.
fn similar<'a>(text: &str, ids: &'a [String]) -> Vec<&'a str> {
    let text = text.to_lowercase();
    let mut found: Vec<(usize, &str)> = ids
        .iter()
        .map(|id| (alike(&text, id), &**id))
        .filter(|(alike, _)| *alike >= ALIKE.max(text.len() / 2))
        .collect();
    found.sort_by_key(|(alike, _)| std::cmp::Reverse(*alike));
    found.into_iter().map(|(_, id)| id).take(SHOWN).collect()
}

/// Characters in common at both ends.
fn alike(text: &str, id: &str) -> usize {
    let head = text.bytes().zip(id.bytes()).take_while(|(a, b)| a == b).count();
    let tail = text.bytes().rev().zip(id.bytes().rev()).take_while(|(a, b)| a == b).count();
    (head + tail).min(text.len().min(id.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_was_cut_or_mistyped_is_recognised() {
        let ids = [
            "01941f29-7c00-7000-8000-000000000001".to_owned(),
            "0194aaaa-7c00-7000-8000-123456789abc".to_owned(),
        ];
        assert_eq!(similar("0194aaaa-7c00", &ids), [&*ids[1]]);
        assert_eq!(similar("01941f29-7c00-7000-8x00-000000000001", &ids)[0], ids[0]);
        assert!(similar("ffffffff-0000-4000-8000-00000000000f", &ids).is_empty());
        assert!(similar("", &ids).is_empty());
    }
}
