//! Destination addresses: which broker stands behind `--to URL`, and the definition that goes with
//! it.

use std::path::PathBuf;
use std::sync::Arc;

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Destination, DestinationId, Error, Outcome, Outgoing,
    Route, TargetUrl, Template,
};
use postrider_file::FileBroker;
use postrider_local::LocalBroker;
use postrider_webhook::{WebhookBroker, WebhookSettings};

use crate::failure::Failure;
use crate::store::unknown;

/// The destinations that work today, as they are written.
pub(crate) const WORKS: [&str; 9] = [
    "stdout",
    "file://PATH",
    "local://PATH",
    "https://URL",
    "kafka://HOST:PORT/TOPIC",
    "nats://HOST:PORT/SUBJECT",
    "sqs://REGION/QUEUE",
    "sns://REGION/TOPIC-ARN",
    "eventbridge://REGION/BUS",
];

/// The kind of a destination that is given by an address. The address itself is no part of the
/// definition and may change, so the kind must not depend on it.
const KIND: &str = "url";

/// Where to, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Standard output, one CloudEvent per line.
    Stdout,
    /// A file, one CloudEvent per line, appended.
    File(PathBuf),
    /// A durable queue in one file.
    Local(PathBuf),
    /// Webhooks to one address, unsigned.
    Webhook {
        /// Where.
        url: String,
        /// Whether private and loopback addresses may be called.
        allow_private: bool,
    },
    /// Topics of Kafka.
    Kafka(Remote),
    /// Subjects of NATS.
    Nats(Remote),
    /// Queues, topics, or buses of AWS, in a region.
    Aws(Remote),
}

/// Servers, and the topic if the address has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    /// The address of the servers, which may say who we are.
    servers: TargetUrl,
    /// A template of topics; without one it is the definition's own.
    topic: Option<Template>,
}

/// Servers as other clients have them, each with its scheme: what stands behind the second one would be taken for a topic.
///
/// # Errors
/// A configuration failure that says how they are written here.
pub(crate) fn scheme_once(url: &TargetUrl) -> Result<(), Failure> {
    let scheme = url.scheme();
    if !url.path().contains(&format!(",{scheme}://")) {
        return Ok(());
    }
    Err(Failure::config(format!("`{scheme}://` stands before each server"))
        .advice(format!("Write it once, as in {scheme}://one:4222,two:4222.")))
}

impl Remote {
    fn parse(url: &TargetUrl) -> Result<Remote, Failure> {
        let scheme = url.scheme();
        let advice = format!("Write {scheme}://HOST:PORT, or {scheme}://HOST:PORT/TOPIC.");
        if url.expose() != url.path() {
            return Err(Failure::config(format!("{scheme}:// takes no parameters")).advice(advice));
        }
        scheme_once(url)?;
        let (servers, topic) = url.path().split_once('/').unwrap_or_else(|| (url.path(), ""));
        if servers.is_empty() {
            return Err(Failure::config("the address names no server").advice(advice));
        }
        let topic = (!topic.is_empty()).then(|| topic.parse()).transpose()?;
        Ok(Remote { servers: format!("{scheme}://{servers}").parse()?, topic })
    }

    /// The broker, behind the topic.
    fn open(
        &self,
        at: fn(&str) -> Result<Arc<dyn Broker>, Failure>,
    ) -> Result<Arc<dyn Broker>, Failure> {
        let broker = at(&format!("{}://{}", self.servers.scheme(), self.servers.expose()))?;
        Ok(match &self.topic {
            None => broker,
            Some(topic) => Arc::new(Directed { broker, topic: topic.clone() }),
        })
    }
}

impl Target {
    /// Reads an address.
    ///
    /// # Errors
    /// A configuration failure that suggests what may have been meant and lists what works.
    pub(crate) fn parse(text: &str) -> Result<Target, Failure> {
        let url: TargetUrl = text.parse().map_err(|error| {
            Failure::from(error).advice(format!("What works today: {}.", WORKS.join(", ")))
        })?;
        let path = || match url.path() {
            "" => Err(Failure::config(format!("the path of {}:// is missing", url.scheme()))
                .advice(format!("Write {0}://PATH, like {0}://queue.db.", url.scheme()))),
            path => Ok(PathBuf::from(path)),
        };
        match url.scheme() {
            "stdout" if url.path().is_empty() => Ok(Target::Stdout),
            "stdout" => Err(Failure::config("stdout takes no path").advice("Write --to stdout.")),
            "file" => path().map(Target::File),
            "local" => path().map(Target::Local),
            "https" | "http" => Ok(Target::Webhook { url: text.to_owned(), allow_private: false }),
            "kafka" => Remote::parse(&url).map(Target::Kafka),
            "nats" | "tls" => Remote::parse(&url).map(Target::Nats),
            "sqs" | "sns" | "eventbridge" => Remote::parse(&url).map(Target::Aws),
            scheme => Err(unknown("destination", text, scheme, &WORKS)),
        }
    }

    /// The same target, which may call private and loopback addresses if it calls any.
    #[must_use]
    pub(crate) fn allow_private(self, allow: bool) -> Target {
        match self {
            Target::Webhook { url, .. } => Target::Webhook { url, allow_private: allow },
            other => other,
        }
    }

