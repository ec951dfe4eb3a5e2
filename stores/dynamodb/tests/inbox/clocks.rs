//! Leases without a server's clock: what is watched, what is believed, and workers whose clocks are wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider_core::{BoxFuture, Claim, Clock, ErrorKind, InboxStore as _, Tick, Timestamp};
use postrider_dynamodb::{Inbox, InboxOptions};

use super::{billing, claim, claimed, event};
use crate::fresh::Fresh;

const LEASE: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);

/// A worker's clocks: a wall clock that is wrong by some minutes, and a time that the test advances.
struct Clocks {
    wrong_by_minutes: i64,
    passed_ms: AtomicU64,
}

impl Clocks {
    fn wrong_by(minutes: i64) -> Arc<Clocks> {
        Arc::new(Clocks { wrong_by_minutes: minutes, passed_ms: AtomicU64::new(0) })
    }

    fn pass(&self, span: Duration) {
        let span = u64::try_from(span.as_millis()).unwrap();
        self.passed_ms.fetch_add(span, Ordering::Relaxed);
    }

    fn passed(&self) -> Duration {
        Duration::from_millis(self.passed_ms.load(Ordering::Relaxed))
    }
}

impl Clock for Clocks {
    fn tick(&self) -> Tick {
        Tick::default() + self.passed()
    }

    fn now(&self) -> Timestamp {
        // Some moment in 2026 that all of them mean.
        const TRUE_MICROS: i64 = 1_790_000_000_000_000;
        let passed = i64::try_from(self.passed().as_micros()).unwrap();
        Timestamp::from_micros(TRUE_MICROS + self.wrong_by_minutes * 60_000_000 + passed)
    }

    fn sleep(&self, span: Duration) -> BoxFuture<'static, ()> {
        // waits: for whoever asked this clock to
        Box::pin(tokio::time::sleep(span))
    }
}

fn worker(fresh: &Fresh, clocks: &Arc<Clocks>, skew_max: Option<Duration>) -> Inbox {
    let mut options = InboxOptions::default();
    options.skew_max = skew_max;
    let clock = Arc::clone(clocks) as Arc<dyn Clock>;
    Inbox::with_clock(fresh.connection.clone(), options, clock).unwrap()
}

fn is_leased(claim: &Claim) -> bool {
    matches!(claim, Claim::Leased { .. })
}

/// R115, R076, R083: whatever their wall clocks say, a lease is taken over when somebody has watched it for
/// its whole duration, and not before.
#[tokio::test]
async fn a_wrong_clock_takes_nothing_over_early() {
    for (owner, other) in [(-10, 0), (10, 0), (0, -10), (0, 10), (-10, 10), (10, -10)] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let clocks = [Clocks::wrong_by(owner), Clocks::wrong_by(other)];
        let [owner, other] = [0, 1].map(|n| worker(&fresh, &clocks[n], None));
        let lease = claimed(&owner, &event(1), LEASE).await;
        assert!(is_leased(&claim(&other, &event(1), LEASE).await), "seen for the first time");
        clocks[1].pass(LEASE - Duration::from_millis(1));
        match claim(&other, &event(1), LEASE).await {
            Claim::Leased { remaining } => assert_eq!(remaining, Duration::from_millis(1)),
            early => panic!("a lease that runs was taken over: {early:?}"),
        }
        // A sign of life begins it anew.
        owner.heartbeat(&lease, LEASE).await.expect("its lease runs");
        clocks[1].pass(Duration::from_millis(1));
        assert!(is_leased(&claim(&other, &event(1), LEASE).await), "it lives");
        clocks[1].pass(LEASE);
        let taken = claimed(&other, &event(1), LEASE).await;
        assert!(taken.token > lease.token);
        let late = owner.complete(&lease, b"late").await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Fenced);
    }
}

