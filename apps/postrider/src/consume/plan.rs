//! The plan: what a sidecar runs with, out of flags, configuration, and defaults, in this order.

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderMap;
use postrider_config::{
    Address, Config, Consume, Environment, KafkaSource, NatsSource, Needs, PostgresConfig, Secret,
    Secrets, SqsSource,
};
use postrider_core::HandlerName;

use crate::config;
use crate::consume::ConsumeArgs;
use crate::consume::request::{self, Extra, Format};
use crate::failure::Failure;
use crate::logs::{self, LogFormat};
use crate::relay::brokers;
use crate::serve::Token;

/// What a sidecar runs with.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) handler: HandlerName,
    pub(crate) group: String,
    /// Where from. It may hold a secret.
    pub(crate) from: Secretive,
    /// How to connect to NATS, if the configuration says it.
    pub(crate) nats: Option<NatsSource>,
    /// How to connect to Kafka, if the configuration says it.
    pub(crate) kafka: Option<KafkaSource>,
    /// How to connect to SQS, if the configuration says it.
    pub(crate) sqs: Option<SqsSource>,
    pub(crate) secrets: Secrets,
    /// The configuration, as far as it is about this sidecar: a reload compares with it.
    pub(crate) present: Config,
    pub(crate) inbox: String,
    /// Where the address of the inbox stands, if no flag gives it.
    pub(crate) inbox_reference: Option<Address>,
    pub(crate) postgres: PostgresConfig,
    pub(crate) to: String,
    pub(crate) format: Format,
    /// The operator's own headers of every call.
    pub(crate) headers: Extra,
    pub(crate) timeout: Duration,
    pub(crate) lease: Duration,
    pub(crate) concurrency: usize,
    pub(crate) attempts: u32,
    pub(crate) retention: Duration,
    /// How long stored results stay, if not as long as their rows.
    pub(crate) result_retention: Option<Duration>,
    /// Where metrics and health are served.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) token: Token,
    /// The collector that traces go to.
    pub(crate) otlp: Option<String>,
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
}

impl Plan {
    /// Reads the configuration, and connects to nothing.
    ///
    /// # Errors
    /// A configuration failure that says what is missing.
    pub(crate) fn of(args: &ConsumeArgs) -> Result<Plan, Failure> {
        let environment = Environment::of_process();
        let loaded = config::load(args.config.as_deref(), &environment, Needs::NOTHING)?;
        let secrets = config::secrets(&loaded, &environment)?;
        let config = &loaded.config;
        let chosen = choose(args.handler.as_deref(), config)?;
        let table = chosen.map(|(_, table)| table);
        let address = |flag: &Option<String>, of: fn(&Consume) -> &Address| {
            let configured = table.and_then(|table| secrets.address(of(table)));
            flag.clone().or_else(|| configured.map(str::to_owned))
        };
        let name = match (&args.handler, chosen, &args.group) {
            (Some(name), ..) => name.as_str(),
            (None, Some((handler, _)), _) => handler.as_str(),
            (None, None, Some(group)) => group.as_str(),
            (None, None, None) => return Err(missing("--group")),
        };
        let group = args.group.clone().or_else(|| table.and_then(|table| table.group.clone()));
        let usual = Usual::of(table);
        let otlp = config.observe.otlp.as_ref().and_then(|otlp| secrets.address(otlp));
        let token = config.observe.token.as_ref().and_then(|token| secrets.get(token));
        Ok(Plan {
            handler: HandlerName::new(name).map_err(|error| Failure::config(error.to_string()))?,
            group: group.unwrap_or_else(|| name.to_owned()),
            from: from(args.from.as_deref(), table, &secrets, &environment)?,
            nats: table.map(|table| table.nats.clone()),
            kafka: table.map(|table| table.kafka.clone()),
            sqs: table.map(|table| table.sqs.clone()),
            inbox: address(&args.inbox, |table| &table.inbox).ok_or_else(|| missing("--inbox"))?,
            inbox_reference: args.inbox.is_none().then(|| Some(table?.inbox.clone())).flatten(),
            postgres: config.postgres.clone(),
            to: address(&args.to, |table| &table.endpoint).ok_or_else(|| missing("--to"))?,
            format: args.format.unwrap_or(usual.format),
            headers: Extra::new(headers(&args.headers, table, &secrets)?),
            timeout: args.timeout.unwrap_or(usual.timeout),
            lease: args.lease.unwrap_or(usual.lease),
            concurrency: args.concurrency.unwrap_or(usual.concurrency) as usize,
            attempts: args.attempts.unwrap_or(usual.attempts),
            otlp: otlp.map(str::to_owned),
            retention: args.retention.unwrap_or(config.retention.inbox),
            result_retention: args.result_retention.or(config.retention.results),
            present: own(config, chosen.map(|(handler, _)| handler)),
            listen: args.listen.or_else(|| table.and_then(|table| table.listen)),
            token: Token::new(token.map(Secret::expose)),
            secrets: secrets.clone(),
            log: args.log.clone().unwrap_or_else(|| logs::level(config.observe.log).to_owned()),
            log_format: args.log_format.unwrap_or_else(|| config.observe.log_format.into()),
        })
    }
}

