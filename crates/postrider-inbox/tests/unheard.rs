//! What was done, and the broker does not hear.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Verdict;
use postrider_core::subscription::{Receipt, SubscriptionCapabilities};
use postrider_core::{Delivery, Error, ErrorKind, Event, EventId, Result, Tick};
use postrider_inbox::command::{Answer, DeliveryNo, Input};
use postrider_inbox::{ConsumerOptions, Health, Machine};

const VISIBILITY: Duration = Duration::from_secs(60);

struct Consumer {
    machine: Machine,
    next: u64,
}

impl Consumer {
    fn new() -> Consumer {
        let capabilities = SubscriptionCapabilities::least(VISIBILITY);
        let mut machine = Machine::new(ConsumerOptions::default(), capabilities, 7);
        machine.step(Tick(0), Input::Woke);
        Consumer { machine, next: 0 }
    }

    /// A message comes, its handler is done, and the broker answers so.
    fn settle(&mut self, seconds: u64, answer: Result<()>) -> Health {
        let (now, no) = (Tick(0) + Duration::from_secs(seconds), DeliveryNo(self.next));
        self.next += 1;
        let mut event =
            Event::new(EventId::from_u128(u128::from(self.next)), "order", "1", "order.placed");
        event.source = Arc::from("/shop");
        let receipt = Receipt { message: self.next, token: 1 };
        let delivery = Delivery::new(Ok(Arc::new(event)), Arc::from("orders"), receipt);
        self.machine.step(now, Input::Received(vec![delivery]));
        self.machine.step(now, Input::Answered(no, Answer::Verdict(Verdict::Done)));
        self.machine.step(now, Input::Settled(no, answer));
        self.machine.health()
    }
}

fn refused(kind: ErrorKind) -> Result<()> {
    Err(Error::new(kind, "ack").message("grant it"))
}

/// INV-8: where what is done can never be settled, somebody is told; one settlement that the broker takes ends it.
#[test]
fn what_can_never_be_settled_is_told_of() {
    let mut consumer = Consumer::new();
    for second in [0, 10, 20, 29] {
        let health = consumer.settle(second, refused(ErrorKind::Unauthorized));
        assert_eq!(health, Health::Ready, "an election takes no less: {second}");
    }
    let Health::BrokerDown { detail } = consumer.settle(30, refused(ErrorKind::Unauthorized))
    else {
        panic!("nobody is told");
    };
    assert!(detail.contains("cannot be settled") && detail.contains("grant it"), "{detail}");
    assert_eq!(consumer.settle(31, Ok(())), Health::Ready);
    assert_eq!(consumer.settle(90, refused(ErrorKind::Unauthorized)), Health::Ready, "a new row");
}

/// A few that come late are none, nor is a delivery that is another's by then; and what failed is forgotten when nothing comes again.
#[test]
fn what_is_settled_elsewhere_is_not_told_of() {
    let mut consumer = Consumer::new();
    for second in [0, 20, 40, 60, 80] {
        assert_eq!(consumer.settle(second, refused(ErrorKind::Fenced)), Health::Ready);
    }
    consumer.settle(100, refused(ErrorKind::Unavailable));
    assert_eq!(consumer.settle(140, refused(ErrorKind::Unavailable)), Health::Ready, "two");
    assert!(consumer.settle(150, refused(ErrorKind::Unavailable)) != Health::Ready);
    let later = Tick(0) + Duration::from_secs(150) + 2 * VISIBILITY;
    consumer.machine.step(later, Input::Woke);
    assert_eq!(consumer.machine.health(), Health::Ready, "somebody else has it");
}
