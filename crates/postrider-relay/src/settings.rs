//! The relay's settings: every time and every bound, each with its default and its reason (INV-6).

use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result, WAITING_MAX, WindowLimits};

use crate::purge::Retention;

/// Times and bounds of one relay. Addresses and definitions are not here.
///
/// ```
/// use std::time::Duration;
/// use postrider_relay::Settings;
/// assert!(Settings::default().check().is_ok());
/// let wrong = Settings { lease: Duration::from_secs(5), ..Settings::default() };
/// assert!(wrong.check().unwrap_err().to_string().contains("shorter than the lease"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How long a partition stays ours without renewal, on the database's clock. Default 15 s: a
    /// crashed relay on another host delays its events so long.
    pub lease: Duration,
    /// How often leases are renewed. Default 3 s: four renewals may fail before publishing stops.
    pub heartbeat: Duration,
    /// How long one publish may take before its outcome counts as unknown. Default 5 s.
    pub publish_deadline: Duration,
    /// Kept between the last possible end of a publish and the end of the lease, for scheduling
    /// delays and clock rates. Default 1 s.
    pub margin: Duration,
    /// How long a call of the store may take before its outcome counts as unknown. Default 60 s:
    /// far longer than any call should take, so that only one that would never end is given up.
    pub store_deadline: Duration,
    /// What is read ahead.
    pub window: WindowLimits,
    /// The shortest time between two polls of an outbox that had no more. Default 25 ms: forty looks a
    /// second while events come, each for all partitions together; at a hundred a second they took twice
    /// as much from producers on the same machine. Who cannot wait so long nudges the relay, or has a
    /// store that wakes it.
    pub poll_min: Duration,
    /// The longest. Default 500 ms: two queries a second when idle; stores that can wake the relay
    /// do not depend on it.
    pub poll_max: Duration,
    /// Whether idle partitions look at the same moments instead of each at its own. Default true: a store
    /// with many partitions answers them in one statement.
    pub in_step: bool,
    /// How long polling stays fast after an application's nudge, which comes before the commit that
    /// it announces. Default 1 s.
    pub nudge: Duration,
    /// How long an acknowledgement may stay unsaved while little happens. Default 1 s: what a crash
    /// redelivers at a low rate.
    pub save_after: Duration,
    /// How often `waiting` is looked at when nothing there is known to be due. Default 5 s.
    pub due_every: Duration,
    /// Events taken out of `waiting` at once. Default 256.
    pub due_rows_max: u32,
    /// So many events of a destination may wait, over all partitions, dead letters included. At the bound nothing new of
    /// it is read until an eighth of them has gone; what its windows hold by then still finds a place. Default
    /// 1,000,000: some gigabytes of a database, and still counted in a tenth of a second (by PostgreSQL in a second, where
    /// vacuum has not come by); and so many that a person was told long ago, at half of them.
    pub waiting_max: u64,
    /// When so many events of one key wait, nothing more of it is copied: what follows is read again when a quarter of them
    /// is left, and meanwhile one [range](postrider_core::range) stands for it. Default 10,000: some megabytes of a
    /// database, and far more than one question for what is due takes out. Where the store keeps no ranges all is copied.
    pub range_after: u32,
    /// How often the store is asked to carry out what operators want. Default 2 s: a person waits so
    /// long, and an idle relay asks one small question every other second. A store that wakes the relay is
    /// asked at once.
    pub carry_every: Duration,
    /// Rows of requests carried out at once. Default 256: no lock is held for long.
    pub carry_rows_max: u32,
    /// What is deleted when it is old. Default nothing: how long history is kept is not for a relay
    /// to guess.
    pub retention: Option<Retention>,
    /// The first pause of an endpoint that failed. Default 100 ms.
    pub pause_min: Duration,
    /// The longest pause between two probes of an endpoint. Default 30 s.
    pub pause_max: Duration,
    /// Failures in a row, nothing acknowledged between, after which an endpoint counts as down.
    /// Default 3.
    pub down_after: u32,
    /// Of so many keys, and so many events, of one type an endpoint may refuse for good with none of the type taken between,
    /// and each of them is to blame itself. With more the type is, and its events wait. Default 20 keys and 81 events, a
    /// hundredth of a window: fewer a person looks through.
    pub held_keys: u32,
    /// See [`held_keys`](Settings::held_keys).
    pub held_rows: u32,
    /// How long a drain waits for what is under way. Default 10 s, as orchestrators allow at least.
    pub drain: Duration,
    /// How long a one-shot run goes on without settling anything. Default 60 s.
    pub stall: Duration,
    /// The seed of the jitter. A relay that is started mixes its own name into it, so that several have jitter of their own.
    pub seed: u64,
}

