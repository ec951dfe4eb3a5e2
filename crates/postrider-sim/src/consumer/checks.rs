//! The checkers of consumers, each seen to fail, and to keep quiet where nothing is wrong.

use postrider_core::inbox::Verdict;
use postrider_core::subscription::Receipt;
use postrider_core::{
    Broker, ClaimLease, Delivery, ErrorKind, Event, EventId, Fault, Format, InboxKey, Invariant,
    Marks, Outgoing, Payload, Subscription, Tick,
};
use postrider_inbox::command::Answer;
use postrider_testkit::memory::{MemoryBroker, MemoryClock};

use super::shop::STEPS;
use super::verdict::Group;
use super::*;
use crate::story::Story;

const TOPIC: &str = "orders";

struct Bench {
    kernel: Arc<Kernel>,
    shop: Arc<Shop>,
    store: MemoryStore,
    broker: MemoryBroker,
}

fn bench() -> Bench {
    let (kernel, clock) = (Arc::new(Kernel::default()), MemoryClock::new());
    let story = Arc::new(Story::new(Arc::clone(&kernel), false));
    Bench {
        shop: Arc::new(Shop::new(Arc::clone(&kernel), story)),
        kernel,
        store: MemoryStore::new(1, clock.clone()),
        broker: MemoryBroker::new(clock),
    }
}

fn worker(number: u32) -> Worker {
    Worker { process: ProcessNo(number), name: format!("worker-{number}") }
}

fn handler() -> HandlerName {
    HandlerName::new("mailer").unwrap()
}

fn event(id: u128) -> Arc<Event> {
    let mut event = Event::new(EventId::from_u128(id), "order", "7", "order.placed");
    event.source = Arc::from("/shop");
    event.payload = Payload::json("1").unwrap();
    Arc::new(event)
}

fn key(id: u128) -> InboxKey {
    InboxKey::of(&event(id), &handler()).unwrap()
}

fn lease(token: u64) -> ClaimLease {
    ClaimLease { key: key(1), token, tries: 1, lost: 0 }
}

impl Bench {
    fn at(&self, seconds: u64) {
        self.kernel.reach(Tick(0) + Duration::from_secs(seconds));
    }

    /// A claim that was asked for and answered now.
    fn grant(&self, number: u32, token: u64) {
        self.shop.granted(&worker(number), &lease(token), self.kernel.now(), LEASE);
    }

    fn broken(&self) -> Option<Invariant> {
        self.shop.failure().map(|failure| failure.invariant)
    }

    async fn publish(&self, id: u128) {
        let topic = Arc::from(TOPIC);
        let (format, marks) = (Format::default(), Marks::default());
        let outgoing =
            Outgoing { event: event(id), topic, format, layout: None, marks, attempt: 1 };
        self.broker.publish(&[outgoing]).await.unwrap();
    }

    /// Publishes two messages, and settles both.
    fn two_messages(&self, fault: Option<&Fault>) {
        crate::now(async {
            self.publish(1).await;
            self.publish(2).await;
            let group = self.broker.subscribe(TOPIC, "mailer", VISIBILITY);
            for _ in 0..2 {
                let delivery = group.poll(1).remove(0);
                match fault {
                    Some(fault) => group.reject(&delivery, fault).await.unwrap(),
                    None => group.ack(&delivery).await.unwrap(),
                }
            }
        });
    }

    fn commit_effect(&self, id: u128) {
        let mut transaction = self.store.begin();
        transaction.effect(&event(id), &handler()).unwrap();
        transaction.commit().unwrap();
    }

    fn judge(&self) -> Option<Invariant> {
        let (shop, broker, store) = (&*self.shop, &self.broker, &self.store);
        let (topic, kind) = (TOPIC, Kind::Transactional);
        Group { shop, broker, topic, handler: &handler(), kind, store }.judge();
        self.broken()
    }
}

