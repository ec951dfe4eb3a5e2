//! Settling deliveries: acknowledged, refused, extended, put aside, or too late.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{Delivery, ErrorKind, Event, Fault, Subscription};

use super::promise::{Promise, TooLate, play};
use super::{
    BrokerHarness, consumer, event, id_of, ids, nothing_comes, publish_all, receive,
    receive_nothing,
};
use crate::suite::skip;

/// Within this, by a real clock, comes what is due.
const SOON: Duration = Duration::from_secs(5);

/// A broker with one event of one key, delivered to one consumer.
struct Delivered<H> {
    harness: H,
    topic: Arc<str>,
    subscription: Arc<dyn Subscription>,
    event: Arc<Event>,
    delivery: Delivery,
    /// That it is this consumer's alone.
    promise: Promise,
}

async fn delivered<H: BrokerHarness>(case: &str) -> Option<Delivered<H>> {
    let harness = H::start().await;
    let topic = harness.topic("orders");
    let subscription = consumer(&harness, case, &topic, "billing").await?;
    let event = event("1", 1);
    publish_all(&*harness.broker(), &topic, std::slice::from_ref(&event)).await;
    let promise = Promise::asked::<H>(subscription.capabilities().visibility);
    let delivery = receive::<H>(&*subscription, 1).await.remove(0);
    assert_eq!(id_of(&delivery), event.id);
    Some(Delivered { harness, topic, subscription, event, delivery, promise })
}

/// R080: acknowledged is done, also after every timeout.
pub async fn what_is_acknowledged_does_not_come_again<H: BrokerHarness>() {
    let case = "what_is_acknowledged_does_not_come_again";
    let Some(case) = delivered::<H>(case).await else {
        return;
    };
    case.subscription.ack(&case.delivery).await.expect("ack");
    let visibility = case.subscription.capabilities().visibility;
    case.harness.pass(visibility * 2).await;
    receive_nothing(&*case.subscription).await;
}

/// R079: what nobody settled comes again when its visibility ends, and not before.
pub async fn what_is_not_settled_comes_again<H: BrokerHarness>() {
    play(async || {
        let Some(case) = delivered::<H>("what_is_not_settled_comes_again").await else {
            return Ok(());
        };
        comes_again_when_its_time_ends(case).await
    })
    .await;
}

async fn comes_again_when_its_time_ends<H: BrokerHarness>(
    case: Delivered<H>,
) -> Result<(), TooLate> {
    case.promise.insist(nothing_comes(&*case.subscription).await, "before its time ends")?;
    let capabilities = case.subscription.capabilities();
    case.harness.pass(capabilities.visibility + capabilities.visibility / 4).await;
    let again = receive_soon::<H>(&*case.subscription).await?;
    assert_eq!(id_of(&again), case.event.id);
    assert_ne!(again.receipt, case.delivery.receipt);
    if capabilities.counts_deliveries {
        assert_eq!(again.count, 2);
    }
    Ok(())
}

/// What is due by now: a slow machine may be late with it, and a broker whose times are longer than it says always is.
async fn receive_soon<H: BrokerHarness>(
    subscription: &dyn Subscription,
) -> Result<Delivery, TooLate> {
    let began = Instant::now();
    let again = receive::<H>(subscription, 1).await.remove(0);
    match began.elapsed() {
        took if took > SOON => Err(TooLate::by(format!("it was due, and came after {took:?}"))),
        _ => Ok(again),
    }
}

/// R081: still at work is still invisible.
pub async fn an_extended_delivery_stays_invisible<H: BrokerHarness>() {
    play(async || {
        let Some(case) = delivered::<H>("an_extended_delivery_stays_invisible").await else {
            return Ok(());
        };
        stays_invisible_while_extended(case).await
    })
    .await;
}

async fn stays_invisible_while_extended<H: BrokerHarness>(
    case: Delivered<H>,
) -> Result<(), TooLate> {
    let visibility = case.subscription.capabilities().visibility;
    let mut promise = case.promise;
    // One and a half of it in all.
    for _ in 0..6 {
        case.harness.pass(visibility / 4).await;
        let next = Promise::asked::<H>(visibility);
        let extended = case.subscription.extend(&case.delivery, visibility).await;
        promise.insist(extended, "its visibility runs")?;
        promise = next;
    }
    promise.insist(nothing_comes(&*case.subscription).await, "extended a moment ago")?;
    promise.insist(case.subscription.ack(&case.delivery).await, "ack")
}

/// R079: not done comes again after the delay it was given.
pub async fn a_refused_delivery_comes_again_after_its_delay<H: BrokerHarness>() {
    play(async || {
        let case = "a_refused_delivery_comes_again_after_its_delay";
        let Some(case) = delivered::<H>(case).await else {
            return Ok(());
        };
        comes_again_after_its_delay(case).await
    })
    .await;
}

