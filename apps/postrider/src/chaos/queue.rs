//! A queue of a scene, which one group consumes: a broker in a file, or a queue of SQS of the scene's own.
//!
//! Invariant: a queue of SQS is made by the scene under a random name, and goes with it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker, EventId, Outcome, Outgoing, Subscription};
use postrider_local::{LocalBroker, SubscribeOptions};

use crate::chaos::scene::{self, HANDLER, TOPIC};
#[cfg(feature = "aws")]
use crate::chaos::sqs;
use crate::failure::Failure;

/// By what scenarios are played.
#[derive(Clone)]
pub(crate) enum Road {
    /// Brokers in files.
    Files,
    /// Queues of SQS.
    #[cfg(feature = "aws")]
    Sqs(postrider_aws::AwsSettings),
}

impl Road {
    /// Reads by what to play.
    ///
    /// # Errors
    /// A configuration failure: it is no address of SQS, or this program was built without AWS.
    pub(crate) fn choose(broker: Option<&str>) -> Result<Road, Failure> {
        let Some(address) = broker else { return Ok(Road::Files) };
        if !address.starts_with("sqs://") {
            return Err(Failure::config("chaos takes an address of SQS")
                .advice("Nothing was started. Without --broker it plays by a file by itself."));
        }
        #[cfg(feature = "aws")]
        return Ok(Road::Sqs(sqs::settings(address)?));
        #[cfg(not(feature = "aws"))]
        Err(crate::relay::aws::missing())
    }

    /// As it is called in lists.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Road::Files => "local",
            #[cfg(feature = "aws")]
            Road::Sqs(_) => "sqs",
        }
    }

    /// Whether a service is called.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self, Road::Files)
    }

    /// A queue of its own for a scene, the file of which would be this one; one of SQS is not made yet. One in order
    /// keeps the order of each key to the consumer. A message that was given out `receives_max` times is a dead letter.
    ///
    /// # Errors
    /// What the file or the client says.
    pub(crate) fn lay(
        &self,
        path: PathBuf,
        in_order: bool,
        receives_max: u32,
    ) -> Result<Queue, Failure> {
        #[cfg(not(feature = "aws"))]
        let _ = in_order;
        Ok(match self {
            Road::Files => Queue::Local { broker: LocalBroker::open(path)?, receives_max },
            #[cfg(feature = "aws")]
            Road::Sqs(settings) => Queue::Sqs(Arc::new(sqs::Queue::named(settings, in_order)?)),
        })
    }
}

/// See the module.
#[derive(Clone)]
pub(crate) enum Queue {
    /// In a file.
    Local { broker: LocalBroker, receives_max: u32 },
    /// Of SQS.
    #[cfg(feature = "aws")]
    Sqs(Arc<sqs::Queue>),
}

