//! Observers: who is told what a relay does. Points are the named moments of the shell at which a
//! process may die, for tests and demonstrations; notices are for metrics.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use postrider_core::{BoxFuture, Error, ErrorKind};

use crate::notice::Notice;

/// A named moment between two effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Point {
    /// Leases were granted, and the machine does not know yet.
    AfterAcquire,
    /// A page was read, and the machine does not know yet.
    AfterFetch,
    /// A batch is about to be sent.
    BeforePublish,
    /// The broker has answered, and the machine does not know yet.
    AfterPublish,
    /// A settlement is about to be written.
    BeforeSettle,
    /// A settlement is written, and the machine does not know yet.
    AfterSettle,
    /// A renewal is about to be sent.
    BeforeRenew,
    /// Leases are about to be let go.
    BeforeRelease,
    /// Requests were carried out, and the machine does not know yet.
    AfterCarryOut,
    /// An archive has taken what is about to be deleted.
    AfterArchive,
}

impl Point {
    /// Every point.
    pub const ALL: [Point; 10] = [
        Point::AfterAcquire,
        Point::AfterFetch,
        Point::BeforePublish,
        Point::AfterPublish,
        Point::BeforeSettle,
        Point::AfterSettle,
        Point::BeforeRenew,
        Point::BeforeRelease,
        Point::AfterCarryOut,
        Point::AfterArchive,
    ];

    /// The name, as tests and flags spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Point::AfterAcquire => "after_acquire",
            Point::AfterFetch => "after_fetch",
            Point::BeforePublish => "before_publish",
            Point::AfterPublish => "after_publish",
            Point::BeforeSettle => "before_settle",
            Point::AfterSettle => "after_settle",
            Point::BeforeRenew => "before_renew",
            Point::BeforeRelease => "before_release",
            Point::AfterCarryOut => "after_carry_out",
            Point::AfterArchive => "after_archive",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Point {
    type Err = Error;

    fn from_str(text: &str) -> Result<Point, Error> {
        Point::ALL.into_iter().find(|point| point.as_str() == text).ok_or_else(|| {
            let names = Point::ALL.map(Point::as_str);
            let nearest = postrider_core::template::nearest(text, &names);
            Error::new(ErrorKind::Invalid, "read point").message(format!(
                "unknown point `{}`; did you mean `{nearest}`?",
                text.escape_debug()
            ))
        })
    }
}

/// Is told what a relay does. Whoever wants less implements less.
pub trait Observer: Send + Sync {
    /// The relay has reached a point, and goes on when the future resolves: one that never resolves is
    /// a process that can be killed exactly there. By default it goes on at once.
    fn reached(&self, point: Point) -> BoxFuture<'_, ()> {
        let _ = point;
        Box::pin(async {})
    }

    /// Something happened. Called in the relay's own loop: it must not wait. By default it is passed
    /// over.
    fn noted(&self, notice: &Notice) {
        let _ = notice;
    }
}

/// Several observers as one.
#[derive(Clone, Default)]
pub struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    /// None yet.
    pub fn new() -> Observers {
        Observers::default()
    }

    /// Adds one, behind the others.
    #[must_use]
    pub fn and(mut self, observer: Arc<dyn Observer>) -> Observers {
        self.0.push(observer);
        self
    }
}

impl Observer for Observers {
    fn reached(&self, point: Point) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for observer in &self.0 {
                observer.reached(point).await;
            }
        })
    }

    fn noted(&self, notice: &Notice) {
        self.0.iter().for_each(|observer| observer.noted(notice));
    }
}
