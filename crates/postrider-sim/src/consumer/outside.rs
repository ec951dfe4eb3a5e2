//! A handler whose effects are outside the database: the real `Leased`, with two steps at a service.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{BoxFuture, Clock, Event, HandlerName, InboxStore, Result, clock};
use postrider_inbox::{Context, Heartbeat, Leased, LeasedHandler, Outcome};

use super::engine::throw;
use super::mood::{Mood, Moods};
use super::service::Service;
use super::shop::{STEPS, Shop};
use super::watched::Watched;
use super::{LEASE, Worker};
use crate::weather::Weather;

/// What a leased handler works with. Clones are the same handler.
#[derive(Clone)]
pub(super) struct Outside(Arc<Tools>);

pub(super) struct Tools {
    pub(super) worker: Worker,
    pub(super) shop: Arc<Shop>,
    pub(super) weather: Arc<Weather>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) moods: Moods,
    pub(super) service: Service,
}

impl Outside {
    /// The receiver of a leased consumer.
    pub(super) fn receiver(
        tools: Tools,
        name: HandlerName,
        store: Arc<dyn InboxStore>,
    ) -> Result<Leased> {
        let (worker, shop) = (tools.worker.clone(), Arc::clone(&tools.shop));
        let clock = Arc::clone(&tools.clock);
        let store = Arc::new(Watched { store, worker, shop });
        Leased::builder(name, store, Outside(Arc::new(tools)))
            .lease(LEASE)
            .heartbeat(Heartbeat::Within)
            .deliveries_max(super::options().deliveries_max)
            .clock(clock)
            .build()
    }

    async fn work(self, event: Arc<Event>, context: Context) -> Result<Outcome> {
        let tools = &*self.0;
        let (mood, span) = tools.moods.next(&event, &tools.weather, LEASE);
        let half_way = tools.moods.coin();
        if !self.think(&context, mood, span).await {
            return Ok(Outcome::retry("told to stop"));
        }
        if half_way {
            self.step(&context, STEPS[0]).await?;
        }
        match mood {
            Mood::Good | Mood::Slow | Mood::Deaf => {}
            Mood::Fails => return Ok(Outcome::retry("the handler failed")),
            Mood::Panics => throw("the handler panicked"),
            Mood::Hangs => std::future::pending().await,
            Mood::Refuses => return Ok(Outcome::Reject("never".to_owned())),
        }
        if !half_way {
            self.step(&context, STEPS[0]).await?;
        }
        if !self.think(&context, mood, span).await {
            return Ok(Outcome::retry("told to stop"));
        }
        let receipt = self.step(&context, STEPS[1]).await?;
        Ok(Outcome::Ack(receipt))
    }

    /// Works for a while; false if it was told to stop, and listened.
    async fn think(&self, context: &Context, mood: Mood, span: Duration) -> bool {
        const SLICE: Duration = Duration::from_millis(900);
        let tools = &*self.0;
        let mut left = span;
        while !left.is_zero() {
            if mood == Mood::Deaf {
                tools.clock.sleep(left).await;
                return true;
            }
            let slice = left.min(SLICE);
            let told = clock::within(&*tools.clock, slice, context.cancelled()).await;
            if told.is_some() || context.is_cancelled() {
                return false;
            }
            tools.shop.goes_on(&tools.worker, context.lease());
            left = left.saturating_sub(slice);
        }
        true
    }

    async fn step(&self, context: &Context, step: &'static str) -> Result<bytes::Bytes> {
        let tools = &*self.0;
        let lease = context.lease();
        let effect = |idempotency| {
            tools.shop.step_begins(&tools.worker, lease, step);
            tools.service.call(lease.key.clone(), step, idempotency)
        };
        context.step(step, effect).await
    }
}

impl LeasedHandler for Outside {
    fn act(&self, event: Arc<Event>, context: Context) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(self.clone().work(event, context))
    }
}
