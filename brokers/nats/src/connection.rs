//! The one connection of a broker or a subscription: made when it is first needed, and made again for as
//! long as it is wanted.
//!
//! Invariant: whoever waits for an answer is told the moment the connection that carried the question is
//! gone, and nothing is given to a connection that is down: what the client would queue, it would send
//! whenever it comes back. What a connection that is up does not take is queued, and so is bounded.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ClientError, Event};
use postrider_core::{Error, ErrorKind, Result};
use tokio::sync::{Mutex, OnceCell, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::diagnosis::{Diagnosis, is_vague, judge};
use crate::dialing::Dialing;
use crate::options::{addresses, identified, usable};
use crate::settings::{NatsSettings, wrong};
use crate::silence::Silence;
use crate::standing::{Standing, note};

/// How long a server may take to answer when a connection is made. More than a congested network needs.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How often the server is asked whether it is still there. Without two answers the connection is given up: a server that
/// stands still, and a way that is cut without a word, are left within three times as long for another server. Not
/// more often than the deadline, which says how slow an answer may be.
pub(crate) const PING_MIN: Duration = Duration::from_secs(5);

/// How long a connection is kept over which this user may not hear answers. The client asks for them once a connection,
/// so what is granted later is of no use to an old one. Not shorter, because each one costs the server a connection, for
/// as long as nothing is granted.
const DEAF_MAX: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Connection {
    settings: Arc<NatsSettings>,
    made: OnceCell<(Client, Context)>,
    standing: watch::Sender<Standing>,
    /// Held by who looks whether more is taken by now.
    pub(crate) looking: Mutex<()>,
    pub(crate) silence: Silence,
}

/// A connection that stood when it was asked for.
#[derive(Clone)]
pub(crate) struct Up {
    pub(crate) client: Client,
    pub(crate) jetstream: Context,
    /// What the subjects begin with at which JetStream is asked.
    pub(crate) api: Arc<str>,
    pub(crate) line: Line,
}

/// Whether this very connection still stands.
#[derive(Clone)]
pub(crate) struct Line {
    epoch: u64,
    standing: watch::Receiver<Standing>,
}

/// Why something was not given to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// It is gone.
    Lost,
    /// It did not take it in time.
    Late,
}

impl Unsent {
    pub(crate) fn kind(self) -> ErrorKind {
        match self {
            Unsent::Lost => ErrorKind::Unavailable,
            Unsent::Late => ErrorKind::Timeout,
        }
    }

    pub(crate) fn what(self) -> &'static str {
        match self {
            Unsent::Lost => "the connection to NATS was lost",
            Unsent::Late => "the connection to NATS took nothing more in time",
        }
    }
}

/// Why no answer will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// The connection is gone.
    Lost,
    /// This user may not publish to the subject.
    Refused,
    /// This user may not listen to answers.
    Deaf,
}

impl Line {
    /// Returns when this connection is gone.
    async fn lost(&mut self) {
        let epoch = self.epoch;
        // The sender lives as long as the connection's owner; without one it is gone as well.
        let _ = self.standing.wait_for(|now| now.is_gone(epoch)).await;
    }

    /// Gives something to the connection, while it stands and until then. What the client has no room for waits here,
    /// where it can be taken back.
    pub(crate) async fn give<T>(
        &mut self,
        giving: impl Future<Output = T>,
        until: Instant,
    ) -> std::result::Result<T, Unsent> {
        if self.standing.borrow().is_gone(self.epoch) {
            return Err(Unsent::Lost);
        }
        tokio::select! {
            biased;
            given = giving => Ok(given),
            () = self.lost() => Err(Unsent::Lost),
            // waits: until nobody waits for the event any more
            () = sleep_until(until) => Err(Unsent::Late),
        }
    }
}

impl Up {
    /// Which of the connections that were made it is.
    pub(crate) fn epoch(&self) -> u64 {
        self.line.epoch
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.line.standing.borrow().is_gone(self.line.epoch)
    }

