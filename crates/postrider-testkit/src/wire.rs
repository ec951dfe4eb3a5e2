//! Cases of a broker behind the [proxy](crate::proxy): answers that are lost or late, and connections with nobody
//! behind them.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker, EventId};
use tokio::time::Instant;

use crate::carry::{assert_in_order, carry, event, is_unknown, outgoing, until_acked};
use crate::proxy::{Proxy, Traffic};

/// How long a publish may take: [`Wired::broker`] is set to it.
pub const DEADLINE: Duration = Duration::from_secs(1);

/// A server, and a broker that reaches it by a proxy alone.
pub trait Wired {
    /// The way to it.
    fn proxy(&self) -> &Proxy;

    /// The broker.
    fn broker(&self) -> Arc<dyn Broker>;

    /// A topic that is there.
    fn topic(&self) -> &str;

    /// How many are stored, copies included; it may be asked again and again.
    fn count(&self) -> impl Future<Output = u64>;

    /// What is stored, copies included, as the server says it by another way.
    fn ids(&self) -> impl Future<Output = Vec<EventId>>;
}

/// What is stored, without the copies of what was sent again.
async fn once(wired: &impl Wired) -> Vec<EventId> {
    let mut ids: Vec<EventId> = Vec::new();
    for id in wired.ids().await {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}

/// The server took it and the answer was lost: it does not count as published, and is sent again under the same id.
///
/// # Panics
/// If not.
pub async fn a_lost_answer_counts_as_not_published(wired: &impl Wired) {
    let (broker, topic) = (wired.broker(), wired.topic());
    let (first, second) = (event("1", 1, 10), event("1", 2, 10));
    until_acked(&*broker, topic, &first).await;
    wired.proxy().set(Traffic::AnswersLost);
    let said = broker.publish(&[outgoing(topic, &second)]).await;
    assert!(is_unknown(&said), "{said:?}");
    // It arrived all the same.
    assert_eq!(once(wired).await, [first.id, second.id]);
    wired.proxy().set(Traffic::Open);
    until_acked(&*broker, topic, &second).await;
    assert_eq!(once(wired).await, [first.id, second.id]);
}

/// An answer that is late counts while it is awaited; one that comes after 2 s, or 30 s, does not, and the call ends
/// with its deadline.
///
/// # Panics
/// If not.
pub async fn a_late_answer_counts_within_the_deadline(wired: &impl Wired) {
    let (broker, topic) = (wired.broker(), wired.topic());
    let sent = [event("1", 1, 10), event("1", 2, 10), event("1", 3, 10)];
    until_acked(&*broker, topic, &sent[0]).await;
    wired.proxy().set(Traffic::AnswersLate(DEADLINE / 4));
    until_acked(&*broker, topic, &sent[1]).await;
    for late in [DEADLINE * 2, DEADLINE * 30] {
        wired.proxy().set(Traffic::AnswersLate(late));
        let begun = Instant::now();
        let said = broker.publish(&[outgoing(topic, &sent[2])]).await;
        assert!(is_unknown(&said), "{said:?}");
        assert!(begun.elapsed() < DEADLINE * 15, "it waited for longer than its deadline");
    }
    assert_eq!(once(wired).await, sent.each_ref().map(|event| event.id));
}

/// The way is cut, with its connections half open, and opened again and again in mid-batch, with answers lost in
/// between: everything arrives, each key in its order.
///
/// # Panics
/// If not.
pub async fn a_way_that_is_cut_keeps_the_order(wired: &impl Wired, rounds: usize) {
    let (broker, topic) = (wired.broker(), wired.topic().to_owned());
    let carrying = tokio::spawn(async move { carry(&*broker, &topic, 20, 300).await });
    let mut cuts = 0;
    for round in 0..rounds {
        let before = wired.count().await;
        while !carrying.is_finished() && wired.count().await < before + 50 {
            // waits: a server tells nobody what it has got
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cuts += usize::from(!carrying.is_finished());
        wired.proxy().set([Traffic::Cut, Traffic::AnswersLost][round % 2]);
        // waits: for longer than the deadline
        tokio::time::sleep(DEADLINE + DEADLINE / 4).await;
        wired.proxy().set(Traffic::Open);
    }
    assert!(cuts >= 2, "only {cuts} cuts fell into the run");
    let sent = carrying.await.expect("it carries everything");
    assert_in_order(&wired.ids().await, &sent);
}

/// Nobody is behind the connections for longer than several calls: each ends with its deadline, nothing is held on
/// to, and as soon as the way is open again it goes on.
///
/// # Panics
/// If not.
pub async fn a_half_open_connection_is_left(wired: &impl Wired) {
    let (broker, topic) = (wired.broker(), wired.topic());
    let sent: Vec<_> = (0..4).map(|n| event("1", n, 10)).collect();
    until_acked(&*broker, topic, &sent[0]).await;
    wired.proxy().cut(true);
    for _ in 0..3 {
        let begun = Instant::now();
        let said = broker.publish(&[outgoing(topic, &sent[1])]).await;
        assert!(is_unknown(&said), "{said:?}");
        assert!(begun.elapsed() < DEADLINE * 15, "it waited for longer than its deadline");
    }
    wired.proxy().cut(false);
    for event in &sent[1..] {
        until_acked(&*broker, topic, event).await;
    }
    assert_eq!(once(wired).await, sent.iter().map(|event| event.id).collect::<Vec<_>>());
}
