//! Holds a relay at a named moment, so that it can be taken away exactly there.

use std::sync::Arc;

use postrider_core::BoxFuture;
use postrider_relay::{Observer, Point};
use tokio::sync::Notify;

/// A place where a relay stands still for ever.
pub(crate) struct HoldAt {
    point: Point,
    reached: Arc<Notify>,
}

impl HoldAt {
    /// Stands still at a point, and says when it is reached.
    pub(crate) fn new(point: Point) -> (HoldAt, Arc<Notify>) {
        let reached = Arc::new(Notify::new());
        (HoldAt { point, reached: Arc::clone(&reached) }, reached)
    }
}

impl Observer for HoldAt {
    fn reached(&self, point: Point) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if point == self.point {
                self.reached.notify_one();
                std::future::pending::<()>().await;
            }
        })
    }
}
