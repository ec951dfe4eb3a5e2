//! What a broker gives its suite: itself, a look at what it holds, consumers, and where it can, a
//! restart and scripted failures.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{BoxFuture, Broker, Event, EventId, Subscription};

/// A broker under test, for [`broker_suite!`](crate::broker_suite).
///
/// Every case starts one of its own. Whatever cannot be done keeps its default, and the cases that
/// need it are skipped with the reason.
pub trait BrokerHarness: Send + Sync + Sized + 'static {
    /// Why this machine cannot run the cases, such as a server that is not there; then each of them prints it
    /// as its skip. Asked before [`start`](Self::start).
    fn unavailable() -> Option<String> {
        None
    }

    /// A fresh broker that holds nothing and that no other case sees.
    fn start() -> impl Future<Output = Self> + Send;

    /// Another handle for publishing.
    fn broker(&self) -> Arc<dyn Broker>;

    /// The topic to use for a name like `orders`, made if it must exist before it is used.
    fn topic(&self, name: &str) -> Arc<str> {
        Arc::from(name)
    }

    /// Everything the broker durably holds or has held of the topic, in its order, copies included,
    /// as read back from it: not what was sent.
    fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>>;

    /// A new consumer of the topic in the group, from the topic's beginning if the group is new;
    /// `None` if there are no consumers. Two calls give two instances of one group.
    fn subscribe<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Arc<dyn Subscription>>> {
        let _ = (topic, group);
        Box::pin(async { None })
    }

    /// Whether several groups can each receive all of a topic. A queue is one group: whoever consumes it shares it.
    fn has_groups(&self) -> bool {
        true
    }

    /// What consumers of the group refused for good, in order; `None` if the broker keeps none.
    fn dead_letters<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Vec<Arc<Event>>>> {
        let _ = (topic, group);
        Box::pin(async { None })
    }

    /// Stops the broker as a crash would, and starts it again with what it kept; `false` if that
    /// cannot be done. Handles given out before may be dead afterwards.
    fn restart(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async { false })
    }

    /// How long a case waits in real time for what must come: long enough for a server of a busy machine. A broker in this
    /// process needs less, and the cases that fail on a broken one are over sooner.
    fn patience() -> Duration {
        Duration::from_secs(60)
    }

    /// Whether the broker's clock stands still but for [`pass`](Self::pass). If it does not, a case that took so long that a
    /// delivery was its own no more says nothing, and is played again.
    fn has_virtual_clock() -> bool {
        false
    }

    /// Lets time pass on the broker's clock. A virtual clock advances; a real one is waited for.
    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        // waits: a real clock has to pass
        Box::pin(tokio::time::sleep(span))
    }

    /// Makes the broker refuse an event for good, by its id, from now on; `false` if that cannot
    /// be scripted.
    fn refuse(&self, id: EventId) -> bool {
        let _ = id;
        false
    }

    /// Makes the broker store the next batch and lose its answer; `false` if that cannot be
    /// scripted.
    fn lose_next_answer(&self) -> bool {
        false
    }
}