#[test]
fn a_claim_has_one_owner_at_a_time() {
    let early = bench();
    early.grant(1, 1);
    early.at(9);
    early.grant(2, 2);
    assert_eq!(early.broken(), Some(Invariant::OneEffect));

    let prolonged = bench();
    prolonged.grant(1, 1);
    prolonged.at(5);
    prolonged.shop.prolonged(&lease(1), prolonged.kernel.now(), LEASE);
    prolonged.at(11);
    prolonged.grant(2, 2);
    assert_eq!(prolonged.broken(), Some(Invariant::OneEffect));

    let same = bench();
    same.grant(1, 1);
    same.at(60);
    same.grant(2, 1);
    assert_eq!(same.broken(), Some(Invariant::OneEffect), "the same token twice");

    let late = bench();
    late.grant(1, 1);
    late.at(10);
    late.grant(2, 2);
    late.shop.releasing(&lease(2));
    late.grant(1, 3);
    assert_eq!(late.broken(), None);
}

#[test]
fn who_is_not_told_to_stop_has_its_claim() {
    let bench = bench();
    bench.grant(1, 1);
    bench.at(10);
    bench.shop.goes_on(&worker(1), &lease(1));
    assert_eq!(bench.broken(), None);
    bench.at(11);
    bench.shop.goes_on(&worker(1), &lease(1));
    assert_eq!(bench.broken(), Some(Invariant::OneEffect));
}

#[test]
fn nothing_is_recorded_by_who_lost_its_claim() {
    let lost = bench();
    STEPS.iter().for_each(|step| lost.shop.effect(&key(1), step, step));
    lost.grant(1, 1);
    lost.at(11);
    lost.grant(2, 2);
    lost.shop.completed(&worker(1), &lease(1));
    assert_eq!(lost.broken(), Some(Invariant::OneEffect));

    let forgotten = bench();
    STEPS.iter().for_each(|step| forgotten.shop.effect(&key(1), step, step));
    forgotten.grant(1, 1);
    forgotten.shop.store_forgot();
    forgotten.grant(2, 1);
    forgotten.shop.completed(&worker(1), &lease(1));
    assert_eq!(forgotten.broken(), None, "a store that lost what it had is no proof");
}

#[test]
fn a_step_is_made_once_and_before_it_is_recorded() {
    let other_key = bench();
    other_key.shop.effect(&key(1), STEPS[0], "a");
    other_key.shop.effect(&key(1), STEPS[0], "a");
    assert_eq!(other_key.broken(), None, "the service honours the key");
    other_key.shop.effect(&key(1), STEPS[0], "b");
    assert_eq!(other_key.broken(), Some(Invariant::OneEffect));

    let early = bench();
    early.shop.step_recording(&worker(1), &lease(1), STEPS[0]);
    assert_eq!(early.broken(), Some(Invariant::Truth));

    let again = bench();
    again.grant(1, 1);
    again.shop.step_recorded(&lease(1), STEPS[0]);
    again.shop.step_begins(&worker(1), &lease(1), STEPS[0]);
    assert_eq!(again.broken(), Some(Invariant::OneEffect));

    let never = bench();
    never.grant(1, 1);
    never.shop.completed(&worker(1), &lease(1));
    assert_eq!(never.broken(), Some(Invariant::Truth), "done, and its steps were not made");
}

