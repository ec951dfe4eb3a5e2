//! The plan: what a relay runs with, out of flags, configuration, and defaults, in this order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_config::{Config, Environment, Needs, Secret, Secrets};
use postrider_core::{Archive, Broker, Destination, DestinationId, WindowLimits};
use postrider_relay::{Retention, Settings};

use crate::certificate::Ends;
use crate::failure::Failure;
use crate::logs::{self, LogFormat};
use crate::relay::own::Own;
use crate::relay::reload::Reloader;
use crate::relay::switch::Switch;
use crate::relay::{RelayArgs, brokers};
use crate::serve::Token;
use crate::target::Target;
use crate::{config, store, target};

/// What a relay runs with.
pub(crate) struct Plan {
    pub(crate) place: store::Place,
    /// A table that is served in place of the outbox.
    pub(crate) own: Option<Own>,
    pub(crate) settings: Settings,
    pub(crate) destinations: Vec<(Destination, Arc<dyn Broker>)>,
    pub(crate) archive: Option<Arc<dyn Archive>>,
    pub(crate) reconcile_every: Duration,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) token: Token,
    /// When our certificates end.
    pub(crate) ends: Ends,
    /// The collector that traces go to.
    pub(crate) otlp: Option<String>,
    pub(crate) log: String,
    pub(crate) log_format: LogFormat,
    pub(crate) reloader: Option<Reloader>,
}

impl Plan {
    /// Reads the configuration, opens the brokers, and connects to nothing.
    ///
    /// # Errors
    /// A configuration failure: nothing was started.
    pub(crate) fn of(args: &RelayArgs) -> Result<Plan, Failure> {
        let environment = Environment::of_process();
        let loaded = config::load(args.config.as_deref(), &environment, Needs::NOTHING)?;
        let secrets = config::secrets(&loaded, &environment)?;
        let config = loaded.config;
        let settings = settings(args, &config)?;
        let place = place(args, &config, &secrets)?;
        let own = Own::of(&config)?;
        let (destinations, switches) = match &args.to {
            Some(to) => {
                let to = crate::flag::address("--to", to, &environment)?;
                (vec![given(args, &to)?], BTreeMap::new())
            }
            None => configured(&config, &secrets)?,
        };
        let token = config.observe.token.as_ref().and_then(|token| secrets.get(token));
        let token = Token::new(token.map(Secret::expose));
        let ends = Ends::default();
        let otlp = config.observe.otlp.as_ref().and_then(|otlp| secrets.address(otlp));
        let archive = config.retention.archive.as_ref().map(archive).transpose()?;
        let listen = args.listen.or(config.observe.listen);
        Ok(Plan {
            place,
            own,
            settings,
            destinations,
            archive,
            reconcile_every: config.reconcile.every,
            listen,
            token: token.clone(),
            ends: ends.clone(),
            otlp: otlp.map(str::to_owned),
            log: args.log.clone().unwrap_or_else(|| logs::level(config.observe.log).to_owned()),
            log_format: args.log_format.unwrap_or_else(|| config.observe.log_format.into()),
            reloader: args.to.is_none().then(|| Reloader {
                path: args.config.clone(),
                present: config,
                secrets,
                switches,
                token,
                ends,
                log: args.log.is_none(),
                listens_openly: listen.is_some_and(|address| !address.ip().is_loopback()),
            }),
        })
    }
}

fn archive(folder: &PathBuf) -> Result<Arc<dyn Archive>, Failure> {
    Ok(Arc::new(postrider_file::FileArchive::open(folder)?))
}

fn place(args: &RelayArgs, config: &Config, secrets: &Secrets) -> Result<store::Place, Failure> {
    let configured = config.store.as_ref().and_then(|store| secrets.address(store));
    match args.store.as_deref().or(configured) {
        Some(address) => {
            let reference = config.store.as_ref().filter(|_| args.store.is_none());
            store::Place::read(address)?.used(config, reference)
        }
        None => Err(Failure::config("no store is named").advice(
            "Nothing was started. Add --store sqlite://shop.db, or `store = \
             \"sqlite://shop.db\"` to the configuration.",
        )),
    }
}

