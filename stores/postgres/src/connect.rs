//! A connection to the database, made anew as often as one is needed.
//!
//! Invariants: bounded, whatever the other side does or does not answer; and nothing is remembered from one
//! connection to the next that may have changed meanwhile: host names are looked up, certificates read, and
//! the address asked for again ([`Address::again`]).

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address;
use crate::error::of_postgres;
use crate::places::{self, Silent};
use crate::tls::{self, Check, Tls};

/// How long host, encryption, and password of one place may take together. The driver bounds the host alone, and a server
/// that stopped in the midst of a greeting would be waited for for ever.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a server may take to be told that a statement is not wanted any more: others wait meanwhile.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Says the address, as it is now.
pub(crate) type Provider = Arc<dyn Fn() -> Result<String> + Send + Sync>;

/// A database's address.
#[derive(Clone)]
pub(crate) struct Address {
    config: Config,
    tls: Tls,
    name: Arc<str>,
    again: Option<Provider>,
    silent: Arc<Silent>,
}

/// What moves a connection's bytes, and hears its notifications.
pub(crate) type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

impl Address {
    /// Reads `postgres://user:password@host:port/database?sslmode=…`, or `host=… dbname=…`.
    pub(crate) fn parse(url: &str) -> Result<Address> {
        let address::Read { config, tls } = address::read(url)?;
        // What cannot be read at the beginning is a mistake in the configuration.
        tls.connector(false)?;
        let name = address::name(&config);
        Ok(Address { config, tls, name: name.into(), again: None, silent: Arc::default() })
    }

    /// An address that is asked for again at each connection: its password may change.
    pub(crate) fn again(provider: Provider) -> Result<Address> {
        let now = Address::parse(&provider()?)?;
        Ok(Address { again: Some(provider), ..now })
    }

    /// Host and database, without user and password.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What is not known of who answers, or who listens; `None` where it is known, or on this machine.
    pub(crate) fn doubt(&self) -> Option<&'static str> {
        let is_here = self.config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => {
                name == "localhost"
                    || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
            }
            #[cfg(unix)]
            Host::Unix(_) => true,
        });
        match (self.config.get_ssl_mode(), self.tls.check) {
            _ if is_here => None,
            (SslMode::Require, Check::Nothing) => {
                Some("the connection is encrypted, and nobody asks who answers")
            }
            (SslMode::Require, _) => None,
            _ => Some("the connection may go unencrypted, and nobody asks who answers"),
        }
    }

    /// A connection, and what has to be driven for it to move.
    pub(crate) async fn connect(&self, operation: &'static str) -> Result<(Client, Wire)> {
        let connected = async {
            let Some(again) = &self.again else {
                return self.greet(operation).await;
            };
            let now = again().and_then(|url| Address::parse(&url))?;
            Address { silent: Arc::clone(&self.silent), ..now }.greet(operation).await
        };
        connected.await.map_err(|error| error.context("store", self.name()))
    }

    /// Ends whatever statement a session is at, if its server can be told soon. A connection that is given up lasts until
    /// its statement has ended, and so does what the statement's transaction has locked.
    pub(crate) async fn cancel(&self, client: &Client) {
        let direct = self.config.get_ssl_negotiation() == SslNegotiation::Direct;
        let Ok(connector) = self.tls.connector(direct) else { return };
        let token = client.cancel_token();
        _ = tokio::time::timeout(CANCEL_TIMEOUT, token.cancel_query(connector)).await;
    }

    /// Tries one place after the other; of what went wrong the last is said.
    async fn greet(&self, operation: &'static str) -> Result<(Client, Wire)> {
        let looking =
            tokio::time::timeout(GREETING_TIMEOUT, places::of(&self.config, &self.silent));
        let places = match looking.await {
            Ok(Ok(places)) => places,
            Ok(Err(error)) => return Err(of_looking(operation, error)),
            Err(_) => {
                return Err(unavailable(
                    operation,
                    "nobody says in time where the database's host name leads",
                ));
            }
        };
        let direct = self.config.get_ssl_negotiation() == SslNegotiation::Direct;
        let mut failed = None;
        for place in places {
            let connecting = place.config.connect(self.tls.connector(direct)?);
            failed = Some(match tokio::time::timeout(GREETING_TIMEOUT, connecting).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => of_connecting(operation, error),
                Err(_) => {
                    self.silent.note(&place);
                    unavailable(operation, "the database's host answers, and the database does not")
                }
            });
        }
        Err(failed.unwrap_or_else(|| unavailable(operation, NOWHERE)))
    }
}

