//! What in the present settings of the cluster could lose, double, or hold up events.
//!
//! Invariant: every finding that is not good has a code and says what to set to what; nothing is changed, and no
//! topic is made by asking for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, Error, ErrorKind, EventLimits, Result, Route};
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{FromClientConfig, FromClientConfigAndContext};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::metadata::{Metadata, MetadataTopic};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::client::{Context, end, metadata};
use crate::keys::Keys;
use crate::servers::{self, CLUSTER};
use crate::settings::{KafkaSettings, wrong};
use crate::trouble::Trouble;
use crate::writes;

/// Topics that are looked at. More are named by a template, and nobody reads more.
const TOPICS_MAX: usize = 256;

/// Copies that a lost machine does not make too few.
const REPLICAS: usize = 3;

/// Metadata is asked for as consumers do: for them no server makes a topic that is not there.
impl ConsumerContext for Context {}

/// Looks at the topics that take what the routes send.
///
/// # Errors
/// The cluster could not be asked.
pub(crate) async fn examine(
    settings: &Arc<KafkaSettings>,
    trouble: &Arc<Trouble>,
    routes: &[Route],
) -> Result<Vec<Finding>> {
    let sending = routes.iter().filter(|route| !route.drop);
    let horizon = sending.clone().map(|route| route.retry.span()).max().unwrap_or_default();
    let mut wanted: BTreeMap<_, Keys> = BTreeMap::new();
    for route in sending {
        let key = route.key.as_ref().unwrap_or(&settings.record_key);
        wanted.entry(route.topic.prefix()).or_default().add(key);
    }
    let look =
        Look { settings: Arc::clone(settings), trouble: Arc::clone(trouble), wanted, horizon };
    let looking = spawn_blocking(move || look.ask()).await;
    looking
        .map_err(|error| Error::new(ErrorKind::Internal, "examine").message(error.to_string()))?
}

/// What is looked for, on a thread that may wait.
struct Look {
    settings: Arc<KafkaSettings>,
    trouble: Arc<Trouble>,
    /// What topics begin with, and whether fields follow; and the keys of the records that go there.
    wanted: BTreeMap<(String, bool), Keys>,
    /// How long an event may be tried.
    horizon: Duration,
}

impl Look {
    fn ask(&self) -> Result<Vec<Finding>> {
        let config = self.settings.connection();
        let context = Context::new(&self.trouble);
        let consumer: BaseConsumer<Context> =
            BaseConsumer::from_config_and_context(&config, context)
                .map_err(|error| wrong(error.to_string()))?;
        let asked = self.findings(&consumer);
        end(consumer);
        let mut found = asked?;
        // Whoever is refused a topic knows what to ask for.
        let refused = found.iter().any(|finding| finding.code == Some(Code::Unauthorized));
        if !refused && writes::are_refused(&self.settings, &self.trouble)? {
            found.push(mute());
        }
        servers::name_in(&mut found, &self.settings.servers);
        Ok(found)
    }

