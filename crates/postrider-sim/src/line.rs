//! A process's connection to the server of the store: it takes time, loses questions and answers, and
//! breaks when the server goes away.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::{BoxFuture, Error, ErrorKind, Result, Tick};
use postrider_testkit::memory::{Access, Line};

use crate::dice::Dice;
use crate::exec::Kernel;
use crate::weather::Weather;

/// Whether the server answers, and how often it went away.
#[derive(Debug, Default)]
pub struct Server {
    down: AtomicBool,
    /// Grows with each restart: what was under way then is lost.
    lives: AtomicU64,
}

impl Server {
    /// Stops answering. What is under way is lost.
    pub fn stop(&self) {
        self.down.store(true, Ordering::Relaxed);
        self.lives.fetch_add(1, Ordering::Relaxed);
    }

    /// Answers again.
    pub fn start(&self) {
        self.down.store(false, Ordering::Relaxed);
    }

    /// Whether it does not answer.
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }
}

/// One process's connection.
#[derive(Debug)]
pub struct SimLine {
    kernel: Arc<Kernel>,
    weather: Arc<Weather>,
    server: Arc<Server>,
    /// The network between this process and the server is cut until then.
    cut_until: Arc<AtomicU64>,
    /// How long a connection hangs that nobody closes.
    silence: Duration,
    dice: Mutex<Dice>,
}

impl SimLine {
    /// A connection of a process. Who holds `cut_until` can cut it, in nanoseconds of the world's time.
    pub fn new(
        kernel: Arc<Kernel>,
        weather: Arc<Weather>,
        server: Arc<Server>,
        cut_until: Arc<AtomicU64>,
        silence: Duration,
        dice: Dice,
    ) -> SimLine {
        SimLine { kernel, weather, server, cut_until, silence, dice: Mutex::new(dice) }
    }

    fn draw<T>(&self, from: impl FnOnce(&mut Dice) -> T) -> T {
        from(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn latency(&self, statement: &'static str) -> Duration {
        self.draw(|dice| {
            // A heartbeat is where slowness hurts: its answer may come when the lease is over.
            if statement == "renew"
                && self.weather.strikes(dice, "renew_slow", |rates| 6 * rates.line_slow)
            {
                Duration::from_millis(dice.between(3_000, 13_000))
            } else if self.weather.strikes(dice, "line_slow", |rates| rates.line_slow) {
                Duration::from_millis(dice.between(10, 8_000))
            } else {
                Duration::from_micros(dice.between(100, 1_500))
            }
        })
    }

    /// An error at once, or nothing at all for a long time: both happen when a connection is lost.
    async fn lose(&self, statement: &'static str) -> Error {
        if self.draw(|dice| dice.chance(2_000)) {
            self.kernel.sleep(self.silence).await;
        }
        Error::new(ErrorKind::Unavailable, statement).message("the connection was lost")
    }

    async fn cut(&self, statement: &'static str) -> Result<()> {
        if self.kernel.now() < Tick(self.cut_until.load(Ordering::Relaxed)) {
            self.weather.count("network_cut_felt");
            return Err(self.lose(statement).await);
        }
        Ok(())
    }
}

impl Line for SimLine {
    fn there(&self, statement: &'static str, _access: Access) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.kernel.sleep(self.latency(statement)).await;
            self.cut(statement).await?;
            let lost = |dice: &mut Dice| {
                statement == "settle"
                    && self.weather.strikes(dice, "settle_lost", |rates| rates.settle_lost)
                    || self.weather.strikes(dice, "line_lost_there", |rates| rates.line_lost_there)
            };
            if self.draw(lost) {
                return Err(self.lose(statement).await);
            }
            if self.server.is_down() {
                return Err(Error::new(ErrorKind::Unavailable, statement)
                    .message("the server refuses the connection"));
            }
            Ok(())
        })
    }

    fn back(&self, statement: &'static str) -> BoxFuture<'_, Result<()>> {
        let lives = self.server.lives.load(Ordering::Relaxed);
        Box::pin(async move {
            self.kernel.sleep(self.latency(statement)).await;
            self.cut(statement).await?;
            let lost = |dice: &mut Dice| {
                statement == "settle"
                    && self.weather.strikes(dice, "settle_lost", |rates| rates.settle_lost)
                    || self.weather.strikes(dice, "line_lost_back", |rates| rates.line_lost_back)
            };
            if self.draw(lost) || lives != self.server.lives.load(Ordering::Relaxed) {
                return Err(self.lose(statement).await);
            }
            Ok(())
        })
    }
}
