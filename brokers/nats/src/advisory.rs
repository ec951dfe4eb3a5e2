//! Listening to what the server says that it gives up of a group's.
//!
//! It says so at most once, to whoever listens at that moment, and all instances of a group hear it. A user that may not listen
//! hears nothing, and goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::Subscriber;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::connection::Up;
use crate::domain::of_account;
use crate::examine::answer;
use crate::given_up::{GivenUp, Whose};
use crate::group::Member;
use crate::settings::SubscriptionSettings;
use crate::watch::Watch;

/// In which domains of JetStream too: its events are not told apart by their subject.
const SUBJECT: &str = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES";

/// Who listens, until it is dropped.
pub(crate) struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Who is told.
pub(crate) struct Told {
    pub(crate) given_up: Arc<GivenUp>,
    /// Looks at the group at once, so that no more is received that would be given up.
    pub(crate) watch: Arc<Watch>,
    pub(crate) notify: Arc<Notify>,
}

/// Listens, with the domain that was asked for by name. That the server did not hear it by then is no reason to receive nothing.
pub(crate) async fn listen(
    up: &Up,
    until: Instant,
    domain: Option<&str>,
    settings: &SubscriptionSettings,
    members: &[Member],
    told: Told,
) -> Option<Listening> {
    let names: BTreeMap<String, Whose> = members
        .iter()
        .map(|member| (member.consumer.cached_info().name.clone(), member.partition))
        .collect();
    let which = match members {
        [Member { partition: None, consumer, .. }] => consumer.cached_info().name.as_str(),
        _ => "*",
    };
    let subject = format!("{SUBJECT}.{}.{which}", settings.stream);
    let subscriber = timeout_at(until, up.client.subscribe(subject)).await.ok()?.ok()?;
    let domain = domain.map(str::to_owned);
    Some(Listening(tokio::spawn(hear(subscriber, up.clone(), domain, names, told))))
}

async fn hear(
    mut subscriber: Subscriber,
    up: Up,
    mut domain: Option<String>,
    names: BTreeMap<String, Whose>,
    told: Told,
) {
    while let Some(message) = subscriber.next().await {
        let Ok(said) = serde_json::from_slice::<Value>(&message.payload) else { continue };
        let number = |name: &str| said[name].as_u64();
        let whose = said["consumer"].as_str().and_then(|name| names.get(name));
        let (Some(whose), Some(sequence), Some(deliveries)) =
            (whose, number("stream_seq"), number("deliveries"))
        else {
            continue;
        };
        if let Some(theirs) = said["domain"].as_str().filter(|domain| !domain.is_empty()) {
            if domain.is_none() {
                domain = own(&up).await;
            }
            // Where ours is not known, it may be ours.
            if domain.as_deref().is_some_and(|ours| ours != theirs) {
                continue;
            }
        }
        let deliveries = u32::try_from(deliveries).unwrap_or(u32::MAX);
        told.given_up.announced(*whose, sequence, deliveries);
        told.watch.hasten();
        told.notify.notify_one();
    }
}

/// The domain of the server, if it says.
async fn own(up: &Up) -> Option<String> {
    of_account(up, &answer(up, "INFO", &Value::Null).await.ok()?)
}
