//! A service outside: it honours idempotency keys, takes its time, and loses answers.
//!
//! What it was asked for it does, also when whoever asked has died or has lost its claim.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use postrider_core::{BoxFuture, Error, ErrorKind, InboxKey, Result};

use super::shop::Shop;
use crate::dice::Dice;
use crate::exec::{Kernel, ProcessNo};
use crate::mailbox::Mailbox;
use crate::weather::Weather;

/// A worker's way to the service.
pub(super) struct Service {
    pub(super) kernel: Arc<Kernel>,
    pub(super) weather: Arc<Weather>,
    pub(super) shop: Arc<Shop>,
    /// The process whose tasks carry what is on its way.
    pub(super) network: ProcessNo,
    pub(super) dice: Mutex<Dice>,
}

impl Service {
    /// Asks for an effect, under an idempotency key.
    pub(super) fn call(
        &self,
        key: InboxKey,
        step: &'static str,
        idempotency: String,
    ) -> BoxFuture<'static, Result<Bytes>> {
        let (there, back, lost_there, lost_back) = {
            let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
            let weather = &self.weather;
            let slow = weather.strikes(&mut dice, "service_slow", |rates| rates.handler_fails);
            let most = if slow { 12_000_000 } else { 300_000 };
            (
                Duration::from_micros(dice.between(500, most)),
                Duration::from_micros(dice.between(500, most)),
                weather.strikes(&mut dice, "service_lost_there", |rates| rates.handler_fails),
                weather.strikes(&mut dice, "service_lost_back", |rates| rates.handler_fails),
            )
        };
        let (kernel, shop) = (Arc::clone(&self.kernel), Arc::clone(&self.shop));
        let answers = Mailbox::default();
        let answer = answers.clone();
        self.kernel.spawn(self.network, async move {
            kernel.sleep(there).await;
            if lost_there {
                answers.put(Err(gone()));
                return;
            }
            shop.effect(&key, step, &idempotency);
            kernel.sleep(back).await;
            let receipt = Bytes::from(format!("receipt of {idempotency}"));
            answers.put(if lost_back { Err(gone()) } else { Ok(receipt) });
        });
        Box::pin(std::future::poll_fn(move |context| answer.poll(context)))
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Unavailable, "call").message("the service did not answer")
}
