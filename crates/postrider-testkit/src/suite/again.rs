//! What a receiver whose marker lives in the handler's transaction counts of a message that comes again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::inbox::{DELIVERIES_MAX, Receiver, Verdict};
use postrider_core::subscription::Receipt;
use postrider_core::{Claim, ClaimRequest, Delivery, ErrorKind, Event, Fault, InboxStore};

/// What a handler under test says, until it is told to say something else.
#[derive(Clone, Debug)]
pub struct Says(Arc<Mutex<Verdict>>);

impl Default for Says {
    fn default() -> Says {
        Says(Arc::new(Mutex::new(Verdict::Done)))
    }
}

impl Says {
    /// What it says now.
    pub fn now(&self) -> Verdict {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn say(&self, verdict: Verdict) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = verdict;
    }
}

async fn delivered(receiver: &dyn Receiver, event: &Arc<Event>, count: u32) -> Verdict {
    let receipt = Receipt { message: 1, token: 1 };
    let mut delivery = Delivery::new(Ok(Arc::clone(event)), Arc::from("orders"), receipt);
    delivery.count = count;
    receiver.receive(event, &delivery).await.expect("a verdict")
}

fn tries(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Retry { tries: Some(tries), .. } => tries,
        other => panic!("{other:?}"),
    }
}

/// A handler that says what `says` says gets a message fifty times while what it needs is away, then fails, kills its
/// process twenty times, and is sent the message again as a dead letter.
///
/// # Panics
/// If what is counted is wrong.
pub async fn what_comes_again_is_counted(
    inbox: &dyn InboxStore,
    receiver: &dyn Receiver,
    says: &Says,
    event: &Arc<Event>,
) {
    assert!(receiver.counts_tries());
    let waits = Verdict::Busy { retry_in: Duration::from_secs(1) };
    says.say(waits.clone());
    for count in 1..=50 {
        assert_eq!(delivered(receiver, event, count).await, waits);
    }
    let fault = Fault::new(ErrorKind::Unavailable, "no answer");
    says.say(Verdict::Retry { after: None, fault, tries: None });
    assert_eq!(
        tries(delivered(receiver, event, 51).await),
        2,
        "and the first, of which nobody knows"
    );
    assert_eq!(tries(delivered(receiver, event, 52).await), 3, "the control");
    for _ in 3..DELIVERIES_MAX {
        // All that is left of a process that was killed.
        let begun = ClaimRequest::new(event, receiver.handler(), Duration::ZERO).expect("a source");
        let begun = inbox.claim(&begun).await.expect("claim");
        assert!(matches!(begun, Claim::Claimed(_)), "{begun:?}");
    }
    let few = delivered(receiver, event, DELIVERIES_MAX).await;
    assert_eq!(tries(few), DELIVERIES_MAX, "the control: not all were this message's");
    match delivered(receiver, event, 99).await {
        Verdict::Reject(fault) => {
            assert!(fault.detail.contains("may stop the consumer"), "{fault}")
        }
        other => panic!("{other:?}"),
    }
    says.say(Verdict::Done);
    assert_eq!(delivered(receiver, event, 2).await, Verdict::Done, "sent again");
    assert_eq!(delivered(receiver, event, 3).await, Verdict::Duplicate);
}