impl Queue {
    /// Makes it where it is not there yet.
    ///
    /// # Errors
    /// What the service says.
    #[cfg_attr(
        not(feature = "aws"),
        allow(clippy::unused_async, reason = "files are there at once")
    )]
    pub(crate) async fn make(&self, receives_max: u32) -> Result<(), Failure> {
        let _ = receives_max;
        match self {
            Queue::Local { .. } => Ok(()),
            #[cfg(feature = "aws")]
            Queue::Sqs(queue) => queue.make(receives_max).await,
        }
    }

    /// Where a relay sends, whatever topic an event has.
    ///
    /// # Errors
    /// What the client says.
    pub(crate) fn broker(&self) -> Result<Arc<dyn Broker>, Failure> {
        match self {
            Queue::Local { broker, .. } => Ok(Arc::new(broker.clone())),
            #[cfg(feature = "aws")]
            Queue::Sqs(queue) => queue.broker(),
        }
    }

    /// Sends one message; whether the queue took it.
    ///
    /// # Errors
    /// What the broker says.
    pub(crate) async fn send(&self, message: Outgoing) -> Result<bool, Failure> {
        Ok(self.broker()?.publish(&[message]).await? == [Outcome::Acked])
    }

    /// A subscription whose messages come back after a while.
    ///
    /// # Errors
    /// What the broker says.
    pub(crate) async fn subscribe(
        &self,
        visibility: Duration,
    ) -> Result<Arc<dyn Subscription>, Failure> {
        match self {
            Queue::Local { broker, receives_max } => {
                let deliveries_max = *receives_max;
                let options =
                    SubscribeOptions { visibility, deliveries_max, ..SubscribeOptions::default() };
                Ok(Arc::new(broker.subscribe(HANDLER, TOPIC, options).await?))
            }
            #[cfg(feature = "aws")]
            Queue::Sqs(queue) => queue.subscribe(self.visibility(visibility)).await,
        }
    }

    /// How long a message really stays with a worker that says nothing, where it should be this long: SQS counts
    /// whole seconds, and what it gives out is not acted on when half of that has passed.
    pub(crate) fn visibility(&self, wanted: Duration) -> Duration {
        match self {
            Queue::Local { .. } => wanted,
            #[cfg(feature = "aws")]
            Queue::Sqs(_) => wanted.max(sqs::VISIBILITY_MIN),
        }
    }

    /// How many messages are in it. A file keeps those that were acknowledged as well.
    ///
    /// # Errors
    /// What the broker says.
    pub(crate) async fn count(&self) -> Result<usize, Failure> {
        match self {
            Queue::Local { broker, .. } => Ok(scene::log(broker).await?.len()),
            #[cfg(feature = "aws")]
            Queue::Sqs(queue) => Ok(queue.held().await?.0),
        }
    }

    /// Waits until so many are in it; whether they came in time.
    ///
    /// # Errors
    /// What the broker says.
    pub(crate) async fn has(&self, number: usize) -> Result<bool, Failure> {
        scene::until(async || Ok(self.count().await? >= number)).await
    }

    /// How many dead letters there are.
    ///
    /// # Errors
    /// What the broker says.
    pub(crate) async fn dead(&self) -> Result<usize, Failure> {
        match self {
            Queue::Local { broker, .. } => Ok(broker.dead_letters(HANDLER).await?.len()),
            #[cfg(feature = "aws")]
            Queue::Sqs(queue) => Ok(queue.held().await?.1),
        }
    }

    /// Sends every dead letter again, as an operator does: on SQS by a task of the service's.
    ///
    /// # Errors
    /// What the broker says.
    pub(crate) async fn redrive(&self) -> Result<(), Failure> {
        match self {
            Queue::Local { broker, .. } => {
                for dead in broker.dead_letters(HANDLER).await? {
                    broker.redrive(HANDLER, dead.offset).await?;
                }
                Ok(())
            }
            #[cfg(feature = "aws")]
            Queue::Sqs(queue) => queue.redrive().await,
        }
    }

    /// Everything that arrived, in the order in which a consumer has it, and what is late on purpose. On SQS it is
    /// consumed by that.
    ///
    /// # Errors
    /// What the broker says.
    pub(crate) async fn arrived(&self) -> Result<Vec<(EventId, bool)>, Failure> {
        match self {
            Queue::Local { broker, .. } => {
                let log = scene::log(broker).await?;
                Ok(log.iter().map(|message| (message.event.id, message.late)).collect())
            }
            #[cfg(feature = "aws")]
            Queue::Sqs(queue) => queue.drain().await,
        }
    }

    /// Deletes what is not in the scene's folder.
    ///
    /// # Errors
    /// What the service says; the queue is named.
    #[cfg_attr(
        not(feature = "aws"),
        allow(clippy::unused_async, reason = "files are there at once")
    )]
    pub(crate) async fn remove(&self) -> Result<(), Failure> {
        match self {
            Queue::Local { .. } => Ok(()),
            #[cfg(feature = "aws")]
            Queue::Sqs(queue) => queue.remove().await,
        }
    }
}
