//! Postrider's simulator: the real engines on simulated time, stores, brokers, network, scheduler.

pub mod agenda;
pub mod app;
pub mod attempt;
pub mod broker;
pub mod clock;
pub mod connection;
pub mod consumer;
pub mod coverage;
pub mod customers;
pub mod dice;
pub mod exec;
pub mod fixture;
mod full;
mod heard;
pub mod incident;
pub mod judge;
pub mod line;
pub mod mailbox;
pub mod many;
pub mod operator;
pub mod outcome;
pub mod owed;
pub mod planted;
pub mod relay;
pub mod scenario;
pub mod shared;
pub mod shrink;
pub mod story;
mod strike;
pub mod table;
mod telling;
pub mod total;
pub mod weather;
pub mod world;

/// The result of a future that is ready at once, as those of the memory store without a line are.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}