/// R078, R083: of many who have watched the same lease to its end, one takes it over.
#[tokio::test]
async fn of_many_who_watched_one_takes_over() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let clocks = Clocks::wrong_by(0);
    claimed(&worker(&fresh, &clocks, None), &event(1), LEASE).await;
    let others: Vec<Inbox> = (0..16).map(|_| worker(&fresh, &clocks, None)).collect();
    for other in &others {
        assert!(is_leased(&claim(other, &event(1), LEASE).await));
    }
    clocks.pass(LEASE);
    let race = others.iter().map(|other| async { claim(other, &event(1), LEASE).await });
    let claims = futures_util::future::join_all(race).await;
    let won = claims.iter().filter(|claim| matches!(claim, Claim::Claimed(_))).count();
    assert_eq!(won, 1, "{claims:?}");
    assert!(claims.iter().all(|claim| is_leased(claim) || matches!(claim, Claim::Claimed(_))));
}

/// A worker that lives too short to watch waits for ever, unless it may believe clocks.
#[tokio::test]
async fn who_never_watched_takes_over_only_by_the_wall_clock() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let clocks = Clocks::wrong_by(0);
    claimed(&worker(&fresh, &clocks, None), &event(1), LEASE).await;
    clocks.pass(LEASE + 15 * MINUTE - Duration::from_secs(1));
    let short_lived = || worker(&fresh, &clocks, Some(15 * MINUTE));
    assert!(is_leased(&claim(&worker(&fresh, &clocks, None), &event(1), LEASE).await));
    assert!(is_leased(&claim(&short_lived(), &event(1), LEASE).await), "within the skew");
    clocks.pass(Duration::from_secs(2));
    assert!(is_leased(&claim(&worker(&fresh, &clocks, None), &event(1), LEASE).await));
    claimed(&short_lived(), &event(1), LEASE).await;
}

/// R115: clocks that differ by no more than the option says take nothing over early.
#[tokio::test]
async fn clocks_within_the_skew_take_nothing_over_early() {
    for (owner, other) in [(-10, 0), (0, 10), (-10, 10)] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let clocks = [Clocks::wrong_by(owner), Clocks::wrong_by(other)];
        let [owner, other] = [0, 1].map(|n| worker(&fresh, &clocks[n], Some(21 * MINUTE)));
        claimed(&owner, &event(1), LEASE).await;
        clocks[1].pass(LEASE - Duration::from_millis(1));
        assert!(is_leased(&claim(&other, &event(1), LEASE).await));
    }
}

/// The negative control: an option that promises more than the clocks keep is seen to take a lease over
/// while it runs. So the test above can fail, and the option's warning is true.
#[tokio::test]
async fn clocks_beyond_the_skew_take_over_early() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let clocks = [Clocks::wrong_by(-10), Clocks::wrong_by(0)];
    let [owner, other] = [0, 1].map(|n| worker(&fresh, &clocks[n], Some(MINUTE)));
    let lease = claimed(&owner, &event(1), LEASE).await;
    claimed(&other, &event(1), LEASE).await;
    // What it can no longer do is record it.
    let late = owner.complete(&lease, b"late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Fenced);
}

/// INV-4: who stood still until the row of its claim had expired is refused, as after every other claim.
#[tokio::test]
async fn a_claim_of_before_a_row_expired_is_refused() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let clocks = Clocks::wrong_by(0);
    let [stood_still, other] = [0, 1].map(|_| worker(&fresh, &clocks, None));
    let lease = claimed(&stood_still, &event(1), LEASE).await;
    assert!(is_leased(&claim(&other, &event(1), LEASE).await));
    clocks.pass(LEASE);
    let done = claimed(&other, &event(1), LEASE).await;
    other.complete(&done, b"paid").await.unwrap();
    clocks.pass(36 * 24 * 60 * MINUTE);
    other.record_horizon(&billing(), Duration::ZERO).await.unwrap();
    // The next claim shows that it is gone. It goes uncounted where an answer was lost and the deletion was sent again.
    assert!(other.purge(Duration::ZERO, 10).await.unwrap() <= 1);
    let at_work = claimed(&other, &event(1), LEASE).await;
    for (name, late) in [("the first", &lease), ("the second", &done)] {
        let refused = stood_still.complete(late, b"paid").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{name}: {refused}");
    }
    other.heartbeat(&at_work, LEASE).await.expect("the claim of now stands");
}