    /// Returns when this connection is gone.
    pub(crate) async fn lost(&mut self) {
        self.line.lost().await;
    }

    /// Returns when no answer will come to what was sent to a subject since then.
    pub(crate) async fn hindered(&mut self, subject: &str, since: Instant) -> Hindrance {
        let epoch = self.line.epoch;
        let found = self.line.standing.wait_for(|now| {
            now.is_gone(epoch) || now.denied.is_deaf() || now.denied.is_refused(subject, since)
        });
        match found.await {
            Ok(now) if now.is_gone(epoch) => Hindrance::Lost,
            Ok(now) if now.denied.is_refused(subject, since) => Hindrance::Refused,
            Ok(_) => Hindrance::Deaf,
            Err(_) => Hindrance::Lost,
        }
    }

    /// Returns when it is known of each subject whether the server refused it since then, or passes it as before; or
    /// when it has had its time to be.
    pub(crate) async fn heed(&mut self, subjects: &BTreeSet<&str>, since: Instant, until: Instant) {
        let known = self.line.standing.wait_for(|now| {
            let known = |it: &&str| now.denied.is_passed(it) || now.denied.is_refused(it, since);
            subjects.iter().all(known)
        });
        // Silence says that it is passed.
        let _ = timeout_at(until, known).await;
    }

    /// Whether the server has said since then that this user may not publish to a subject.
    pub(crate) fn is_refused(&self, subject: &str, since: Instant) -> bool {
        self.line.standing.borrow().denied.is_refused(subject, since)
    }
}

impl Connection {
    pub(crate) fn new(settings: NatsSettings) -> Result<Connection> {
        settings.check()?;
        usable(&settings)?;
        Ok(Connection {
            settings: Arc::new(settings),
            made: OnceCell::new(),
            standing: watch::Sender::new(Standing::default()),
            looking: Mutex::default(),
            silence: Silence::default(),
        })
    }

    pub(crate) fn settings(&self) -> &NatsSettings {
        &self.settings
    }

    /// The connection, as soon as it is up.
    ///
    /// # Errors
    /// `Unavailable` or `Unauthorized` if it is not in time; nothing was sent. `Config` if it cannot ever be.
    pub(crate) async fn up(&self, until: Instant) -> Result<Up> {
        let (client, jetstream) = self.made.get_or_try_init(|| self.make()).await?;
        let left = match self.leave_deaf(client, until).await {
            None => self.leave_silent(client, until).await,
            left => left,
        };
        let mut standing = self.standing.subscribe();
        let usable = standing.wait_for(|now| now.up && Some(now.epoch) != left);
        let epoch = match timeout_at(until, usable).await {
            Ok(Ok(now)) => now.epoch,
            _ => self.stands_unheard(client).ok_or_else(|| self.unreachable())?,
        };
        let (client, jetstream) = (client.clone(), jetstream.clone());
        let api = self.settings.api().into();
        Ok(Up { client, jetstream, api, line: Line { epoch, standing } })
    }

    /// Which one it is that stands.
    pub(crate) fn standing(&self) -> Option<u64> {
        let standing = self.standing.borrow();
        standing.up.then_some(standing.epoch)
    }

    /// Which one it is that stands, and of which we were not told: the client says so once, and drops what it says where too much
    /// is said at once.
    fn stands_unheard(&self, client: &Client) -> Option<u64> {
        let mut epoch = None;
        self.standing.send_if_modified(|now| {
            let unheard = !now.up && !now.closed && client.connection_state() == State::Connected;
            if unheard {
                note(now, &Event::Connected);
                epoch = Some(now.epoch);
            }
            unheard
        });
        epoch
    }

