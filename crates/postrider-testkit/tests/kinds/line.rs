//! Lines for tests: one that only lets others have their turn, and one that loses what it is told to.

use std::collections::VecDeque;
use std::sync::Mutex;

use postrider_core::{BoxFuture, Error, ErrorKind, Result};
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
/// Which leg of a statement is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leg {
    There,
    Back,
}

/// Loses what it is told to, in that order, and notes every statement.
#[derive(Debug, Default)]
pub(crate) struct Lossy {
    pub(crate) lose: Mutex<VecDeque<(&'static str, Leg)>>,
    pub(crate) seen: Mutex<Vec<(&'static str, Access)>>,
}

impl Lossy {
    fn leg(&self, statement: &'static str, leg: Leg) -> Result<()> {
        let mut lose = self.lose.lock().unwrap();
        if lose.front() == Some(&(statement, leg)) {
            lose.pop_front();
            return Err(Error::new(ErrorKind::Unavailable, statement).message("lost"));
        }
        Ok(())
    }
}

impl Line for Lossy {
    fn there(&self, statement: &'static str, access: Access) -> BoxFuture<'_, Result<()>> {
        self.seen.lock().unwrap().push((statement, access));
        let leg = self.leg(statement, Leg::There);
        Box::pin(async { leg })
    }

    fn back(&self, statement: &'static str) -> BoxFuture<'_, Result<()>> {
        let leg = self.leg(statement, Leg::Back);
        Box::pin(async { leg })
    }
}
