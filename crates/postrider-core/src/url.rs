//! Addresses of stores and destinations as people write them: `scheme://…`, never shown with a
//! password.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind};

/// An address like `sqlite://shop.db`, `local://queue.db/orders`, `stdout`, or
/// `postgres://user:secret@host/db`.
///
/// Only the scheme is interpreted here; the rest belongs to the adapter. `Display` and `Debug` hide
/// whatever stands between `//` and `@`, and the values of the query.
///
/// ```
/// use postrider_core::TargetUrl;
/// let url: TargetUrl = "postgres://shop:hunter2@db/orders?password=x".parse()?;
/// assert_eq!(url.scheme(), "postgres");
/// assert_eq!(url.to_string(), "postgres://***@db/orders?password=***");
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TargetUrl {
    scheme: String,
    rest: String,
}

impl TargetUrl {
    /// What stands before `://`, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What stands after `://`, secrets included: for the adapter that connects, never for a person.
    pub fn expose(&self) -> &str {
        &self.rest
    }

    /// What stands after `://` and before a `?`.
    pub fn path(&self) -> &str {
        self.rest.split_once('?').map_or(&*self.rest, |(path, _)| path)
    }

    /// The value of a parameter of the query, as it was written.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.rest.split_once('?')?;
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find_map(|(key, value)| (key == name).then_some(value))
    }
}

impl FromStr for TargetUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<TargetUrl, Error> {
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let begins = scheme.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
        if !begins || !scheme.chars().all(valid) {
            // The text is not repeated: what cannot be read as an address may hold a secret.
            return Err(Error::new(ErrorKind::Config, "parse address")
                .message("an address begins with a scheme, like sqlite://shop.db"));
        }
        Ok(TargetUrl { scheme: scheme.to_ascii_lowercase(), rest: rest.to_owned() })
    }
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scheme)?;
        if self.rest.is_empty() {
            return Ok(());
        }
        f.write_str("://")?;
        let (path, query) = match self.rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*self.rest, None),
        };
        // A password may hold a `?` that nobody encoded: then nothing before the `@` is a path.
        if query.is_some_and(|query| query.contains('@')) {
            return f.write_str("***");
        }
        match path.rsplit_once('@') {
            Some((_, host)) => write!(f, "***@{host}")?,
            None => f.write_str(path)?,
        }
        for (index, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
            let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
            write!(f, "{}{name}=***", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// So many hosts are named at most: a cluster has three or five servers.
const HOSTS_MAX: usize = 16;

/// The hosts of `http://one:8222,two:8222`, each with its port: servers that are asked one by one.
///
/// # Errors
/// What it has to be. The text is not repeated: it may hold a secret.
///
/// ```
/// let hosts = postrider_core::http_hosts("http://one:8222,[::1]:8222")?;
/// assert_eq!(hosts, ["one:8222", "[::1]:8222"]);
/// assert!(postrider_core::http_hosts("https://one:8222").is_err());
/// # Ok::<(), &'static str>(())
/// ```
pub fn http_hosts(text: &str) -> Result<Vec<String>, &'static str> {
    const FORM: &str = "it is http://HOST:PORT, with more hosts behind commas";
    let hosts = text.strip_prefix("http://").ok_or(FORM)?;
    let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
    let host = |host: &str| {
        let (name, port) = host.rsplit_once(':').ok_or(FORM)?;
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let named = match bare {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
                !name.is_empty() && name.chars().all(letter)
            }
        };
        let numbered = port.parse::<u16>().is_ok_and(|port| port > 0);
        if named && numbered { Ok(host.to_owned()) } else { Err(FORM) }
    };
    let hosts: Vec<String> =
        hosts.split(',').map(|it| host(it.trim())).collect::<Result<_, _>>()?;
    if hosts.len() > HOSTS_MAX { Err("it names 16 hosts at most") } else { Ok(hosts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `?` in a password that was not encoded ends what a reader takes for the path: what stands before it is a part of the
    /// password as well.
    #[test]
    fn a_password_with_a_question_mark_is_not_shown() {
        for text in
            ["nats://user:hun?ter2@host:4222/s", "x://u:hun?ter=2@host", "x://u:a/hun?ter@h"]
        {
            let url: TargetUrl = text.parse().unwrap();
            assert!(!url.to_string().contains("hun") && !url.to_string().contains("ter"), "{url}");
        }
    }

    #[test]
    fn hosts_have_ports_and_nothing_else() {
        assert_eq!(http_hosts("http://a:1, b.c:2/").unwrap(), ["a:1", "b.c:2"]);
        for wrong in [
            "",
            "a:1",
            "http://",
            "http://a",
            "http://a:0",
            "http://a:70000",
            "http://a:1,",
            "http://joe:pa55@a:1",
            "http://a:1/varz",
            "http://a b:1",
            "http://[a]:1",
            "https://a:1",
        ] {
            assert!(!http_hosts(wrong).unwrap_err().contains("pa55"), "{wrong}");
        }
        assert!(http_hosts(&format!("http://{}", ["a:1"; 17].join(","))).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        for text in ["nats://token@host:4222/s", "x://a:b@c@d/e?key=secret&f=secret"] {
            let url: TargetUrl = text.parse().unwrap();
            let shown = format!("{url} {url:?}");
            for secret in ["token", "a:b", "secret"] {
                assert!(!shown.contains(secret), "{shown}");
            }
        }
        let error = "hunter2@db".parse::<TargetUrl>().unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn a_bare_scheme_is_an_address() {
        let url: TargetUrl = "stdout".parse().unwrap();
        assert_eq!((url.scheme(), url.path(), url.to_string().as_str()), ("stdout", "", "stdout"));
    }
}