/// The largest window: so many waiting events ahead of a cursor every store can list.
const WINDOW_ROWS_MAX: u32 = 10_000;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease: Duration::from_secs(15),
            heartbeat: Duration::from_secs(3),
            publish_deadline: Duration::from_secs(5),
            margin: Duration::from_secs(1),
            store_deadline: Duration::from_secs(60),
            window: WindowLimits::default(),
            poll_min: Duration::from_millis(25),
            poll_max: Duration::from_millis(500),
            in_step: true,
            nudge: Duration::from_secs(1),
            save_after: Duration::from_secs(1),
            due_every: Duration::from_secs(5),
            due_rows_max: 256,
            waiting_max: WAITING_MAX,
            range_after: 10_000,
            carry_every: Duration::from_secs(2),
            carry_rows_max: 256,
            retention: None,
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(30),
            down_after: 3,
            held_keys: 20,
            held_rows: 81,
            drain: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            seed: 0,
        }
    }
}

impl Settings {
    /// Settings that fit a shorter lease: the other times keep their proportions.
    ///
    /// ```
    /// use std::time::Duration;
    /// use postrider_relay::Settings;
    /// let settings = Settings::with_lease(Duration::from_secs(2));
    /// assert_eq!(settings.heartbeat, Duration::from_millis(400));
    /// assert!(settings.check().is_ok());
    /// ```
    pub fn with_lease(lease: Duration) -> Settings {
        Settings {
            lease,
            heartbeat: lease / 5,
            publish_deadline: lease / 3,
            margin: lease / 15,
            ..Settings::default()
        }
    }

    /// Checks what must hold between the times and bounds.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the values that contradict each other.
    pub fn check(&self) -> Result<()> {
        let refuse =
            |message: String| Err(Error::new(ErrorKind::Config, "check settings").message(message));
        let needed = self.heartbeat + self.publish_deadline + self.margin;
        if needed >= self.lease {
            return refuse(format!(
                "heartbeat {:?} + publish deadline {:?} + margin {:?} = {needed:?} must be shorter \
                 than the lease of {:?}, else a relay that lost its lease could still publish",
                self.heartbeat, self.publish_deadline, self.margin, self.lease
            ));
        }
        let window = &self.window;
        if window.rows_max == 0 || window.page_rows_max == 0 || window.page_bytes_max == 0 {
            return refuse("windows and pages hold at least one row and one byte".to_owned());
        }
        if window.rows_max > WINDOW_ROWS_MAX {
            return refuse(format!(
                "a window has at most {WINDOW_ROWS_MAX} rows: a store lists no more waiting events \
                 ahead of a cursor"
            ));
        }
        if self.poll_min.is_zero() || self.poll_min > self.poll_max {
            return refuse(format!(
                "poll_min {:?} must be above zero and at most poll_max {:?}",
                self.poll_min, self.poll_max
            ));
        }
        if self.pause_min.is_zero() || self.pause_min > self.pause_max || self.down_after == 0 {
            return refuse("pauses must be above zero, pause_min at most pause_max".to_owned());
        }
        if self.due_rows_max == 0 || self.carry_rows_max == 0 || self.waiting_max == 0 {
            return refuse(
                "due_rows_max, carry_rows_max and waiting_max are at least one".to_owned(),
            );
        }
        if let Some(Retention { older_than, every, rows_max }) = self.retention
            && (older_than.is_zero() || every.is_zero() || rows_max == 0)
        {
            return refuse(
                "a retention's older_than, every and rows_max must be above zero".to_owned(),
            );
        }
        if self.due_every < self.poll_min {
            return refuse(format!(
                "due_every {:?} must be at least poll_min {:?}",
                self.due_every, self.poll_min
            ));
        }
        let times = [self.heartbeat, self.publish_deadline, self.store_deadline, self.carry_every];
        if times.iter().any(Duration::is_zero) {
            return refuse(
                "heartbeat, publish_deadline, store_deadline and carry_every must be above zero"
                    .to_owned(),
            );
        }
        Ok(())
    }
}
