//! A database's address as people write it: what the driver knows of it, and what it does not.
//!
//! Invariant: the address, which may hold a password, is in no `Debug`, error, or name.

use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::tls::{Check, Identity, Roots, Tls};

/// How long to wait for a connection. Half a lease heartbeat's patience: whoever waits tries again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long what was sent may stay unacknowledged by the other machine before the connection counts as
/// lost (`tcp_user_timeout`): well below a lease, so that a cut network is noticed while it matters.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be silent before the other machine is asked whether it is there: a session
/// that only listens sends nothing by itself.
const KEEPALIVES_IDLE: Duration = Duration::from_secs(30);

/// Keys that the driver does not know, or not all values of.
const OURS: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

/// What an address says.
pub(crate) struct Read {
    pub(crate) config: Config,
    pub(crate) tls: Tls,
}

/// Reads `postgres://user:password@host:port/database?sslmode=…`, or `host=… dbname=…`. The words mean
/// what they mean to PostgreSQL's own programs.
pub(crate) fn read(url: &str) -> Result<Read> {
    let (plain, ours) = if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        split_url(url)?
    } else {
        split_pairs(url)?
    };
    let mut config: Config = plain.parse().map_err(|_: tokio_postgres::Error| not_one())?;
    if config.get_application_name().is_none() {
        config.application_name("postrider");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(KEEPALIVES_IDLE);
    }
    let tls = encryption(&mut config, &ours)?;
    Ok(Read { config, tls })
}

/// Hosts and database, without user and password. Of several hosts all are named: which of them answers may change.
pub(crate) fn name(config: &Config) -> String {
    let host = |(index, host): (usize, &Host)| {
        let host = match host {
            Host::Tcp(host) => host.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        };
        // One port may stand for all of them.
        match config.get_ports().get(index).or_else(|| config.get_ports().first()) {
            Some(port) if *port != 5432 => format!("{host}:{port}"),
            _ => host,
        }
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    let hosts = if hosts.is_empty() { "localhost".to_owned() } else { hosts.join(",") };
    format!("postgres://{hosts}/{}", database(config))
}

fn database(config: &Config) -> &str {
    config.get_dbname().or_else(|| config.get_user()).unwrap_or("postgres")
}

fn not_one() -> Error {
    Error::new(ErrorKind::Config, "read address").message(
        "not an address of a PostgreSQL database; it looks like \
         postgres://user:password@host:5432/database",
    )
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Config, "read address").message(message)
}

type Pairs = Vec<(String, String)>;

fn encryption(config: &mut Config, ours: &Pairs) -> Result<Tls> {
    let of =
        |key: &str| ours.iter().rfind(|(known, _)| known == key).map(|(_, value)| value.as_str());
    let roots = match of("sslrootcert") {
        None | Some("system") => Roots::Public,
        Some(path) => Roots::File(path.into()),
    };
    // With a root of one's own the certificate is checked against it, as libpq does.
    let check = match (of("sslrootcert"), &roots) {
        (_, Roots::File(_)) => Check::Chain,
        (Some(_), Roots::Public) => Check::Name,
        (None, Roots::Public) => Check::Nothing,
    };
    let (mode, check) = match of("sslmode") {
        None | Some("prefer" | "allow") => (SslMode::Prefer, check),
        Some("disable") => (SslMode::Disable, Check::Nothing),
        Some("require") => (SslMode::Require, check),
        Some("verify-ca") => (SslMode::Require, check.max(Check::Chain)),
        Some("verify-full") => (SslMode::Require, Check::Name),
        Some(_) => {
            return Err(refused(
                "sslmode is `disable`, `prefer`, `require`, `verify-ca`, or `verify-full`".into(),
            ));
        }
    };
    config.ssl_mode(mode);
    let identity = match (of("sslcert"), of("sslkey")) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            Some(Identity { certificate: PathBuf::from(certificate), key: PathBuf::from(key) })
        }
        _ => return Err(refused("sslcert and sslkey go together".into())),
    };
    Ok(Tls { check, roots, identity })
}

