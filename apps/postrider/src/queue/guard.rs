//! Whether what is moved back can have a second effect.
//!
//! Invariant: an inbox that cannot be opened, or that forgets before dead letters do, is no guard; what a person had it
//! forget is said; and nothing is said to be harmless that was not looked at.

use std::time::Duration;

use postrider_aws::Heap;
use postrider_core::operate::{InboxFilter, InboxState};

use super::place::Queue;
use crate::age::short;
use crate::failure::Failure;
use crate::rows::{Found, find};
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