async fn comes_again_after_its_delay<H: BrokerHarness>(case: Delivered<H>) -> Result<(), TooLate> {
    let capabilities = case.subscription.capabilities();
    let delay = capabilities.visibility * 2;
    let delayed = Promise::asked::<H>(delay);
    let nacked = case.subscription.nack(&case.delivery, delay, true).await;
    case.promise.insist(nacked, "nack")?;
    case.harness.pass(capabilities.visibility).await;
    delayed.insist(nothing_comes(&*case.subscription).await, "before its delay ends")?;
    case.harness.pass(delay).await;
    let again = receive_soon::<H>(&*case.subscription).await?;
    assert_eq!(id_of(&again), case.event.id);
    if capabilities.counts_deliveries {
        assert_eq!(again.count, 2);
    }
    Ok(())
}

/// R079: a delivery that was merely somebody else's turn does not count against the message.
pub async fn somebody_elses_turn_is_not_counted<H: BrokerHarness>() {
    let name = "somebody_elses_turn_is_not_counted";
    let Some(case) = delivered::<H>(name).await else {
        return;
    };
    if !case.subscription.capabilities().counts_deliveries {
        return skip(name, "this broker does not count deliveries");
    }
    let mut delivery = case.delivery;
    for _ in 0..5 {
        let nacked = case.subscription.nack(&delivery, std::time::Duration::ZERO, false).await;
        nacked.expect("nack");
        delivery = receive::<H>(&*case.subscription, 1).await.remove(0);
        assert_eq!(delivery.count, 1);
    }
}

/// R093: what can never be delivered leaves the queue, with its successors free, and is kept.
pub async fn what_can_never_be_delivered_is_put_aside<H: BrokerHarness>() {
    let name = "what_can_never_be_delivered_is_put_aside";
    let Some(case) = delivered::<H>(name).await else {
        return;
    };
    let next = event("1", 2);
    publish_all(&*case.harness.broker(), &case.topic, std::slice::from_ref(&next)).await;
    let fault = Fault::new(ErrorKind::Rejected, "unknown version");
    let rejected = case.subscription.reject(&case.delivery, &fault).await;
    rejected.expect("reject");
    let came = receive::<H>(&*case.subscription, 1).await.remove(0);
    assert_eq!(id_of(&came), next.id, "the next of its key");
    case.subscription.ack(&came).await.expect("ack");
    let visibility = case.subscription.capabilities().visibility;
    case.harness.pass(visibility * 2).await;
    receive_nothing(&*case.subscription).await;
    match case.harness.dead_letters(&case.topic, "billing").await {
        Some(dead) => assert_eq!(ids(&dead), [case.event.id]),
        None => skip(name, "dead letters cannot be looked at"),
    }
}

/// R114: a consumer that was too slow settles nothing: the delivery that came after it stands.
pub async fn a_stale_receipt_settles_nothing<H: BrokerHarness>() {
    play(async || {
        let Some(case) = delivered::<H>("a_stale_receipt_settles_nothing").await else {
            return Ok(());
        };
        settles_nothing_by_what_is_stale(case).await
    })
    .await;
}

async fn settles_nothing_by_what_is_stale<H: BrokerHarness>(
    case: Delivered<H>,
) -> Result<(), TooLate> {
    let visibility = case.subscription.capabilities().visibility;
    case.harness.pass(visibility + visibility / 4).await;
    let promise = Promise::asked::<H>(visibility);
    let again = receive::<H>(&*case.subscription, 1).await.remove(0);
    let late = [
        case.subscription.ack(&case.delivery).await,
        case.subscription.nack(&case.delivery, std::time::Duration::ZERO, true).await,
        // Longer than the third one is waited for: if it had an effect, none would come.
        case.subscription.extend(&case.delivery, visibility * 8 + H::patience() * 2).await,
    ];
    for refused in late {
        // Where the broker cannot tell, it is no error; but it must not have an effect either.
        if let Err(error) = refused {
            assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        }
    }
    promise.insist(nothing_comes(&*case.subscription).await, "what came again is somebody's")?;
    case.harness.pass(visibility + visibility / 4).await;
    let third = receive::<H>(&*case.subscription, 1).await.remove(0);
    assert_eq!(id_of(&third), id_of(&again), "nobody acknowledged it");
    Ok(())
}

/// R001: a broker that crashed delivers again what was not settled.
pub async fn a_restart_delivers_again_what_was_not_settled<H: BrokerHarness>() {
    let name = "a_restart_delivers_again_what_was_not_settled";
    let Some(case) = delivered::<H>(name).await else {
        return;
    };
    let Delivered { mut harness, topic, subscription, event, .. } = case;
    if !harness.broker().capabilities().durable {
        return skip(name, "this broker does not declare `durable`");
    }
    let visibility = subscription.capabilities().visibility;
    drop(subscription);
    if !harness.restart().await {
        return skip(name, "this broker cannot be restarted here");
    }
    let subscription = harness.subscribe(&topic, "billing").await.expect("as before");
    harness.pass(visibility + visibility / 4).await;
    let again = receive::<H>(&*subscription, 1).await.remove(0);
    assert_eq!(id_of(&again), event.id);
}