impl Plan {
    /// The secrets of the source: another one takes another connection. Others, as those of the headers of calls, do not, since a
    /// sidecar with another connection counts as another instance.
    pub(crate) fn secrets_of_source(&self) -> Secrets {
        let mut asked = self.present.clone();
        asked.consume.values_mut().for_each(|table| table.headers.clear());
        asked.observe = Config::default().observe;
        self.secrets.of(&asked)
    }
}

/// What is about this sidecar.
fn own(config: &Config, handler: Option<&HandlerName>) -> Config {
    let mut own = config.clone();
    own.consume.retain(|name, _| Some(name) == handler);
    own.destinations.clear();
    let nothing = Config::default();
    (own.relay, own.reconcile) = (nothing.relay, nothing.reconcile);
    (own.store, own.own_table, own.backpressure) =
        (nothing.store, nothing.own_table, nothing.backpressure);
    own
}

/// A text that `Debug` does not show.
pub(crate) struct Secretive(pub(crate) String);

impl std::fmt::Debug for Secretive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Where from.
fn from(
    flag: Option<&str>,
    table: Option<&Consume>,
    secrets: &Secrets,
    environment: &Environment,
) -> Result<Secretive, Failure> {
    let Some(text) = flag else {
        let configured = table.and_then(|table| secrets.address(&table.from));
        return configured.map(|text| Secretive(text.to_owned())).ok_or_else(|| missing("--from"));
    };
    crate::flag::address("--from", text, environment).map(Secretive)
}

/// The headers of the configuration, and those of flags in their place.
fn headers(
    flags: &[String],
    table: Option<&Consume>,
    secrets: &Secrets,
) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, reference) in table.iter().flat_map(|table| &table.headers) {
        let value = brokers::text(secrets, reference).map_err(Failure::config)?;
        request::add_header(&mut headers, name.as_str(), value, &reference.to_string())
            .map_err(Failure::config)?;
    }
    request::extra_headers(&mut headers, flags, |name| std::env::var(name).ok())
        .map_err(Failure::config)?;
    Ok(headers)
}

/// What stands where no flag does.
struct Usual {
    format: Format,
    timeout: Duration,
    lease: Duration,
    concurrency: u32,
    attempts: u32,
}

impl Usual {
    fn of(table: Option<&Consume>) -> Usual {
        match table {
            Some(table) => Usual {
                format: table.format.into(),
                timeout: table.timeout,
                lease: table.lease,
                concurrency: table.concurrency,
                attempts: table.attempts,
            },
            // The defaults of the configuration, for a sidecar without one.
            None => Usual {
                format: Format::Structured,
                timeout: Duration::from_secs(30),
                lease: Duration::from_secs(60),
                concurrency: 16,
                attempts: 10,
            },
        }
    }
}

/// The table of the configuration that is meant: the one named, or the only one.
///
/// # Errors
/// A configuration failure: it is not there, or there are several and none is named.
pub(crate) fn choose<'c>(
    handler: Option<&str>,
    config: &'c Config,
) -> Result<Option<(&'c HandlerName, &'c Consume)>, Failure> {
    let tables = &config.consume;
    let Some(name) = handler else {
        return match tables.len() {
            0 | 1 => Ok(tables.iter().next()),
            _ => {
                let names: Vec<&str> = tables.keys().map(HandlerName::as_str).collect();
                Err(Failure::config(format!("there are {} consumers", names.len())).advice(
                    format!("Nothing was started. Say which: --handler {}.", names.join(" or ")),
                ))
            }
        };
    };
    let found = tables.iter().find(|(handler, _)| handler.as_str() == name);
    // Without tables everything comes from flags, and the name is the handler's alone.
    if found.is_none() && !tables.is_empty() {
        let names: Vec<&str> = tables.keys().map(HandlerName::as_str).collect();
        let nearest = postrider_core::template::nearest(name, &names);
        return Err(Failure::config(format!(
            "the configuration has no consumer `{}`; did you mean `{nearest}`?",
            name.escape_debug()
        )));
    }
    Ok(found)
}

fn missing(flag: &str) -> Failure {
    Failure::config(format!("{flag} is missing")).advice(
        "Nothing was started. Give --from, --group, --inbox, and --to, or a configuration with a \
         table [consume.NAME].",
    )
}