/// The settings: times of the configuration, unless a flag says otherwise.
fn settings(args: &RelayArgs, config: &Config) -> Result<Settings, Failure> {
    let relay = &config.relay;
    let times = match args.lease {
        // The other times keep their proportions to a lease that was given as a flag.
        Some(lease) => Settings::with_lease(lease),
        None => Settings {
            lease: relay.lease,
            heartbeat: relay.heartbeat,
            publish_deadline: relay.publish_deadline,
            margin: relay.margin,
            ..Settings::default()
        },
    };
    let retention = config
        .retention
        .outbox
        .map(|older_than| Retention { every: config.retention.every, ..Retention::of(older_than) });
    let settings = Settings {
        drain: relay.drain,
        retention,
        // Who wants an empty outbox looked at more often than a busy one wants both that often.
        poll_min: times.poll_min.min(relay.poll_max),
        poll_max: relay.poll_max,
        stall: args.timeout,
        waiting_max: relay.waiting_max,
        range_after: range_after(relay.waiting_max),
        window: WindowLimits {
            rows_max: relay.window.rows,
            bytes_max: relay.window.bytes.bytes(),
            total_bytes_max: relay.window.total_bytes.bytes(),
            memory_bytes_max: relay.window.memory_bytes.bytes(),
            ..WindowLimits::default()
        },
        ..times
    };
    settings.check()?;
    Ok(settings)
}

/// The destination that `--to` stands for.
/// How much of a key waits before a range stands for the rest: however little may wait of a destination, a hundred keys that
/// stand still find room there, and not one alone.
fn range_after(waiting_max: u64) -> u32 {
    let part = u32::try_from(waiting_max / 100).unwrap_or(u32::MAX);
    Settings::default().range_after.min(part).max(1)
}

fn given(args: &RelayArgs, to: &str) -> Result<(Destination, Arc<dyn Broker>), Failure> {
    let definition = target::definition(&args.name)?;
    let broker = Target::parse(to)?.allow_private(args.allow_private).open()?;
    Ok((definition, broker))
}

type Destinations = Vec<(Destination, Arc<dyn Broker>)>;

/// The destinations of the configuration, each behind a switch.
fn configured(
    config: &Config,
    secrets: &Secrets,
) -> Result<(Destinations, BTreeMap<DestinationId, Arc<Switch>>), Failure> {
    if config.destinations.is_empty() {
        return Err(Failure::config("there is no destination").advice(
            "Nothing was started. Add --to stdout, or a table [destinations.NAME] to the \
             configuration.",
        ));
    }
    let mut switches = BTreeMap::new();
    let mut all: Destinations = Vec::new();
    for (id, broker) in brokers::open_all(config, secrets)? {
        let switch = Arc::new(Switch::new(broker));
        let definition = config.destinations[&id].definition(&id);
        all.push((definition, Arc::<Switch>::clone(&switch)));
        switches.insert(id, switch);
    }
    Ok((all, switches))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    /// A default stands in the engine and on the page of the configuration: it is the same.
    #[test]
    fn the_configurations_defaults_are_the_engines() {
        let line = ["postrider", "relay", "--store", "sqlite://shop.db", "--to", "stdout"];
        let Command::Relay(args) = Cli::parse_from(line).command else { unreachable!() };
        let settings = settings(&args, &Config::default()).unwrap();
        assert_eq!(settings, Settings::default());
    }

    /// INV-5: where little may wait, one key does not take all of it before it has a range.
    #[test]
    fn a_key_takes_a_hundredth_of_what_may_wait() {
        let of = [(1, 1), (5_000, 50), (1_000_000, 10_000), (u64::MAX, 10_000)];
        assert!(of.iter().all(|(most, part)| range_after(*most) == *part));
    }
}
