//! Where events come from: which subscription stands behind `--from URL`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use postrider_config::{KafkaSource, NatsSource, Secrets, SqsSource};
use postrider_core::{Subscription, TargetUrl};
use postrider_local::{LocalBroker, SubscribeOptions};

use crate::failure::Failure;
use crate::store::unknown;
use crate::target::scheme_once;

/// The sources that work today, as they are written.
const WORKS: [&str; 4] = [
    "local://PATH/TOPIC",
    "nats://HOST:PORT/STREAM/SUBJECT",
    "kafka://HOST:PORT/TOPIC",
    "sqs://REGION/QUEUE",
];

/// Where from, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Topics of a local broker's file.
    Local {
        /// The file.
        path: PathBuf,
        /// A pattern of topics.
        topics: String,
    },
    /// Subjects of a stream of NATS.
    Nats {
        /// `nats://HOST:PORT`, with who we are if the address says it.
        server: TargetUrl,
        /// The stream.
        stream: String,
        /// The subjects, if not all of the stream.
        subject: Option<String>,
    },
    /// Topics of Kafka.
    Kafka {
        /// `HOST:PORT`, several with commas between.
        servers: String,
        /// The topics.
        topics: Vec<String>,
    },
    /// A queue of SQS.
    Sqs {
        /// The region.
        region: String,
        /// The queue's name.
        queue: String,
    },
}

/// How to receive.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    not(all(feature = "nats", feature = "kafka", feature = "aws")),
    allow(dead_code, reason = "what only a client of NATS, Kafka, or SQS reads")
)]
pub(crate) struct Wishes {
    pub(crate) group: String,
    /// Who acts on what comes, as the inbox knows it; nobody where it is only looked at.
    pub(crate) handler: Option<String>,
    /// How long a delivery stays invisible without a sign of life.
    pub(crate) visibility: Duration,
    /// Deliveries after which the broker gives up by itself: beyond what the engine allows, so that
    /// the engine's reason is the one that is kept.
    pub(crate) deliveries_max: u32,
    /// Where dead letters go, if a flag says it.
    pub(crate) dead_letters: Option<String>,
    /// How to connect to NATS.
    pub(crate) nats: Option<NatsSource>,
    /// How to connect to Kafka.
    pub(crate) kafka: Option<KafkaSource>,
    /// How to connect to SQS.
    pub(crate) sqs: Option<SqsSource>,
    /// The secrets of the configuration.
    pub(crate) secrets: Secrets,
}

/// How long a message stays hidden: a little longer than the lease, so that whoever gets the message of a dead sidecar
/// can claim it.
pub(super) fn visibility(lease: Duration) -> Duration {
    lease + lease / 10
}

#[cfg(any(feature = "nats", feature = "kafka"))]
impl Wishes {
    /// Where dead letters go: what the flag says, or the configuration, or a place named after the group.
    pub(super) fn burial(&self, configured: Option<&str>) -> String {
        let said = self.dead_letters.as_deref().or(configured);
        said.map_or_else(|| format!("postrider.dead.{}", self.group), str::to_owned)
    }
}

impl Source {
    /// Reads a source's address. Of a file, what stands after the last `/` is a pattern of topics, unless what
    /// stands before it is a folder: then there is no pattern, and all topics are meant.
    ///
    /// # Errors
    /// A configuration failure that lists what works.
    pub(crate) fn parse(text: &str) -> Result<Source, Failure> {
        let advice = "Write --from local://queue.db/order.* for some topics of a file, or \
                      local://queue.db for all of them.";
        let url: TargetUrl = text.parse().map_err(|error| Failure::from(error).advice(advice))?;
        match url.scheme() {
            "local" => {}
            "nats" | "tls" => return of_nats(&url),
            "kafka" => return of_kafka(&url),
            "sqs" => return of_sqs(&url),
            scheme => return Err(unknown("source", text, scheme, &WORKS)),
        }
        if url.expose() != url.path() {
            return Err(Failure::config("local:// takes no parameters").advice(advice));
        }
        let (path, topics) = match url.path().rsplit_once('/') {
            Some((path, topics)) if !path.is_empty() && !Path::new(path).is_dir() => (path, topics),
            _ => (url.path(), "*"),
        };
        if path.is_empty() || topics.is_empty() || Path::new(path).is_dir() {
            return Err(Failure::config("the source names no file").advice(advice));
        }
        Ok(Source::Local { path: PathBuf::from(path), topics: topics.to_owned() })
    }

    /// Whether it is the same place, whoever we say that we are in the address.
    pub(super) fn is_where(&self, other: &Source) -> bool {
        let host = |server: &TargetUrl| {
            let text = server.expose().to_owned();
            text.rsplit_once('@').map_or_else(|| text.clone(), |(_, host)| host.to_owned())
        };
        match (self, other) {
            (
                Source::Nats { server, stream, subject },
                Source::Nats { server: other, stream: other_stream, subject: other_subject },
            ) => host(server) == host(other) && (stream, subject) == (other_stream, other_subject),
            (one, other) => one == other,
        }
    }

