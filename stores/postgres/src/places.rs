//! The addresses at which a database may be, each to be tried by itself: the driver bounds how long a host takes to be
//! connected to, and would wait for a greeting without an end, while the next host may be well.
//!
//! Invariants: in the order in which the address names them, and a name has its addresses, as PostgreSQL's own programs try
//! them; but who said nothing a moment ago comes last. Names are looked up each time.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts};

/// For how long somebody who said nothing comes last. Others wait for each connection that is tried in vain.
const LAST_FOR: Duration = Duration::from_secs(60);

/// The port where none is named.
const PORT: u16 = 5432;

/// One of them.
#[derive(Debug)]
pub(crate) struct Place {
    /// What the driver is told, of this one alone.
    pub(crate) config: Config,
    /// Where it is; nothing where the driver has to find out.
    at: Option<(IpAddr, u16)>,
}

/// Who said nothing, and when.
#[derive(Debug, Default)]
pub(crate) struct Silent {
    seen: Mutex<HashMap<(IpAddr, u16), Instant>>,
}

impl Silent {
    /// This one took a connection, and said nothing.
    pub(crate) fn note(&self, place: &Place) {
        if let Some(at) = place.at {
            self.lock().insert(at, Instant::now());
        }
    }

    /// Those that were not noted, each in its place, before those that were.
    fn sort(&self, places: &mut [Place]) {
        let mut seen = self.lock();
        seen.retain(|_, at| at.elapsed() < LAST_FOR);
        places.sort_by_key(|place| place.at.is_some_and(|at| seen.contains_key(&at)));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(IpAddr, u16), Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where to try, with names as they lead now.
///
/// # Errors
/// No name leads anywhere, and why the last of them does not.
pub(crate) async fn of(config: &Config, silent: &Silent) -> std::io::Result<Vec<Place>> {
    let (hosts, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    let is_other = |length: usize| length > 0 && length != count;
    if count == 0
        || is_other(hosts.len())
        || is_other(addresses.len())
        || is_other_port(ports, count)
    {
        // The driver says what is wrong with it.
        return Ok(vec![Place { config: config.clone(), at: None }]);
    }
    let mut found = Vec::new();
    let mut failed = None;
    for index in shuffled(config, (0..count).collect()) {
        let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(PORT);
        let host = hosts.get(index);
        match (addresses.get(index), host) {
            (Some(address), host) => found.push(place(config, host, Some(*address), port)),
            (None, Some(Host::Tcp(name))) => match tokio::net::lookup_host((&**name, port)).await {
                Ok(all) => {
                    let all = shuffled(config, all.map(|all| all.ip()).collect());
                    found.extend(all.into_iter().map(|at| place(config, host, Some(at), port)));
                }
                Err(error) => failed = Some(error),
            },
            (None, host) => found.push(place(config, host, None, port)),
        }
    }
    silent.sort(&mut found);
    match failed {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// One port may stand for all hosts.
fn is_other_port(ports: &[u16], count: usize) -> bool {
    ports.len() > 1 && ports.len() != count
}

/// As the address wants it: in any order, or as it is.
fn shuffled<T: std::hash::Hash>(config: &Config, mut all: Vec<T>) -> Vec<T> {
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        let any = RandomState::new();
        all.sort_by_cached_key(|one| any.hash_one(one));
    }
    all
}

/// Everything that the address says, of one host alone.
fn place(from: &Config, host: Option<&Host>, address: Option<IpAddr>, port: u16) -> Place {
    let mut config = Config::new();
    config
        .port(port)
        .ssl_mode(from.get_ssl_mode())
        .ssl_negotiation(from.get_ssl_negotiation())
        .keepalives(from.get_keepalives())
        .keepalives_idle(from.get_keepalives_idle())
        .target_session_attrs(from.get_target_session_attrs())
        .channel_binding(from.get_channel_binding());
    match host {
        Some(Host::Tcp(name)) => _ = config.host(name),
        #[cfg(unix)]
        Some(Host::Unix(path)) => _ = config.host_path(path),
        None => {}
    }
    address.map(|address| config.hostaddr(address));
    from.get_user().map(|user| config.user(user));
    from.get_password().map(|password| config.password(password));
    from.get_dbname().map(|name| config.dbname(name));
    from.get_options().map(|options| config.options(options));
    from.get_application_name().map(|name| config.application_name(name));
    from.get_connect_timeout().map(|span| config.connect_timeout(*span));
    from.get_tcp_user_timeout().map(|span| config.tcp_user_timeout(*span));
    from.get_keepalives_interval().map(|span| config.keepalives_interval(span));
    from.get_keepalives_retries().map(|count| config.keepalives_retries(count));
    Place { config, at: address.map(|address| (address, port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(url: &str, silent: &Silent) -> Vec<Place> {
        of(&url.parse().unwrap(), silent).await.unwrap()
    }

    fn shown(places: &[Place]) -> Vec<String> {
        let of = |place: &Place| {
            let at = place.at.map(|(address, port)| format!("{address}:{port}"));
            at.unwrap_or_else(|| format!("{:?}", place.config.get_hosts()))
        };
        places.iter().map(of).collect()
    }

    /// What one of them is told is all that the address says, but for the other hosts.
    #[tokio::test]
    async fn one_place_is_told_everything() {
        let rest = "user=u password=p dbname=d options=-cgeqo=off application_name=n sslmode=require \
                    sslnegotiation=direct connect_timeout=3 tcp_user_timeout=4 keepalives=0 \
                    keepalives_idle=5 keepalives_interval=6 keepalives_retries=7 \
                    target_session_attrs=read-write channel_binding=disable";
        let one = format!("host=127.0.0.1 hostaddr=127.0.0.1 port=1 {rest}");
        let places = found(&format!("host=127.0.0.1 port=1 {rest}"), &Silent::default()).await;
        let [place] = &places[..] else { panic!("{places:?}") };
        assert_eq!(place.config, one.parse().unwrap());
    }

    #[tokio::test]
    async fn the_order_is_the_addresss_and_who_is_silent_comes_last() {
        let silent = Silent::default();
        let url = "host=127.0.0.2,127.0.0.3,127.0.0.4 port=1,2,3";
        let places = found(url, &silent).await;
        assert_eq!(shown(&places), ["127.0.0.2:1", "127.0.0.3:2", "127.0.0.4:3"]);
        silent.note(&places[0]);
        let places = found(url, &silent).await;
        assert_eq!(shown(&places), ["127.0.0.3:2", "127.0.0.4:3", "127.0.0.2:1"]);
        assert_eq!(shown(&found("host=127.0.0.2 port=2", &silent).await), ["127.0.0.2:2"]);
        // A socket has no address of its own; what the driver refuses it is given as it is.
        assert_eq!(found("host=/tmp,127.0.0.2 port=1", &silent).await.len(), 2);
        assert_eq!(found("host=127.0.0.2,127.0.0.3,127.0.0.4 port=1,2", &silent).await.len(), 1);
        assert!(of(&"host=no-such-host.invalid".parse().unwrap(), &silent).await.is_err());
    }
}