    fn findings(&self, consumer: &BaseConsumer<Context>) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        let mut names: BTreeMap<String, Keys> = BTreeMap::new();
        for ((prefix, open), keys) in &self.wanted {
            if !open {
                names.entry(prefix.clone()).or_default().add_all(keys);
                continue;
            }
            let all = self.metadata(consumer, None)?;
            let own = all.topics().iter().map(MetadataTopic::name);
            let fitting: Vec<&str> = own.filter(|name| fits(name, prefix)).collect();
            if fitting.is_empty() {
                found.push(absent(
                    &format!("no topic begins with `{prefix}`"),
                    &format!("{prefix}…"),
                ));
            }
            for name in fitting {
                names.entry(name.to_owned()).or_default().add_all(keys);
            }
        }
        for (name, keys) in names.iter().take(TOPICS_MAX) {
            let metadata = self.metadata(consumer, Some(name))?;
            let servers = metadata.brokers().len();
            let topic = metadata.topics().first();
            let error = topic.and_then(MetadataTopic::error).map(RDKafkaErrorCode::from);
            match (topic, error) {
                (None, _) | (_, Some(RDKafkaErrorCode::UnknownTopicOrPartition)) => {
                    found.push(absent(&format!("there is no topic `{name}`"), name));
                }
                (_, Some(RDKafkaErrorCode::TopicAuthorizationFailed)) => found.push(denied(name)),
                (_, Some(other)) => {
                    let advice = "it goes on when the topic has a leader";
                    let code = Code::Unroutable;
                    let message = format!("it cannot be used now: {other}");
                    found.push(findings::critical(&of(name), message, advice, code));
                }
                (Some(topic), None) => found.extend(self.of_topic(topic, servers, keys)?),
            }
        }
        Ok(found)
    }

    fn metadata(&self, consumer: &BaseConsumer<Context>, topic: Option<&str>) -> Result<Metadata> {
        metadata(consumer, topic, &self.settings, &self.trouble)
    }

    fn of_topic(&self, topic: &MetadataTopic, servers: usize, keys: &Keys) -> Result<Vec<Finding>> {
        let fewest = |count: fn(&rdkafka::metadata::MetadataPartition) -> usize| {
            topic.partitions().iter().map(count).min().unwrap_or_default()
        };
        let stands = Stands {
            name: topic.name(),
            servers,
            replicas: fewest(|partition| partition.replicas().len()),
            in_sync: fewest(|partition| partition.isr().len()),
        };
        let mut found = Vec::new();
        if topic.partitions().len() > 1 {
            found.extend(keys.apart(&of(stands.name)));
        }
        let Some(config) = self.described(stands.name)? else {
            stands.of_copies(None, &mut found);
            let advice = "grant this user DESCRIBE_CONFIGS on it, so that they can be looked at";
            let message = "its settings may not be read";
            found.push(stands.warning(message, advice, Code::Unauthorized));
            return Ok(found);
        };
        let config = Config(config);
        stands.of_copies(Some(&config), &mut found);
        stands.of_keeping(&config, self.horizon, keys, &mut found);
        stands.of_size(&config, &mut found);
        if found.is_empty() {
            let message = format!(
                "{} replicas, {} of which acknowledge, and it keeps what it took",
                stands.replicas,
                config.number(IN_SYNC_MIN).unwrap_or_default()
            );
            found.push(findings::good(&of(stands.name), message));
        }
        Ok(found)
    }

    /// The topic's settings, if we may read them.
    fn described(&self, name: &str) -> Result<Option<ConfigResource>> {
        let admin: AdminClient<DefaultClientContext> =
            AdminClient::from_config(&self.settings.connection())
                .map_err(|error| wrong(error.to_string()))?;
        let options = AdminOptions::new().request_timeout(Some(self.settings.deadline));
        let topic = [ResourceSpecifier::Topic(name)];
        let described = Handle::current().block_on(admin.describe_configs(&topic, &options));
        end(admin);
        match described.map(|mut found| found.pop()) {
            Ok(Some(Ok(config))) => Ok(Some(config)),
            Ok(Some(Err(RDKafkaErrorCode::TopicAuthorizationFailed))) => Ok(None),
            other => {
                let said = match other {
                    Err(error) => error.to_string(),
                    Ok(Some(Err(code))) => code.to_string(),
                    _ => "nothing".to_owned(),
                };
                Err(Error::new(ErrorKind::Unavailable, "examine")
                    .message(format!("Kafka does not say how the topic `{name}` is set: {said}")))
            }
        }
    }
}

const IN_SYNC_MIN: &str = "min.insync.replicas";

/// A topic's settings.
struct Config(ConfigResource);

impl Config {
    fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(|entry| entry.value.as_deref()).unwrap_or_default()
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.text(name).parse().ok()
    }
}

/// How a topic stands.
struct Stands<'a> {
    name: &'a str,
    /// Servers of the cluster.
    servers: usize,
    /// Of the partition that has the fewest.
    replicas: usize,
    in_sync: usize,
}

