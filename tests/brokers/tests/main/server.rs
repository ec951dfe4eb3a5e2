//! What the tests ask of a real server, whatever kind it is: to be killed, and to say what it holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{Broker, EventId};

use crate::stage::PATIENCE;

/// A server of the test's own, with the topic `orders`.
pub(crate) trait Server: Sized {
    /// Its name, for figures.
    const NAME: &'static str;

    /// Whether its client can be had with a wall clock of `faketime` that is wrong: it must use no wait of the C library's that
    /// is for moments of the real one.
    const WRONG_CLOCKS_ARE_BORNE: bool;

    /// Starts one; `None`, with the reason printed, where there is no program.
    async fn start() -> Option<Self>;

    /// Where relays and consumers find it.
    fn url(&self) -> String;

    /// Our broker at its address.
    fn broker(&self) -> Arc<dyn Broker>;

    /// Lets its topic take messages of at most so many bytes.
    async fn limit(&self, bytes: u32);

    /// Kills it, and starts it on what it kept.
    async fn crash(&mut self);

    /// Sends its process a signal by its name.
    fn signal(&self, name: &str);

    /// How many are there, copies included; none while it is away.
    async fn count(&self) -> u64;

    /// What arrived, copies included, each key in the order of its topic.
    async fn arrived(&self) -> Vec<EventId>;

    /// Puts copies of the first into the topic, as a relay does that does not know what became of them.
    async fn copy(&self, count: usize);

    /// Whether the group `ledger` has settled everything.
    async fn is_settled(&self) -> bool;

    /// What the group has settled, and who is in it: for the message of a test that waited in vain.
    async fn standing(&self) -> String;

    /// Waits until so many are there, copies included.
    async fn holds(&self, least: u64) {
        let begun = Instant::now();
        while self.count().await < least {
            assert!(begun.elapsed() < PATIENCE, "{} of {least} arrive", self.count().await);
            // waits: the server tells nobody what it stores
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
