//! What a receiver whose marker lives in the handler's transaction counts of a message that comes again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::inbox::{DELIVERIES_MAX, Receiver, Verdict, suspicion, usual_deliveries};
use postrider_core::subscription::Receipt;
use postrider_core::{Claim, Delivery, ErrorKind, Event, EventId, Fault, InboxStore, Payload};

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

fn delivery(event: &Arc<Event>, count: u32) -> Delivery {
    let receipt = Receipt { message: 1, token: 1 };
    let mut delivery = Delivery::new(Ok(Arc::clone(event)), Arc::from("orders"), receipt);
    (delivery.count, delivery.alone) = (count, Some(true));
    delivery
}

async fn delivered(receiver: &dyn Receiver, event: &Arc<Event>, count: u32) -> Verdict {
    receiver.receive(event, &delivery(event, count)).await.expect("a verdict")
}

fn tries(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Retry { tries: Some(tries), .. } => tries,
        other => panic!("{other:?}"),
    }
}

/// All that is left of a process that was killed.
async fn orphan(inbox: &dyn InboxStore, receiver: &dyn Receiver, event: &Event) {
    let begun = suspicion(event, receiver.handler()).expect("a source");
    let begun = inbox.claim(&begun).await.expect("claim");
    assert!(matches!(begun, Claim::Claimed(_)), "{begun:?}");
}

fn may_stop_the_consumer(said: &Verdict) -> bool {
    matches!(said, Verdict::Reject(fault) if fault.detail.contains("may stop the consumer"))
}

/// A handler that says what `says` says gets a message fifty times while what it needs is away, then fails, becomes a dead
/// letter that is sent again, and kills its process again and again, is put off until it is alone, and somebody corrects it.
/// Then the same of a message that a broker counts in each process for itself.
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
    assert_eq!(tries(delivered(receiver, event, 51).await), 1, "what was given back is no try");
    assert_eq!(tries(delivered(receiver, event, 52).await), 2, "the control");
    receiver.buried(&delivery(event, 52)).await.expect("forgotten");
    assert_eq!(tries(delivered(receiver, event, 53).await), 1, "a dead letter that is sent again");
    let most = DELIVERIES_MAX - usual_deliveries(DELIVERIES_MAX);
    let mut beside_others = delivery(event, 97);
    beside_others.alone = Some(false);
    for n in 2..=most + 2 {
        let said = receiver.receive(event, &beside_others).await.expect("a verdict");
        assert_eq!(tries(said), n, "what merely fails is not suspected");
    }
    for _ in 1..most {
        orphan(inbox, receiver, event).await;
    }
    for _ in 0..3 {
        let said = receiver.receive(event, &beside_others).await.expect("a verdict");
        assert_eq!(said, Verdict::Alone, "who may be at fault is tried alone");
    }
    let failed = tries(delivered(receiver, event, 98).await);
    assert_eq!(failed, 2 * most + 2, "the control: not one too many");
    let said = receiver.receive(event, &beside_others).await.expect("a verdict");
    assert_eq!(tries(said), failed + 1, "it came to an end");
    for _ in 0..most {
        orphan(inbox, receiver, event).await;
    }
    for _ in 0..2 {
        let said = delivered(receiver, event, 99).await;
        assert!(may_stop_the_consumer(&said), "until there is a dead letter: {said:?}");
    }
    receiver.buried(&delivery(event, 99)).await.expect("forgotten");
    assert_eq!(tries(delivered(receiver, event, 100).await), 1, "sent again");
    let mut corrected = Event::clone(event);
    corrected.payload = Payload::json("{\"corrected\":true}").expect("JSON");
    let corrected = Arc::new(corrected);
    says.say(Verdict::Done);
    assert_eq!(delivered(receiver, &corrected, 1).await, Verdict::Done, "sent again");
    assert_eq!(delivered(receiver, &corrected, 12).await, Verdict::Duplicate);
    let as_it_was = delivered(receiver, event, 1).await;
    assert!(matches!(as_it_was, Verdict::Reject(_)), "it is known as corrected: {as_it_was:?}");
    of_another_process(inbox, receiver, says, event, most).await;
}

async fn of_another_process(
    inbox: &dyn InboxStore,
    receiver: &dyn Receiver,
    says: &Says,
    event: &Event,
    most: u32,
) {
    let mut event = event.clone();
    event.id = EventId::from_u128(event.id.as_u128() ^ 1);
    let event = Arc::new(event);
    let mut begun_before = delivery(&event, 1);
    begun_before.begun_before = true;
    let again = async || receiver.receive(&event, &begun_before).await.expect("a verdict");
    says.say(Verdict::Retry {
        after: None,
        fault: Fault::new(ErrorKind::Unavailable, "no"),
        tries: None,
    });
    for _ in 0..most {
        orphan(inbox, receiver, &event).await;
    }
    let said = delivered(receiver, &event, 1).await;
    assert!(
        matches!(said, Verdict::Retry { tries: None, .. }),
        "the control: first of all: {said:?}"
    );
    let said = again().await;
    assert!(may_stop_the_consumer(&said), "{said:?}");
    receiver.buried(&begun_before).await.expect("forgotten");
    says.say(Verdict::Done);
    assert_eq!(again().await, Verdict::Done, "sent again");
    assert_eq!(again().await, Verdict::Duplicate);
}