/// What is said of a name without an address.
const NOWHERE: &str = "the database's host name leads nowhere; it is looked up again at each try";

fn unavailable(operation: &'static str, message: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, operation).message(message)
}

fn of_looking(operation: &'static str, error: std::io::Error) -> Error {
    unavailable(operation, NOWHERE).source(error)
}

/// Why there is no connection, for whoever has to mend it.
fn of_connecting(operation: &'static str, error: tokio_postgres::Error) -> Error {
    let because = tls::refusal(&error).or_else(|| {
        let cause = std::error::Error::source(&error)?;
        if let Some(broken) = cause.downcast_ref::<std::io::Error>() {
            return reason(broken);
        }
        let plain = cause.to_string();
        plain.contains("does not support TLS").then(|| {
            "the server does not encrypt, and sslmode asks for it; nothing was sent".to_owned()
        })
    });
    match because {
        Some(message) => {
            Error::new(ErrorKind::Unavailable, operation).message(message).source(error)
        }
        None => of_postgres(operation, error),
    }
}

fn reason(broken: &std::io::Error) -> Option<String> {
    Some(match broken.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            "nothing listens at the database's address: it is down, starting, or elsewhere"
                .to_owned()
        }
        std::io::ErrorKind::TimedOut => "the database's host does not answer".to_owned(),
        _ => return None,
    })
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Address").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_nowhere_to_be_seen() {
        let address = Address::parse("postgres://app:s3cret@db.example:6000/shop").unwrap();
        assert_eq!(address.name(), "postgres://db.example:6000/shop");
        for (several, named) in [
            ("postgres://u:s3cret@a:6000,b:6001/shop", "postgres://a:6000,b:6001/shop"),
            ("host=a,b port=6000 user=u dbname=shop", "postgres://a:6000,b:6000/shop"),
            ("postgres://u@a,b/shop", "postgres://a,b/shop"),
        ] {
            assert_eq!(Address::parse(several).unwrap().name(), named);
        }
        assert!(!format!("{address:?}").contains("s3cret"));
        let refused = Address::parse("postgres://app:s3cret@db:port/shop").unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("s3cret"));
    }

    #[test]
    fn doubts_are_for_other_machines() {
        let doubts = |url: &str| Address::parse(url).unwrap().doubt().is_some();
        for known in [
            "postgres://localhost/a",
            "postgres://[::1]/a",
            "host=/tmp dbname=a",
            "postgres://h/a?sslmode=verify-full",
            "postgres://h/a?sslmode=verify-ca",
        ] {
            assert!(!doubts(known), "{known}");
        }
        for unknown in ["", "?sslmode=disable", "?sslmode=require"] {
            assert!(doubts(&format!("postgres://h/a{unknown}")), "{unknown}");
        }
    }

    /// F36: a password that was changed is used by the next connection.
    #[tokio::test]
    async fn the_address_is_asked_for_again() {
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let address = Address::again(Arc::new(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok("postgres://app:s3cret@127.0.0.1:1/shop".to_owned())
        }));
        let address = address.unwrap();
        for _ in 0..2 {
            let refused = address.connect("open store").await.err().expect("nobody is there");
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
            assert!(refused.to_string().contains("nothing listens"), "{refused}");
            assert!(!format!("{refused} {refused:?}").contains("s3cret"));
        }
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 3);
    }

    /// F36: a name that leads nowhere is said to.
    #[tokio::test]
    async fn a_host_without_an_address_is_said_to_have_none() {
        let address = Address::parse("postgres://no-such-host.invalid/shop").unwrap();
        let refused = address.connect("open store").await.err().expect("nobody is there");
        assert!(refused.to_string().contains("leads nowhere"), "{refused}");
    }
}
