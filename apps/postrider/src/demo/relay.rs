//! The demo's relay, in a process of its own: the engine that everybody uses, with a broker that
//! misbehaves as planned, and a place to be killed at.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use postrider_core::BoxFuture;
use postrider_local::LocalBroker;
use postrider_relay::{Ending, Observer, Point, Relay, RelayHandle, Settings, Target};
use postrider_sqlite::SqliteStore;

use crate::demo::child::{asked_to_finish, say};
use crate::demo::flaky::Flaky;
use crate::failure::{Exit, Failure};
use crate::target;

/// The lease of the demo's relays: short, as a crash is what is shown.
const LEASE: Duration = Duration::from_secs(2);

/// How long an acknowledgement stays unsaved: short, so that each relay gets something done before it
/// is killed. Relays that die again and again without progress suspect the events they read, and
/// try them one by one, which is another story.
const SAVE_AFTER: Duration = Duration::from_millis(50);

/// The destination's name.
const DESTINATION: &str = "queue";

/// What the parent asks of its relay.
#[derive(Args, Debug)]
pub(crate) struct DemoRelayArgs {
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    queue: PathBuf,
    /// The point at which it waits to be killed.
    #[arg(long, requires = "nth")]
    hang: Option<Point>,
    /// The how manieth time the point is reached, after progress was saved once.
    #[arg(long)]
    nth: Option<u64>,
    #[arg(long)]
    lose: Option<u64>,
    #[arg(long)]
    double: Option<u64>,
    /// The order whose payment is refused.
    #[arg(long)]
    refuse: Option<String>,
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(args: DemoRelayArgs) -> Result<Exit, Failure> {
    let source = Arc::new(SqliteStore::new(&args.store)?);
    let paid = crate::demo::plan::Step::Paid.event_type();
    let broker = Flaky {
        inner: Arc::new(LocalBroker::open(&args.queue)?),
        lose: args.lose,
        double: args.double,
        refuse: args.refuse.map(|order| (order, paid.to_owned())),
        batches: AtomicU64::new(0),
    };
    let settings = Settings {
        save_after: SAVE_AFTER,
        stall: Duration::from_secs(10),
        ..Settings::with_lease(LEASE)
    };
    let mut relay = Relay::builder(source)
        .destination(target::definition(DESTINATION)?, Arc::new(broker))
        .settings(settings)
        .target(if args.once { Target::Once } else { Target::Forever });
    if let (Some(point), Some(nth)) = (args.hang, args.nth) {
        relay = relay.observer(Arc::new(Hang::new(point, nth)));
    } else if args.once {
        relay = relay.observer(Arc::new(Tell));
    }
    let handle = relay.start().await?;
    say("ready");
    finish(handle).await
}

/// Runs until the target is reached or the parent asks to stop.
async fn finish(handle: RelayHandle) -> Result<Exit, Failure> {
    let mut health = handle.health();
    tokio::select! {
        // Ends with the relay.
        () = async { while health.changed().await.is_ok() {} } => {}
        () = asked_to_finish() => handle.drain(),
    }
    let report = handle.stopped().await;
    Ok(match report.ending {
        Some(Ending::Drained) => Exit::Success,
        Some(Ending::Done) if report.waiting.values().all(|counts| counts.total() == 0) => {
            Exit::Success
        }
        Some(Ending::Done) => Exit::Remaining,
        ending => {
            return Err(Failure::plain(format!(
                "the demo's relay ended as {ending:?}: {:?}",
                report.health.blockers
            )));
        }
    })
}

/// Holds the relay at a point, for ever, counted from its first saved progress.
struct Hang {
    point: Point,
    nth: u64,
    published: AtomicBool,
    /// Whether what is being saved was begun after that.
    begun: AtomicBool,
    saved: AtomicBool,
    reached: AtomicU64,
}

impl Hang {
    fn new(point: Point, nth: u64) -> Hang {
        let [published, begun, saved] = [false; 3].map(AtomicBool::new);
        Hang { point, nth, published, begun, saved, reached: AtomicU64::new(0) }
    }

    /// Whether this is the moment.
    fn is_it(&self, point: Point) -> bool {
        // What is saved before anything was sent moves no cursor, and is no progress to those who count deaths.
        let (published, begun) = (&self.published, &self.begun);
        match point {
            Point::AfterPublish => published.store(true, Ordering::Relaxed),
            Point::BeforeSettle => {
                begun.store(published.load(Ordering::Relaxed), Ordering::Relaxed)
            }
            Point::AfterSettle => {
                _ = self.saved.fetch_or(begun.load(Ordering::Relaxed), Ordering::Relaxed)
            }
            _ => {}
        }
        point == self.point
            && self.saved.load(Ordering::Relaxed)
            && 1 + self.reached.fetch_add(1, Ordering::Relaxed) == self.nth
    }
}

impl Observer for Hang {
    fn reached(&self, point: Point) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if self.is_it(point) {
                say("held");
                std::future::pending::<()>().await;
            }
        })
    }
}

/// Says that it gets on, so that a slow machine is not taken for a relay that hangs.
struct Tell;

impl Observer for Tell {
    fn reached(&self, point: Point) -> BoxFuture<'_, ()> {
        if point == Point::AfterSettle {
            say("saved");
        }
        Box::pin(std::future::ready(()))
    }
}
