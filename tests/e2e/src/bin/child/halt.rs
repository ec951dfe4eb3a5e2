//! The place at which a child waits to be killed: `--halt POINT:N` for ever, `--hold POINT:N` until
//! the parent says go; from then on each point is said as `passed POINT`.
//!
//! Invariant: `reached POINT` is said once, and nothing of that task happens after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use postrider_core::{BoxFuture, Result};
use postrider_relay::{Observer, Point};

use crate::args::{Args, config};
use crate::asked::Asked;
use crate::words::say;

/// Where to stand still, if anywhere.
pub(crate) struct Halt {
    place: Option<(String, u64)>,
    until_go: bool,
    seen: AtomicU64,
    released: AtomicBool,
    asked: Asked,
}

impl Halt {
    pub(crate) fn from_args(args: &Args, asked: &Asked) -> Result<Arc<Halt>> {
        let until_go = args.text("hold").is_some();
        let place = match args.text("hold").or_else(|| args.text("halt")) {
            None => None,
            Some(text) => {
                let wrong = || config(format!("a halt is POINT:N, not {text}"));
                let (point, nth) = text.split_once(':').ok_or_else(wrong)?;
                Some((point.to_owned(), nth.parse().map_err(|_| wrong())?))
            }
        };
        Ok(Arc::new(Halt {
            place,
            until_go,
            seen: AtomicU64::new(0),
            released: AtomicBool::new(false),
            asked: asked.clone(),
        }))
    }

    fn strikes(&self, point: &str) -> bool {
        let Some((place, nth)) = &self.place else {
            return false;
        };
        place == point && 1 + self.seen.fetch_add(1, Ordering::SeqCst) == *nth
    }

    /// Stands still here, if this is the place.
    pub(crate) async fn at(&self, point: &str) {
        if self.strikes(point) {
            say(&format!("reached {point}"));
            match self.until_go {
                true => self.asked.released().await,
                false => std::future::pending().await,
            }
            self.released.store(true, Ordering::SeqCst);
        } else if self.released.load(Ordering::SeqCst) {
            say(&format!("passed {point}"));
        }
    }

    /// The same on a thread that may block; never goes on.
    pub(crate) fn block_at(&self, point: &str) {
        if self.strikes(point) {
            say(&format!("reached {point}"));
            loop {
                std::thread::park();
            }
        }
    }
}

/// A relay stands still at the points of its engine.
pub(crate) struct AtPoints(pub(crate) Arc<Halt>);

impl Observer for AtPoints {
    fn reached(&self, point: Point) -> BoxFuture<'_, ()> {
        Box::pin(self.0.at(point.as_str()))
    }
}
