//! Where the database is, and a connection to it.
//!
//! Invariant: the address, which may hold a password, is in no `Debug`, error, or name.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::During;

/// How long to wait for a connection. Half a lease heartbeat's patience: whoever waits tries again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long what was sent may stay unacknowledged by the other machine before the connection counts as
/// lost (`tcp_user_timeout`): well below a lease, so that a cut network is noticed while it matters.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// A database's address.
#[derive(Clone)]
pub(crate) struct Address {
    config: Config,
    tls: MakeRustlsConnect,
    name: Arc<str>,
}

/// What moves a connection's bytes, and hears its notifications.
pub(crate) type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

impl Address {
    /// Reads `postgres://user:password@host:port/database?sslmode=…`, or `host=… dbname=…`.
    pub(crate) fn parse(url: &str) -> Result<Address> {
        let mut config: Config = url.parse().map_err(|_: tokio_postgres::Error| {
            Error::new(ErrorKind::Config, "read address").message(
                "not an address of a PostgreSQL database; it looks like \
                 postgres://user:password@host:5432/database",
            )
        })?;
        if config.get_application_name().is_none() {
            config.application_name("postrider");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        let name = name(&config);
        Ok(Address { config, tls: tls()?, name: name.into() })
    }

    /// Host and database, without user and password.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The database's own name.
    pub(crate) fn database(&self) -> &str {
        self.config.get_dbname().or(self.config.get_user()).unwrap_or("postgres")
    }

    /// Whether the connection may go unencrypted.
    pub(crate) fn may_be_plain(&self) -> bool {
        !matches!(self.config.get_ssl_mode(), SslMode::Require)
    }

    /// A connection, and what has to be driven for it to move.
    pub(crate) async fn connect(&self, operation: &'static str) -> Result<(Client, Wire)> {
        self.config
            .connect(self.tls.clone())
            .await
            .during(operation)
            .map_err(|error| error.context("store", self.name()))
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Address").field(&self.name).finish()
    }
}

fn name(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        _ => "localhost".to_owned(),
    };
    let port = match config.get_ports().first() {
        Some(port) if *port != 5432 => format!(":{port}"),
        _ => String::new(),
    };
    let database = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    format!("postgres://{host}{port}/{database}")
}

fn tls() -> Result<MakeRustlsConnect> {
    let mut roots = rustls::RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::new(ErrorKind::Internal, "set up TLS").source(e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_nowhere_to_be_seen() {
        let address = Address::parse("postgres://app:s3cret@db.example:6000/shop").unwrap();
        assert_eq!(address.name(), "postgres://db.example:6000/shop");
        assert!(!format!("{address:?}").contains("s3cret"));
        let refused = Address::parse("postgres://app:s3cret@db:port/shop").unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("s3cret"));
    }
}