    /// Opens the broker.
    ///
    /// # Errors
    /// What the broker says.
    pub(crate) fn open(&self) -> Result<Arc<dyn Broker>, Failure> {
        Ok(match self {
            Target::Stdout => Arc::new(FileBroker::stdout()?),
            Target::File(path) => Arc::new(FileBroker::open(path)?),
            Target::Local(path) => Arc::new(LocalBroker::open(path)?),
            Target::Webhook { url, allow_private } => {
                let settings = WebhookSettings {
                    allow_private: *allow_private,
                    // The relay's own deadline for a publish, which would end a longer request.
                    deadline: postrider_relay::Settings::default().publish_deadline,
                    ..WebhookSettings::default()
                };
                let settings = settings.endpoint(ONE, postrider_webhook::Endpoint::new(url));
                let broker = WebhookBroker::new(&settings).map_err(|error| {
                    let failure = Failure::from(error);
                    if *allow_private {
                        return failure;
                    }
                    failure.advice(
                        "Nothing was started. Correct the address; for http:// or a service of \
                         your own network, add --allow-private.",
                    )
                })?;
                Arc::new(Directed { broker: Arc::new(broker), topic: ONE.parse()? })
            }
            Target::Kafka(remote) => remote.open(crate::relay::kafka::at)?,
            Target::Nats(remote) => remote.open(crate::relay::nats::at)?,
            Target::Aws(remote) => remote.open(crate::relay::aws::at)?,
        })
    }
}

/// The name of the one endpoint behind `--to https://…`.
const ONE: &str = "to";

/// A broker whose topics the address says, and not the definition: that must not depend on the address.
pub(crate) struct Directed {
    /// Whose topics they are.
    pub(crate) broker: Arc<dyn Broker>,
    /// Where all goes.
    pub(crate) topic: Template,
}

impl Broker for Directed {
    fn capabilities(&self) -> BrokerCapabilities {
        self.broker.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>, Error>> {
        let to = |outgoing: &Outgoing| {
            let topic = Arc::from(self.topic.render(&outgoing.event));
            Outgoing { topic, ..outgoing.clone() }
        };
        let batch: Vec<Outgoing> = batch.iter().map(to).collect();
        Box::pin(async move { self.broker.publish(&batch).await })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.broker.close()
    }
}

/// The definition that `--to URL` stands for: everything, to a topic named after the event's type.
///
/// # Errors
/// A configuration failure if the name cannot be one.
pub(crate) fn definition(name: &str) -> Result<Destination, Failure> {
    let id = DestinationId::new(name).map_err(|error| Failure::config(error.to_string()))?;
    let topic: Template = "{event_type}".parse().expect("the template is valid");
    Ok(Destination::new(id, KIND, vec![Route::all(topic)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_brokers() {
        assert_eq!(Target::parse("stdout").unwrap(), Target::Stdout);
        assert_eq!(Target::parse("file://a/b").unwrap(), Target::File("a/b".into()));
        assert_eq!(Target::parse("local:///q.db").unwrap(), Target::Local("/q.db".into()));
    }

    #[test]
    fn what_does_not_work_is_said_with_what_does() {
        for (text, expected) in [
            ("loca://q.db", "did you mean `local://PATH`?"),
            ("stdotu", "did you mean `stdout`?"),
            ("amqp://k:9092", "unknown destination scheme `amqp` What works"),
            ("kafka:///orders", "names no server"),
            ("kafka://k:9092/{colour}", "colour"),
            ("nats://n:4222/a?x=1", "takes no parameters"),
            ("nats://n:4222,nats://m:4222/a", "Write it once, as in nats://one:4222,two:4222"),
            ("queue.db", "did you mean `local://queue.db`?"),
            ("file://", "path of file:// is missing"),
            ("stdout://x", "takes no path"),
        ] {
            let shown = Target::parse(text).unwrap_err().plain_text();
            assert!(shown.contains(expected), "{text}: {shown}");
        }
        let shown = Target::parse("amqp://k").unwrap_err().plain_text();
        assert!(
            shown.contains(
                "What works today: stdout, file://PATH, local://PATH, https://URL, kafka://"
            ),
            "{shown}"
        );
    }

    /// F32: what stands before an `@` is shown nowhere.
    #[test]
    fn servers_may_have_a_topic() {
        let remote = |topic: Option<&str>, servers: &str| Remote {
            servers: servers.parse().unwrap(),
            topic: topic.map(|topic| topic.parse().unwrap()),
        };
        for (text, expected) in [
            ("kafka://a:9092,b:9092", Target::Kafka(remote(None, "kafka://a:9092,b:9092"))),
            ("nats://n/shop.{tenant}", Target::Nats(remote(Some("shop.{tenant}"), "nats://n"))),
        ] {
            assert_eq!(Target::parse(text).unwrap(), expected);
        }
        let secret = Target::parse("nats://joe:pa55@n:4222/x").unwrap();
        assert!(!format!("{secret:?}").contains("pa55"), "{secret:?}");
    }

    /// The address may change from run to run; the definition in the store may not.
    #[test]
    fn the_definition_does_not_depend_on_the_address() {
        let definition = definition("default").unwrap();
        assert_eq!(definition.kind, KIND);
        assert!(definition.to_definition().unwrap().contains("{event_type}"));
    }
}