/// The address without what is ours, and what is.
fn split_url(url: &str) -> Result<(String, Pairs)> {
    // A question mark may stand in a password.
    let after_password = url.find('@').unwrap_or(0);
    let Some(at) = url[after_password..].find('?').map(|at| at + after_password) else {
        return Ok((url.to_owned(), Pairs::new()));
    };
    let (mut rest, mut ours) = (Vec::new(), Pairs::new());
    for pair in url[at + 1..].split('&') {
        match pair.split_once('=') {
            Some((key, value)) if OURS.contains(&key) => {
                ours.push((key.to_owned(), decode(value).ok_or_else(not_one)?));
            }
            _ => rest.push(pair),
        }
    }
    let question = if rest.is_empty() { "" } else { "?" };
    Ok((format!("{}{question}{}", &url[..at], rest.join("&")), ours))
}

/// `%2F` is a slash.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// The same of `key=value key='a value'`, in which a backslash takes the next character as it is.
fn split_pairs(text: &str) -> Result<(String, Pairs)> {
    let (mut plain, mut ours) = (String::new(), Pairs::new());
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or_else(not_one)?;
        let value_and_on = after.trim_start();
        let (value, length) = value(value_and_on).ok_or_else(not_one)?;
        let key = key.trim();
        if OURS.contains(&key) {
            ours.push((key.to_owned(), value));
        } else {
            plain.push_str(key);
            plain.push('=');
            plain.push_str(&value_and_on[..length]);
            plain.push(' ');
        }
        rest = value_and_on[length..].trim_start();
    }
    Ok((plain, ours))
}

/// A value at the beginning of a text, and how long it is there.
fn value(text: &str) -> Option<(String, usize)> {
    let quoted = text.starts_with('\'');
    let (mut value, mut escaped) = (String::new(), false);
    for (at, letter) in text.char_indices().skip(usize::from(quoted)) {
        match letter {
            _ if escaped => {
                value.push(letter);
                escaped = false;
            }
            '\\' => escaped = true,
            '\'' if quoted => return Some((value, at + 1)),
            _ if !quoted && letter.is_whitespace() => return Some((value, at)),
            _ => value.push(letter),
        }
    }
    (!quoted).then_some((value, text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_does_not_know_is_read_here() {
        let url =
            "postgres://a:b?c@h/d?sslmode=verify-full&application_name=x&sslrootcert=%2Fr%20t.pem";
        let read_url = read(url).unwrap();
        assert_eq!(read_url.config.get_application_name(), Some("x"));
        assert_eq!(read_url.config.get_password(), Some(b"b?c".as_slice()));
        let expected =
            Tls { check: Check::Name, roots: Roots::File("/r t.pem".into()), identity: None };
        assert_eq!(read_url.tls, expected);
        assert_eq!(read_url.config.get_ssl_mode(), SslMode::Require);
        let pairs = r"host = h sslmode=verify-full dbname='d \' e' sslrootcert='/r t.pem' user=a";
        let read_pairs = read(pairs).unwrap();
        assert_eq!(read_pairs.tls, expected);
        assert_eq!(read_pairs.config.get_dbname(), Some("d ' e"));
        assert_eq!(read_pairs.config.get_user(), Some("a"));
    }

    #[test]
    fn each_mode_asks_for_what_it_asks_for_elsewhere() {
        let found = |rest: &str| {
            let read = read(&format!("postgres://h/d{rest}")).unwrap();
            (read.config.get_ssl_mode(), read.tls.check)
        };
        assert_eq!(found(""), (SslMode::Prefer, Check::Nothing));
        assert_eq!(found("?sslmode=disable"), (SslMode::Disable, Check::Nothing));
        assert_eq!(found("?sslmode=require"), (SslMode::Require, Check::Nothing));
        assert_eq!(found("?sslmode=require&sslrootcert=/r"), (SslMode::Require, Check::Chain));
        assert_eq!(found("?sslmode=require&sslrootcert=system"), (SslMode::Require, Check::Name));
        assert_eq!(found("?sslmode=verify-ca"), (SslMode::Require, Check::Chain));
        assert_eq!(found("?sslmode=verify-full"), (SslMode::Require, Check::Name));
        for wrong in ["?sslmode=maybe", "?sslcert=/c", "?sslrootcert=%2", "?unknown=1"] {
            let error = read(&format!("postgres://h/d{wrong}")).err().expect("refused");
            assert_eq!(error.kind(), ErrorKind::Config, "{wrong}");
        }
        assert!(read("host").is_err() && read("host='h").is_err());
    }
}
