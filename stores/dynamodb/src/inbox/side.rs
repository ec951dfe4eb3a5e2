//! The inbox as one side of the store, for programs that have one handle for everything.
//!
//! Invariant: it is the inbox of the same tables, and one for each handle.

use std::time::Duration;

use bytes::Bytes;
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, HandlerName, InboxStore, Result, Tried,
};

use crate::store::DynamoStore;

impl InboxStore for DynamoStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move { self.own_inbox()?.claim(request).await })
    }

    fn heartbeat<'a>(
        &'a self,
        lease: &'a ClaimLease,
        duration: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.own_inbox()?.heartbeat(lease, duration).await })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a ClaimLease,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.own_inbox()?.complete(lease, result).await })
    }

    fn release<'a>(&'a self, lease: &'a ClaimLease, tried: Tried) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.own_inbox()?.release(lease, tried).await })
    }

    fn step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
    ) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(async move { self.own_inbox()?.step(lease, step).await })
    }

    fn complete_step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.own_inbox()?.complete_step(lease, step, result).await })
    }

    fn record_horizon<'a>(
        &'a self,
        handler: &'a HandlerName,
        horizon: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.own_inbox()?.record_horizon(handler, horizon).await })
    }

    fn purge(&self, older_than: Duration, rows_max: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move { self.own_inbox()?.purge(older_than, rows_max).await })
    }
}
