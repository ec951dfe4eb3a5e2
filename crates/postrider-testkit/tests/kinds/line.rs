//! Lines for tests: one that only lets others have their turn.

use postrider_core::{BoxFuture, Result};
use postrider_testkit::memory::{Access, Line};

/// Answers, after others had their turn.
#[derive(Debug)]
pub(crate) struct Plain;

impl Line for Plain {
    fn there(&self, _: &'static str, _: Access) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }

    fn back(&self, _: &'static str) -> BoxFuture<'_, Result<()>> {
        self.there("", Access::Read)
    }
}