    /// How long nothing comes before nothing is likely to be there: at Kafka, where the partitions of a crashed member
    /// stay with it for a session, longer than that.
    pub(super) fn quiet(&self, kafka: Option<&KafkaSource>) -> Duration {
        const QUIET: Duration = Duration::from_secs(10);
        /// The session where no configuration says it.
        const SESSION: Duration = Duration::from_secs(10);
        match self {
            Source::Kafka { .. } => QUIET + kafka.map_or(SESSION, |kafka| kafka.session),
            Source::Local { .. } | Source::Nats { .. } | Source::Sqs { .. } => QUIET,
        }
    }

    /// The topics that it names: none where it has a pattern.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Source::Local { topics, .. } if topics.contains('*') => Vec::new(),
            Source::Local { topics, .. } => vec![topics.clone()],
            Source::Nats { subject, .. } => {
                let plain = subject.iter().filter(|subject| !subject.contains(['*', '>']));
                plain.cloned().collect()
            }
            Source::Kafka { topics, .. } => topics.clone(),
            Source::Sqs { queue, .. } => vec![queue.clone()],
        }
    }

    /// Whether servers stand behind it.
    pub(crate) fn is_remote(&self) -> bool {
        !matches!(self, Source::Local { .. })
    }

    /// After which time the broker gives an event out again, if it keeps that time, and the group is there.
    ///
    /// # Errors
    /// What the broker says.
    pub(super) async fn visibility_kept(
        &self,
        wishes: &Wishes,
    ) -> Result<Option<Duration>, Failure> {
        match self {
            // Each sidecar brings its own.
            Source::Local { .. } | Source::Kafka { .. } | Source::Sqs { .. } => Ok(None),
            Source::Nats { server, stream, subject } => {
                super::nats::ack_wait(server, stream, subject.as_deref(), wishes).await
            }
        }
    }

    /// Subscribes.
    ///
    /// # Errors
    /// What the broker says.
    pub(crate) async fn subscribe(
        &self,
        wishes: &Wishes,
    ) -> Result<Arc<dyn Subscription>, Failure> {
        Ok(match self {
            Source::Local { path, topics } => {
                let options = SubscribeOptions {
                    visibility: wishes.visibility,
                    deliveries_max: wishes.deliveries_max,
                    ..SubscribeOptions::default()
                };
                let broker = LocalBroker::open(path)?;
                Arc::new(broker.subscribe(&wishes.group, topics.as_str(), options).await?)
            }
            Source::Nats { server, stream, subject } => {
                super::nats::subscribe(server, stream, subject.as_deref(), wishes).await?
            }
            Source::Kafka { servers, topics } => {
                super::kafka::subscribe(servers, topics, wishes).await?
            }
            Source::Sqs { region, queue } => super::sqs::subscribe(region, queue, wishes).await?,
        })
    }
}

/// The server, the stream, and the subjects.
fn of_nats(url: &TargetUrl) -> Result<Source, Failure> {
    let advice = "Write --from nats://HOST:4222/STREAM for all of a stream, or \
                  --from nats://HOST:4222/STREAM/SUBJECT, where * is one word and > the rest.";
    if url.expose() != url.path() {
        return Err(Failure::config("nats:// takes no parameters").advice(advice));
    }
    scheme_once(url)?;
    let (server, rest) = url.path().split_once('/').unwrap_or_else(|| (url.path(), ""));
    let (stream, subject) = rest.split_once('/').unwrap_or((rest, ""));
    if server.is_empty() || stream.is_empty() {
        return Err(Failure::config("the source names no stream").advice(advice));
    }
    let server = format!("{}://{server}", url.scheme());
    Ok(Source::Nats {
        server: server.parse().map_err(Failure::from)?,
        stream: stream.to_owned(),
        subject: (!subject.is_empty()).then(|| subject.to_owned()),
    })
}

/// The region and the queue.
fn of_sqs(url: &TargetUrl) -> Result<Source, Failure> {
    let advice = "Write --from sqs://REGION/QUEUE, like sqs://eu-west-1/orders. Whose queue it is, and who we are, \
                  stands in the table sqs of a configuration's [consume.NAME].";
    if url.expose() != url.path() {
        return Err(Failure::config("sqs:// takes no parameters").advice(advice));
    }
    match url.path().split_once('/') {
        Some((region, queue))
            if !region.is_empty() && !queue.is_empty() && !queue.contains('/') =>
        {
            Ok(Source::Sqs { region: region.to_owned(), queue: queue.to_owned() })
        }
        _ => Err(Failure::config("the source names no queue").advice(advice)),
    }
}