impl Stands<'_> {
    fn warning(
        &self,
        message: impl Into<String>,
        advice: impl Into<String>,
        code: Code,
    ) -> Finding {
        findings::coded(&of(self.name), message, advice, code)
    }

    /// A setting, as it is set.
    fn set(&self, setting: &str) -> String {
        let name = self.name;
        format!(
            "kafka-configs.sh --bootstrap-server {CLUSTER} --alter --entity-type topics --entity-name {name} \
             --add-config {setting}"
        )
    }

    /// How many have what is acknowledged, and who may lead.
    fn of_copies(&self, config: Option<&Config>, found: &mut Vec<Finding>) {
        let Stands { servers, replicas, in_sync, .. } = *self;
        let in_sync_min = config.and_then(|config| config.number(IN_SYNC_MIN));
        let in_sync_min = in_sync_min.and_then(|min| usize::try_from(min).ok());
        if replicas < 2 {
            let message = "it has one replica: a lost disk loses what was acknowledged, and a power cut \
                           what was not forced to it yet";
            let advice = match servers < REPLICAS {
                true => format!(
                    "the cluster has {servers} servers: add some, so that there are {REPLICAS} or more, and \
                     give it {REPLICAS} replicas with kafka-reassign-partitions.sh"
                ),
                false => format!("give it {REPLICAS} replicas with kafka-reassign-partitions.sh"),
            };
            found.push(self.warning(message, advice, Code::CopiesFew));
        } else if in_sync < replicas {
            let message = format!("of its {replicas} replicas only {in_sync} are in sync");
            let advice = "look after the servers that lag, or that are away";
            found.push(self.warning(message, advice, Code::CopiesFew));
        }
        match in_sync_min {
            Some(min) if min > replicas => {
                let message = format!(
                    "it wants {min} replicas in sync and has {replicas}: servers before Kafka 3.7 acknowledge nothing \
                     then, and newer ones want no more than there are"
                );
                let advice =
                    format!("{}, or give it more replicas", self.set("min.insync.replicas=1"));
                found.push(self.warning(message, advice, Code::Unacknowledged));
            }
            Some(min) if replicas > 1 && min == replicas => {
                let message = format!(
                    "it wants all of its {replicas} replicas in sync: while one server is away, its events wait"
                );
                let advice = self.set(&format!("{IN_SYNC_MIN}={}", replicas - 1));
                found.push(self.warning(message, advice, Code::SpareNone));
            }
            Some(min) if replicas > 1 && min < 2 => {
                let message = "what one replica has is acknowledged, if the others lag: with that one it is lost";
                let advice = self.set(&format!("{IN_SYNC_MIN}=2"));
                found.push(self.warning(message, advice, Code::CopiesFew));
            }
            _ => {}
        }
        let unclean = "unclean.leader.election.enable";
        if config.is_some_and(|config| config.text(unclean) == "true") {
            let message = "a replica that lags may take the lead, and what it lacks is lost, acknowledged or not";
            let advice = self.set(&format!("{unclean}=false"));
            found.push(self.warning(message, advice, Code::ElectedUnclean));
        }
    }

    /// Under which circumstances it lets go of what nobody read, or takes nothing.
    fn of_keeping(
        &self,
        config: &Config,
        horizon: Duration,
        keys: &Keys,
        found: &mut Vec<Finding>,
    ) {
        let policy = config.text("cleanup.policy");
        let (deletes, compacts) = (policy.contains("delete"), policy.contains("compact"));
        let kept = config.number("retention.ms").and_then(|kept| u64::try_from(kept).ok());
        if let Some(kept) =
            kept.map(Duration::from_millis).filter(|kept| deletes && *kept < horizon)
        {
            found.push(findings::critical(
                &of(self.name),
                format!(
                    "it drops records after {kept:?}, and an event may be tried for {horizon:?}"
                ),
                format!("{}, or longer", self.set("retention.ms=604800000")),
                Code::KeptTooShort,
            ));
        }
        if deletes && config.number("retention.bytes").is_some_and(|bytes| bytes >= 0) {
            let message = "when a partition is full it drops its oldest records, read or not";
            let advice = self.set("retention.bytes=-1");
            found.push(self.warning(message, advice, Code::KeptTooShort));
        }
        if compacts {
            let message = "it is compacted: of a key it keeps the last event for sure, and drops those before it, \
                           read or not";
            let advice = format!("{}, unless that is meant", self.set("cleanup.policy=delete"));
            found.push(self.warning(message, advice, Code::KeptTooShort));
        }
        if compacts && keys.have_none() {
            found.push(findings::critical(
                &of(self.name),
                "it is compacted and takes no record without a key, and `record_key` gives none: each event \
                 becomes a dead letter",
                "give records a key: record_key = \"{aggregate_id}\"",
                Code::KeysMissing,
            ));
        }
    }

    /// What is larger than it takes.
    fn of_size(&self, config: &Config, found: &mut Vec<Finding>) {
        let limits = EventLimits::default();
        let largest = limits.payload_bytes_max + limits.headers_bytes_max;
        let taken = config.number("max.message.bytes").and_then(|max| u64::try_from(max).ok());
        if let Some(taken) = taken.filter(|taken| *taken < largest) {
            let message = format!(
                "it takes records of {taken} bytes, and an event may have {largest}: a larger one becomes a \
                 dead letter"
            );
            let advice =
                format!("{}, or enqueue nothing larger", self.set("max.message.bytes=2097152"));
            found.push(self.warning(message, advice, Code::LimitLow));
        }
    }
}

/// The subject of a finding.
fn of(name: &str) -> String {
    format!("topic {name}")
}

/// Whether a topic may be one that a template renders. Those of the cluster itself are not.
fn fits(name: &str, prefix: &str) -> bool {
    name.starts_with(prefix) && !name.starts_with("__")
}

fn absent(message: &str, name: &str) -> Finding {
    findings::critical(
        "topics",
        format!("{message}: its events wait"),
        format!(
            "kafka-topics.sh --bootstrap-server {CLUSTER} --create --topic {name} --partitions 12 \
             --replication-factor {REPLICAS}, or correct the route's topic"
        ),
        Code::Unroutable,
    )
}

fn denied(name: &str) -> Finding {
    findings::critical(
        &of(name),
        "this user may not look at it, so it may not write there either, or there is none",
        format!(
            "kafka-acls.sh --bootstrap-server {CLUSTER} --add --allow-principal User:NAME --operation Write \
             --operation Describe --operation DescribeConfigs --topic {name}"
        ),
        Code::Unauthorized,
    )
}

fn mute() -> Finding {
    findings::critical(
        "topics",
        "this user may write to no topic of the cluster: nothing is acknowledged",
        format!(
            "kafka-acls.sh --bootstrap-server {CLUSTER} --add --allow-principal User:NAME --operation Write, with --topic \
             for each of them; before Kafka 2.8 also --operation IdempotentWrite --cluster"
        ),
        Code::Unauthorized,
    )
}
