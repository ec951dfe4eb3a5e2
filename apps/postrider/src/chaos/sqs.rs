//! A queue of SQS of a scene's own, and the one for its dead letters.

use std::sync::Arc;
use std::time::Duration;

use postrider_aws::{
    AwsSettings, Credentials, Redrive, SqsBroker, SqsSubscription, SubscriptionSettings, TrialQueue,
};
use postrider_core::{Broker, EventId, RetryClass, Subscription, TargetUrl};

use crate::chaos::by_hand;
use crate::chaos::scene;
use crate::failure::Failure;
use crate::target::Directed;

/// The shortest time for which a message is given out here: half of it is enough to be scheduled on a busy machine.
pub(crate) const VISIBILITY_MIN: Duration = Duration::from_secs(2);
/// How long an answer may take: an emulator on a busy machine needs its time.
const DEADLINE: Duration = Duration::from_secs(10);
/// The region of an endpoint that says none.
const REGION_LOCAL: &str = "us-east-1";
/// Who we are at an endpoint on this machine: such servers look at no signature.
const NOBODY: &str = "000000000000";

/// Reads `sqs://REGION`, with the parameter `endpoint`. An empty region is the environment's.
///
/// # Errors
/// A configuration failure: it is not well formed.
pub(crate) fn settings(address: &str) -> Result<AwsSettings, Failure> {
    let url: TargetUrl = address.parse()?;
    let query = url.expose().split_once('?').map_or("", |(_, query)| query);
    let known = |pair: &str| pair.is_empty() || pair.starts_with("endpoint=");
    let region = url.path().trim_end_matches('/');
    if region.contains('/') || !query.split('&').all(known) {
        return Err(Failure::config("chaos makes queues of its own").advice(
            "Nothing was started. Write --broker sqs://REGION, or sqs://REGION?endpoint=URL.",
        ));
    }
    let mut settings = AwsSettings::default();
    settings.deadline = DEADLINE;
    settings.region = (!region.is_empty()).then(|| region.to_owned());
    settings.endpoint = url.parameter("endpoint").map(str::to_owned);
    let Some(endpoint) = &settings.endpoint else { return Ok(settings) };
    if ["http://127.0.0.1", "http://localhost"].iter().any(|here| endpoint.starts_with(here)) {
        settings.region.get_or_insert_with(|| REGION_LOCAL.to_owned());
        if std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
            settings.credentials =
                Credentials::Key { id: NOBODY.to_owned(), secret: NOBODY.into(), session: None };
        }
    }
    Ok(settings)
}

/// See the module.
pub(crate) struct Queue {
    settings: AwsSettings,
    trial: TrialQueue,
}

impl Queue {
    /// One of a random name, that is not made yet.
    ///
    /// # Errors
    /// What the client says.
    pub(crate) fn named(settings: &AwsSettings, in_order: bool) -> Result<Queue, Failure> {
        let kind = if in_order { ".fifo" } else { "" };
        let name = format!("postrider-chaos-{}{kind}", EventId::mint());
        let trial = TrialQueue::named(settings.clone(), &name)?;
        Ok(Queue { settings: settings.clone(), trial })
    }

    /// Makes it.
    ///
    /// # Errors
    /// What the service says. Some of it may be made then.
    pub(crate) async fn make(&self, receives_max: u32) -> Result<(), Failure> {
        Ok(self.trial.make(receives_max).await?)
    }

    /// The broker before it, whatever topic an event has.
    ///
    /// # Errors
    /// What the client says.
    pub(crate) fn broker(&self) -> Result<Arc<dyn Broker>, Failure> {
        let broker = Arc::new(SqsBroker::new(self.settings.clone())?);
        Ok(Arc::new(Directed { broker, topic: self.trial.name().parse()? }))
    }

    /// A subscription to it. One is enough: what a first one asked for may still be answered to it when it is gone.
    ///
    /// # Errors
    /// What the service says.
    pub(crate) async fn subscribe(
        &self,
        visibility: Duration,
    ) -> Result<Arc<dyn Subscription>, Failure> {
        let mut settings = SubscriptionSettings::new(self.trial.name());
        settings.visibility = visibility;
        Ok(Arc::new(SqsSubscription::open(self.settings.clone(), settings).await?))
    }

    /// Messages in it, and dead letters.
    ///
    /// # Errors
    /// What the service says.
    pub(crate) async fn held(&self) -> Result<(usize, usize), Failure> {
        let (here, dead) = self.trial.held().await?;
        let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Ok((number(here), number(dead)))
    }

    /// Has the service move its dead letters back, and waits until it has.
    ///
    /// # Errors
    /// What the service says, or that it does not come to an end.
    pub(crate) async fn redrive(&self) -> Result<(), Failure> {
        let (dead, queue) = (self.trial.dead_letters(), self.trial.name());
        let task = Redrive::start(self.settings.clone(), dead, queue, None).await?;
        let ended = async || match task.progress().await {
            Ok(progress) => Ok(!progress.running),
            // It may be listed a moment later.
            Err(error) if error.retry_class() == RetryClass::Transient => Ok(false),
            Err(error) => Err(Failure::from(error)),
        };
        match scene::until(ended).await? {
            true => Ok(()),
            false => Err(Failure::plain("the service does not move the dead letters")),
        }
    }

    /// Takes everything out of it, in its order.
    ///
    /// # Errors
    /// What the service says.
    pub(crate) async fn drain(&self) -> Result<Vec<(EventId, bool)>, Failure> {
        let (known, _) = self.held().await?;
        let subscription = self.subscribe(scene::PATIENCE).await?;
        let mut came = Vec::new();
        while let Some((delivery, event)) =
            by_hand::next(&*subscription, by_hand::patience(came.len(), known)).await?
        {
            subscription.ack(&delivery).await?;
            came.push((event.id, delivery.marks.late));
        }
        Ok(came)
    }

    /// Deletes it, and its dead letters.
    ///
    /// # Errors
    /// What the service says.
    pub(crate) async fn remove(&self) -> Result<(), Failure> {
        let left = format!("the queue {} was not deleted", self.trial.name());
        self.trial.remove().await.map_err(|error| Failure::from(error).within(&left))
    }
}
