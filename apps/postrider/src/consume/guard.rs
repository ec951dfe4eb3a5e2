//! Whether a group that its broker has forgotten would be given what was done before the inbox remembers.
//!
//! Invariant: a handler that has done something is given nothing of which nobody knows whether it was done, unless a
//! person says that it may be.

use std::time::Duration;

use postrider_core::operate::{InboxFilter, InboxState};
use postrider_core::{Code, HandlerName, Subscription};

use super::plan::Plan;
use crate::age::short;
use crate::failure::Failure;
use crate::rows::find;
use crate::store::Place;
use crate::terminal::note;

/// What is asked before anything is received.
pub(super) struct Guard<'a> {
    inbox: &'a Place,
    handler: &'a HandlerName,
    group: &'a str,
    remembers: Duration,
    /// A person says that everything may come again.
    unguarded: bool,
}

impl<'a> Guard<'a> {
    pub(super) fn new(plan: &'a Plan, inbox: &'a Place, unguarded: bool) -> Guard<'a> {
        let (handler, group, remembers) = (&plan.handler, &*plan.group, plan.retention);
        Guard { inbox, handler, group, remembers, unguarded }
    }

    /// Lets a group begin, or not.
    ///
    /// # Errors
    /// It would begin with what is older than the inbox remembers, and the handler has done something before. Nothing
    /// was received. Or broker or inbox could not be asked.
    pub(super) async fn check(&self, subscription: &dyn Subscription) -> Result<(), Failure> {
        if self.unguarded || !subscription.begins_before(self.remembers).await? {
            return Ok(());
        }
        let opened = self.inbox.open_to_ask_inbox().await;
        let opened = opened.map_err(|failure| failure.within("the inbox"))?;
        let mut asked = InboxFilter::default();
        asked.handler = Some(self.handler.clone());
        asked.state = Some(InboxState::Processed);
        let done = find(1, async |page| opened.operator.inbox(&asked, page).await).await?;
        if done.number == 0 && done.whole {
            note(&format!(
                "the group {} begins with what is older than {}, and {} has done nothing yet",
                self.group,
                short(self.remembers),
                self.handler
            ));
            return Ok(());
        }
        Err(self.refusal())
    }

    fn refusal(&self) -> Failure {
        let (group, handler, remembers) = (self.group, self.handler, short(self.remembers));
        Failure::config(format!(
            "the broker knows nothing of how far the group {group} has come, and would deliver from the oldest message on; \
             some are older than the inbox remembers ({remembers}), so whether {handler} has done them before is known to \
             nobody. Nothing was received"
        ))
        .advice(
            "Set the group's place at the broker to where it was (see docs/guide/sidecar.md), or raise retention.inbox (--retention) if the \
             inbox still has what was done since. If a second effect does no harm, or this handler's group has another \
             name now and everything is to be done: --unguarded, once.",
        )
        .code(Code::HorizonShort)
    }
}
