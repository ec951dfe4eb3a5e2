//! Whether what is moved back can have a second effect.
//!
//! Invariant: an inbox that cannot be opened, or that forgets before dead letters do, is no guard; what a person had it
//! forget is said; and nothing is said to be harmless that was not looked at.

use std::time::Duration;

use postrider_aws::Heap;
use postrider_core::Error;
use postrider_core::operate::{InboxFilter, InboxState, Listed, PageRequest};

use super::place::Queue;
use crate::age::short;
use crate::failure::Failure;
use crate::filter::CHUNK;
use crate::store::Place;
use crate::terminal::{count, note};

/// Pages of the inbox that are asked for. One of DynamoDB ends after 10,000 rows that were looked at, whatever was found:
/// a million then, for some cents.
const PAGES_MAX: usize = 100;

/// Rows of an inbox that were found.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    number: u64,
    /// Whether all were looked at.
    whole: bool,
}

/// Opens the inbox, and says what it does not know.
///
/// # Errors
/// None is named, it does not open, or it forgets too early. Nothing was moved then.
pub(super) async fn check(queue: &Queue, heap: &Heap, unguarded: bool) -> Result<(), Failure> {
    if unguarded {
        note("no inbox is asked: a consumer without one does again what was done before");
        return Ok(());
    }
    let Some(inbox) = &queue.inbox else { return Err(unnamed(queue)) };
    let place = Place::read(inbox)?.of_inbox(&queue.postgres, queue.reference.as_ref());
    let opened = place.open_to_ask_inbox().await.map_err(|failure| failure.within("the inbox"))?;
    if let Some(age) = heap.age_max.filter(|age| *age > queue.remembers) {
        return Err(too_short(queue.remembers, age));
    }
    let remembers = short(queue.remembers);
    if queue.assumed {
        note(&format!(
            "{place} is assumed to remember for {remembers}: --config FILE with the consumers' retention.inbox says it"
        ));
    }
    let mut asked = InboxFilter::default();
    asked.handler.clone_from(&queue.handler);
    let known = find(1, async |page| opened.operator.inbox(&asked, page).await).await?;
    let whose = queue.handler.as_ref().map_or_else(String::new, |name| format!(" of {name}"));
    if known.number == 0 {
        let so_far =
            if known.whole { "has no row" } else { "has no row, as far as was looked at," };
        note(&format!(
            "warning: {place} {so_far}{whose}: it keeps nothing from being done again. Is it the consumers' inbox?"
        ));
        return Ok(());
    }
    asked.state = Some(InboxState::Forgotten);
    let forgotten = find(u64::MAX, async |page| opened.operator.inbox(&asked, page).await).await?;
    say(&forgotten);
    if forgotten.whole {
        let rest = if forgotten.number > 0 { "what else" } else { "what" };
        note(&format!(
            "{rest} {place} has as done{whose} has no second effect; it remembers for {remembers}"
        ));
    }
    Ok(())
}

/// Says what a person had the inbox forget.
fn say(forgotten: &Found) {
    if forgotten.number > 0 {
        note(&format!(
            "forgotten by hand, and acted on again if among these: {}; postrider inbox ls --state forgotten names them",
            count(forgotten.number)
        ));
    }
    if !forgotten.whole {
        note(
            "warning: the inbox has more rows, which were not looked at: whether more were forgotten by hand is not known",
        );
    }
}

/// Reads on until so many rows are found, or all were looked at, or too many. A page without rows is not the end.
async fn find<T>(
    enough: u64,
    pages: impl AsyncFn(&PageRequest) -> Result<Listed<T>, Error>,
) -> Result<Found, Failure> {
    let limit = u32::try_from(enough).unwrap_or(CHUNK).min(CHUNK);
    let mut page = PageRequest { after: None, limit };
    let mut number = 0;
    for _ in 0..PAGES_MAX {
        let listed = pages(&page).await?;
        number += listed.rows.len() as u64;
        page.after = listed.next;
        if page.after.is_none() || number >= enough {
            return Ok(Found { number, whole: page.after.is_none() });
        }
    }
    Ok(Found { number, whole: false })
}

fn unnamed(queue: &Queue) -> Failure {
    let passed = queue.passed.as_ref().map_or_else(String::new, |own| {
        format!(" (that of the configuration is for {own}, and --from is {})", queue.name)
    });
    Failure::config(format!(
        "no inbox is named{passed}: nothing would keep what was done from being done again"
    ))
    .advice(
        "Nothing was moved. Name that of the consumers by --inbox URL, or --config FILE. If a second effect does no \
         harm: --unguarded.",
    )
}

fn too_short(remembers: Duration, age: Duration) -> Failure {
    Failure::config(format!(
        "the inbox remembers for {}, and a dead letter may be {} old when it is acted on, in its queue, out of it, and \
         in it again: of one that is older than the inbox remembers nobody knows whether it was done",
        short(remembers),
        short(age)
    ))
    .advice(
        "Nothing was moved. Raise retention.inbox above that, if the inbox still has what was done since; or, if a \
         second effect does no harm: --unguarded.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages without rows up to the `of`th, which has two rows and is the last one.
    async fn found(enough: u64, of: usize) -> Found {
        let pages = async |page: &PageRequest| {
            let at: usize = page.after.as_deref().map_or(1, |place| place.parse().unwrap());
            let (rows, next) = if at == of {
                (vec![(), ()], None)
            } else {
                (Vec::new(), Some((at + 1).to_string()))
            };
            Ok(Listed { rows, next })
        };
        find(enough, pages).await.unwrap()
    }

    /// R097: a service that looked at its fill says so by a page without rows; what is behind it counts as well.
    #[tokio::test]
    async fn rows_behind_empty_pages_are_found() {
        assert_eq!(found(u64::MAX, 1).await, Found { number: 2, whole: true });
        assert_eq!(found(u64::MAX, PAGES_MAX).await, Found { number: 2, whole: true });
        assert_eq!(found(1, 3).await, Found { number: 2, whole: true });
    }

    /// The negative control: behind the bound nothing was looked at, and that is told apart from nothing.
    #[tokio::test]
    async fn what_was_not_looked_at_is_not_taken_for_nothing() {
        assert_eq!(found(u64::MAX, PAGES_MAX + 1).await, Found { number: 0, whole: false });
    }
}