    /// Has a connection made anew over which no answer has been heard for long, and says which one that was.
    async fn leave_deaf(&self, client: &Client, until: Instant) -> Option<u64> {
        let mut left = None;
        self.standing.send_if_modified(|now| {
            let long = now.since.is_some_and(|since| since.elapsed() >= DEAF_MAX);
            if now.up && now.denied.is_deaf() && long {
                // Others do not say so as well.
                now.since = Some(Instant::now());
                left = Some(now.epoch);
            }
            false
        });
        if left.is_some() {
            // If the client does not hear it by then, somebody says so again.
            let _ = timeout_at(until, client.force_reconnect()).await;
        }
        left
    }

    /// Notes that the server lets this user publish to these subjects.
    pub(crate) fn pass<'a>(&self, subjects: impl Iterator<Item = &'a &'a str>) {
        self.standing.send_if_modified(|now| {
            subjects.for_each(|subject| now.denied.pass(subject));
            // Nobody waits for that.
            false
        });
    }

    /// Another one takes its place: it settles what came by it, and is not dialled any more where the server refuses it.
    pub(crate) fn rest(&self) {
        self.standing.send_modify(|now| now.rests = true);
    }

    /// Sends what is queued, and ends the connection.
    pub(crate) async fn close(&self) {
        let up = self.standing.borrow().up;
        self.standing.send_modify(|now| now.closed = true);
        // A connection that is down has nothing that would be waited for, and does not come up any more.
        if let Some((client, _)) = self.made.get().filter(|_| up) {
            let _ = timeout(self.settings.deadline, client.drain()).await;
        }
    }

    /// As if the client had not said that it is connected.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.standing.send_modify(|now| now.up = false);
    }

    fn unreachable(&self) -> Error {
        let trouble = self.standing.borrow().trouble.clone();
        let said = trouble.as_deref().unwrap_or("it does not answer");
        let (kind, advice) = judge(said);
        Error::new(kind, "connect")
            .message(format!("NATS cannot be used: {said}; nothing was sent{advice}"))
            .context("servers", self.settings.shown())
    }

    async fn make(&self) -> Result<(Client, Context)> {
        let settings = &*self.settings;
        let standing = self.standing.clone();
        let (dialing, dialled) = (Arc::new(Dialing::default()), self.standing.clone());
        let diagnosis = Diagnosis::new(Arc::clone(&self.settings));
        let options = identified(settings)?
            .name("postrider")
            .retry_on_initial_connect()
            .connection_timeout(CONNECT_MAX)
            .client_capacity(QUEUED_MAX)
            .ping_interval(settings.deadline.max(PING_MIN))
            .reconnect_to_server_callback(move |servers, _| {
                let (dialing, standing) = (Arc::clone(&dialing), dialled.subscribe());
                async move { dialing.choose(servers, standing).await }
            })
            .event_callback(move |event| {
                standing.send_modify(|now| note(now, &event));
                if matches!(&event, Event::ClientError(ClientError::Other(said)) if is_vague(said))
                {
                    let standing = standing.clone();
                    diagnosis.begin(move |said| {
                        standing.send_modify(|now| {
                            if !now.up {
                                now.trouble = Some(said);
                            }
                        });
                    });
                }
                std::future::ready(())
            });
        let client = options.connect(addresses(settings)?).await.map_err(|error| {
            wrong(format!("the settings cannot be used: {error}"))
                .context("servers", settings.shown())
        })?;
        let jetstream = jetstream::context::ContextBuilder::new()
            .api_prefix(settings.api())
            .timeout(settings.deadline)
            .max_ack_inflight(IN_FLIGHT_MAX)
            .build(client.clone());
        Ok((client, jetstream))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.standing.send_modify(|now| now.closed = true);
    }
}

/// Messages that a connection has not taken yet: one batch, so that a call need not wait for the connection to write
/// it. What is queued when the connection is lost goes out over the next one, however late.
const QUEUED_MAX: usize = 512;

/// Acknowledgements that are waited for at once, those whose call was dropped included: more than the relay
/// can have under way.
const IN_FLIGHT_MAX: usize = 65_536;
