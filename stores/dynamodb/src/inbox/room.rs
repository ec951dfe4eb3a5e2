//! Rows that have no room: what is left out of them, so that what was done is recorded.
//!
//! Invariants: an effect that has happened is recorded as long as anything of its row can be left out for it; and of
//! what is left out it stays said that it was made, so that nobody makes it again.

use postrider_core::inbox::RESULT_BYTES_MAX;
use postrider_core::{ClaimLease, ErrorKind, Result};

use crate::inbox::condition::{Kept, step_names};
use crate::inbox::parts::POINTER_BYTES;
use crate::inbox::{Inbox, row};
use crate::item::{Item, n};

/// How many results are left out of a row for the size of another: the largest first, and more if that is not enough.
const FREED_AT_ONCE: [usize; 4] = [1, 4, 16, 64];

/// Answers by which parts are refused, where the row itself, a small write, may be taken.
const REFUSALS: [ErrorKind; 4] =
    [ErrorKind::Busy, ErrorKind::Unauthorized, ErrorKind::Invalid, ErrorKind::Rejected];

impl Inbox {
    /// Completes a row that has no room for a result: in parts beside it. Where the row has no room for the pointer to them
    /// either, it keeps of the steps that they were made; and of a result that is above the limit how large it was.
    /// The effect has happened, and must not happen again for want of room. What was written, and whether the result
    /// was left out.
    pub(super) async fn finish_full(
        &self,
        kept: &Kept<'_>,
        result: &[u8],
    ) -> Result<(Result<Item, Item>, bool)> {
        let (key, retention) = (&kept.lease.key, self.options.retention);
        let (mut pointer, mut are_refused) = (None, false);
        if (POINTER_BYTES + 1..=RESULT_BYTES_MAX).contains(&result.len()) {
            match self.put_parts(kept, result).await {
                Ok(parts) => {
                    let update = self.update(key).await;
                    let update = kept.complete_in_parts(update, &parts, retention, None);
                    match self.send("complete", update).await {
                        Err(error) if error.kind() == ErrorKind::TooLarge => {}
                        sent => return Ok((sent?, false)),
                    }
                    pointer = Some(parts);
                }
                // The result gives way, and not the record: a mebibyte is more than a partition takes in a second.
                Err(error) if REFUSALS.contains(&error.kind()) => are_refused = true,
                Err(error) => return Err(error),
            }
        }
        // Only the holder writes steps, and it is here.
        let item = self.read("complete", key).await?.unwrap_or_default();
        let nothing = Item::new();
        let steps = row::without_results(row::steps_of(&item).unwrap_or(&nothing));
        if result.len() <= RESULT_BYTES_MAX && !are_refused {
            let (update, steps) = (self.update(key).await, steps.clone());
            let update = match &pointer {
                Some(parts) => kept.complete_in_parts(update, parts, retention, Some(steps)),
                None => kept.complete_with(update, result, retention, steps),
            };
            match self.send("complete", update).await {
                Err(error) if error.kind() == ErrorKind::TooLarge => {}
                sent => return Ok((sent?, false)),
            }
        }
        let update = self.update(key).await;
        let update = kept.complete_without(update, result.len(), retention, steps);
        Ok((self.send("complete", update).await?, true))
    }

    /// Records a step without its result, of which the size alone stays. If even that has no room, the largest results
    /// of other steps give way, of which their sizes stay: who asks for them is told that they were made.
    pub(super) async fn store_step_without(
        &self,
        lease: &ClaimLease,
        step: &str,
        bytes: usize,
    ) -> Result<Result<Item, Item>> {
        let mut sent = self.put_step(lease, step, n(bytes)).await;
        let is_full =
            |sent: &Result<_>| sent.as_ref().is_err_and(|it| it.kind() == ErrorKind::TooLarge);
        if !is_full(&sent) {
            return sent;
        }
        let item = self.read("complete step", &lease.key).await?.unwrap_or_default();
        let mut others: Vec<(usize, &String)> = row::steps_of(&item)
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != step)
            .filter_map(|(name, said)| Some((said.as_b().ok()?.as_ref().len(), name)))
            .collect();
        others.sort_unstable_by(|one, other| other.cmp(one));
        for freed in FREED_AT_ONCE {
            let kept = Kept { lease, now_ms: self.now_ms() };
            let mut update = step_names(kept.hold(self.update(&lease.key).await), step);
            let mut set = "SET #steps.#step = if_not_exists(#steps.#step, :size)".to_owned();
            for (at, (size, name)) in others.iter().take(freed).enumerate() {
                set.push_str(&format!(", #steps.#freed{at} = :freed{at}"));
                update = update
                    .expression_attribute_names(format!("#freed{at}"), *name)
                    .expression_attribute_values(format!(":freed{at}"), n(*size));
            }
            update = update.update_expression(set).expression_attribute_values(":size", n(bytes));
            sent = self.send("complete step", update).await;
            if !is_full(&sent) || freed >= others.len() {
                break;
            }
        }
        sent
    }
}
