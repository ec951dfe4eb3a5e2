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

#[cfg(test)]
mod tests {
    use super::*;

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
