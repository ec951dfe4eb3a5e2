//! A worker's view of the inbox's store, with a witness: what it asked for and what it was told.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, HandlerName, InboxStore, Result, Tried,
};

use super::Worker;
use super::shop::Shop;

/// A store whose answers are noted.
pub(super) struct Watched {
    pub(super) store: Arc<dyn InboxStore>,
    pub(super) worker: Worker,
    pub(super) shop: Arc<Shop>,
}

impl InboxStore for Watched {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move {
            let sent = self.shop.kernel.now();
            let claim = self.store.claim(request).await?;
            match &claim {
                Claim::Claimed(lease) => {
                    self.shop.granted(&self.worker, lease, sent, request.duration);
                }
                Claim::Processed { .. } => self.shop.was_done(&request.key),
                Claim::Leased { .. } | Claim::Mismatch => {}
            }
            Ok(claim)
        })
    }

    fn heartbeat<'a>(
        &'a self,
        lease: &'a ClaimLease,
        duration: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let sent = self.shop.kernel.now();
            self.store.heartbeat(lease, duration).await?;
            self.shop.prolonged(lease, sent, duration);
            Ok(())
        })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a ClaimLease,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.store.complete(lease, result).await?;
            self.shop.completed(&self.worker, lease);
            Ok(())
        })
    }

    fn release<'a>(&'a self, lease: &'a ClaimLease, tried: Tried) -> BoxFuture<'a, Result<()>> {
        self.shop.releasing(lease);
        self.store.release(lease, tried)
    }

    fn step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
    ) -> BoxFuture<'a, Result<Option<Bytes>>> {
        self.store.step(lease, step)
    }

    fn complete_step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.shop.step_recording(&self.worker, lease, step);
            self.store.complete_step(lease, step, result).await?;
            self.shop.step_recorded(lease, step);
            Ok(())
        })
    }

    fn record_horizon<'a>(
        &'a self,
        handler: &'a HandlerName,
        horizon: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        self.store.record_horizon(handler, horizon)
    }

    fn purge(&self, older_than: Duration, rows_max: u32) -> BoxFuture<'_, Result<u64>> {
        self.store.purge(older_than, rows_max)
    }
}
