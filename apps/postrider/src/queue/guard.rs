//! Whether what is moved back can have a second effect.
//!
//! Invariant: an inbox that cannot be opened, or that forgets before dead letters do, is no guard; and what a person
//! had it forget is said.

use std::time::Duration;

use postrider_aws::Heap;
use postrider_core::operate::{InboxFilter, InboxState, PageRequest};

use super::place::Queue;
use crate::age::short;
use crate::failure::Failure;
use crate::filter::CHUNK;
use crate::store::Place;
use crate::terminal::{count, note};

/// Opens the inbox, and says what it does not know.
///
/// # Errors
/// None is named, it does not open, or it forgets too early. Nothing was moved then.
pub(super) async fn check(queue: &Queue, heap: &Heap, unguarded: bool) -> Result<(), Failure> {
    if unguarded {
        note("no inbox is asked: a consumer without one does again what was done before");
        return Ok(());
    }
    let Some(inbox) = &queue.inbox else {
        return Err(Failure::config(
            "no inbox is named: nothing would keep what was done from being done again",
        )
        .advice(
            "Nothing was moved. Name that of the consumers by --inbox URL, or --config FILE. If a second effect does \
             no harm: --unguarded.",
        ));
    };
    let place = Place::read(inbox)?.of_inbox(&queue.postgres, queue.reference.as_ref());
    let opened = place.open().await.map_err(|failure| failure.within("the inbox"))?;
    if let Some(age) = heap.age_max.filter(|age| *age > queue.remembers) {
        return Err(too_short(queue.remembers, age));
    }
    let mut asked = InboxFilter::default();
    asked.state = Some(InboxState::Forgotten);
    asked.handler.clone_from(&queue.handler);
    let page = PageRequest { after: None, limit: CHUNK };
    let forgotten = opened.operator.inbox(&asked, &page).await?;
    if !forgotten.rows.is_empty() {
        let more = if forgotten.next.is_some() { "more than " } else { "" };
        note(&format!(
            "forgotten by hand, and acted on again if among these: {more}{}; postrider inbox ls --state forgotten names \
             them",
            count(forgotten.rows.len() as u64)
        ));
    }
    note(&format!("what was done before has no second effect: {place} remembers it"));
    Ok(())
}

fn too_short(remembers: Duration, age: Duration) -> Failure {
    Failure::config(format!(
        "the inbox remembers for {}, and a dead letter may be {} old, in its queue and out of it: of one that is older \
         than the inbox remembers nobody knows whether it was done",
        short(remembers),
        short(age)
    ))
    .advice(
        "Nothing was moved. Raise retention.inbox above that, if the inbox still has what was done since; or, if a \
         second effect does no harm: --unguarded.",
    )
}