/// The servers and the topics.
fn of_kafka(url: &TargetUrl) -> Result<Source, Failure> {
    let advice = "Write --from kafka://HOST:9092/TOPIC; several servers, or several topics, with commas \
                  between.";
    if url.expose() != url.path() {
        return Err(Failure::config("kafka:// takes no parameters").advice(advice));
    }
    scheme_once(url)?;
    let (servers, topics) = url.path().split_once('/').unwrap_or_else(|| (url.path(), ""));
    if servers.contains('@') {
        return Err(Failure::config("an address of Kafka says nothing of who we are").advice(
            "Write user, password, and mechanism in the table kafka of a configuration's [consume.NAME].",
        ));
    }
    if servers.is_empty() || topics.split(',').any(str::is_empty) {
        return Err(Failure::config("the source names no topic").advice(advice));
    }
    let topics = topics.split(',').map(str::to_owned).collect();
    Ok(Source::Kafka { servers: servers.to_owned(), topics })
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Local { path, topics } => write!(f, "{topics} of local://{}", path.display()),
            Source::Nats { server, stream, subject } => {
                let subject = subject.as_deref().unwrap_or(">");
                write!(f, "{subject} of the stream {stream} at {server}")
            }
            Source::Kafka { servers, topics } => {
                write!(f, "{} of kafka://{servers}", topics.join(", "))
            }
            Source::Sqs { region, queue } => write!(f, "the queue {queue} of sqs://{region}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(text: &str) -> (String, String) {
        match Source::parse(text).unwrap() {
            Source::Local { path, topics } => (path.display().to_string(), topics),
            other => panic!("{other}"),
        }
    }

    /// F32: what stands before the `@` is shown nowhere.
    #[test]
    fn a_source_may_be_a_stream() {
        for (text, shown) in [
            ("nats://127.0.0.1:4222/SHOP", "> of the stream SHOP at nats://127.0.0.1:4222"),
            (
                "tls://joe:pa55@a:4222/SHOP/order.*",
                "order.* of the stream SHOP at tls://***@a:4222",
            ),
        ] {
            let source = Source::parse(text).unwrap();
            assert_eq!(source.to_string(), shown);
            assert!(!format!("{source:?}").contains("pa55"));
        }
    }

    /// F36: a reload may change who we are, and not where events come from.
    #[test]
    fn a_source_is_the_same_whoever_we_are() {
        let is_where = |one: &str, other: &str| {
            Source::parse(one).unwrap().is_where(&Source::parse(other).unwrap())
        };
        assert!(is_where("nats://joe:old@a:4222/SHOP/x", "nats://ann:new@a:4222/SHOP/x"));
        assert!(is_where("nats://a:4222/SHOP", "nats://token@a:4222/SHOP"));
        for other in ["nats://b:4222/SHOP/x", "nats://a:4222/MORE/x", "nats://a:4222/SHOP/y"] {
            assert!(!is_where("nats://a:4222/SHOP/x", other), "{other}");
        }
        assert!(!is_where("kafka://a:9092/orders", "kafka://a:9092/refunds"));
    }

    #[test]
    fn a_source_may_be_topics() {
        let source = Source::parse("kafka://a:9092,b:9092/orders,refunds").unwrap();
        assert_eq!(source.to_string(), "orders, refunds of kafka://a:9092,b:9092");
    }

    #[test]
    fn a_source_is_a_file_and_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        let file = format!("{}/queue.db", folder.path().display());
        for (text, path, topics) in [
            ("local://queue.db".to_owned(), "queue.db", "*"),
            ("local://queue.db/order.*".to_owned(), "queue.db", "order.*"),
            (format!("local://{file}"), &*file, "*"),
            (format!("local://{file}/*.placed"), &*file, "*.placed"),
        ] {
            assert_eq!(local(&text), (path.to_owned(), topics.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_does_not_work_is_said_with_what_does() {
        for (text, expected) in [
            ("redis://k:9092/orders", "What works today: local://PATH/TOPIC, nats://"),
            ("locl://queue.db", "did you mean `local://PATH/TOPIC`?"),
            ("local://", "names no file"),
            ("local:///", "names no file"),
            ("local://queue.db/", "names no file"),
            ("local://queue.db?x=1", "takes no parameters"),
            ("nats://127.0.0.1:4222", "names no stream"),
            ("nats://a:4222,nats://b:4222/SHOP", "Write it once, as in nats://one:4222,two:4222"),
            ("nats://127.0.0.1:4222/S?x=1", "takes no parameters"),
            ("kafka://127.0.0.1:9092", "names no topic"),
            ("kafka://127.0.0.1:9092/a,,b", "names no topic"),
            ("kafka://127.0.0.1:9092/a?x=1", "takes no parameters"),
            ("kafka://joe:pa55@127.0.0.1:9092/a", "says nothing of who we are"),
        ] {
            let shown = Source::parse(text).unwrap_err().plain_text();
            assert!(shown.contains(expected), "{text}: {shown}");
        }
    }
}