/// What an operator made the inbox forget may be done once more, and nothing else is excused.
#[test]
fn what_was_forgotten_is_done_once_more() {
    let done = || {
        let bench = bench();
        STEPS.iter().for_each(|step| bench.shop.effect(&key(1), step, step));
        bench.grant(1, 1);
        STEPS.iter().for_each(|step| bench.shop.step_recorded(&lease(1), step));
        bench.shop.completed(&worker(1), &lease(1));
        bench
    };
    let again = done();
    again.grant(2, 2);
    assert_eq!(again.broken(), Some(Invariant::OneEffect), "nobody forgot it");

    let forgotten = done();
    forgotten.shop.operator_forgot(&key(1), 2);
    forgotten.shop.was_done(&key(1));
    forgotten.grant(2, 3);
    forgotten.shop.completed(&worker(1), &lease(1));
    forgotten.shop.completed(&worker(2), &lease(3));
    assert_eq!(forgotten.broken(), None, "answers of before may come late");
    forgotten.grant(3, 4);
    assert_eq!(forgotten.broken(), Some(Invariant::OneEffect), "it was forgotten once");

    let same = done();
    same.shop.operator_forgot(&key(1), 2);
    same.grant(2, 1);
    assert_eq!(same.broken(), Some(Invariant::OneEffect), "a token twice");

    let step = done();
    step.shop.operator_forgot(&key(1), 2);
    step.grant(2, 3);
    step.shop.step_begins(&worker(2), &lease(3), STEPS[0]);
    assert_eq!(step.broken(), Some(Invariant::OneEffect), "its result is stored");
}

#[test]
fn a_process_works_on_one_delivery_of_a_key() {
    let bench = bench();
    let receipt = Receipt { message: 1, token: 1 };
    let delivery = Delivery::new(Ok(event(1)), Arc::from(TOPIC), receipt);
    drop(bench.shop.begin(&worker(1), &delivery));
    let _first = bench.shop.begin(&worker(1), &delivery);
    let _other_process = bench.shop.begin(&worker(2), &delivery);
    assert_eq!(bench.broken(), None);
    let _second = bench.shop.begin(&worker(1), &delivery);
    assert_eq!(bench.broken(), Some(Invariant::KeyOrder));
}

#[test]
fn every_message_is_done_once_in_order_or_dead_for_a_reason() {
    let good = bench();
    good.two_messages(None);
    good.commit_effect(1);
    good.commit_effect(2);
    assert_eq!(good.judge(), None);

    let open = bench();
    crate::now(open.publish(1));
    open.commit_effect(1);
    assert_eq!(open.judge(), Some(Invariant::NoLoss), "a message is open");

    let undone = bench();
    undone.two_messages(None);
    undone.commit_effect(1);
    assert_eq!(undone.judge(), Some(Invariant::NoLoss), "acknowledged, and not done");

    let twice = bench();
    twice.two_messages(None);
    [1, 2, 1].into_iter().for_each(|id| twice.commit_effect(id));
    assert_eq!(twice.judge(), Some(Invariant::OneEffect));

    let forgotten = bench();
    forgotten.two_messages(None);
    forgotten.shop.operator_forgot(&key(1), 2);
    [1, 2, 1].into_iter().for_each(|id| forgotten.commit_effect(id));
    assert_eq!(forgotten.judge(), None, "an operator wanted it");
    forgotten.commit_effect(1);
    assert_eq!(forgotten.judge(), Some(Invariant::OneEffect), "and only once");

    let swapped = bench();
    swapped.two_messages(None);
    [2, 1].into_iter().for_each(|id| swapped.commit_effect(id));
    assert_eq!(swapped.judge(), Some(Invariant::KeyOrder));
}

#[test]
fn a_dead_letter_needs_a_handler_that_failed() {
    let fault = Fault::new(ErrorKind::Unavailable, "gave up after 6 attempts: no connection");
    let blameless = bench();
    blameless.two_messages(Some(&fault));
    assert_eq!(blameless.judge(), Some(Invariant::NoLoss));

    let failed = bench();
    failed.two_messages(Some(&fault));
    for id in [1, 2] {
        let receipt = Receipt { message: 1, token: 1 };
        let delivery = Delivery::new(Ok(event(id)), Arc::from(TOPIC), receipt);
        let verdict = Verdict::Retry { after: None, fault: fault.clone(), tries: None };
        failed.shop.answered(&handler(), &delivery, &Answer::Verdict(verdict));
    }
    assert_eq!(failed.judge(), None);
}
