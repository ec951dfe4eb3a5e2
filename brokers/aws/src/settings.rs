//! What the operator says: the region, who we are, whom to believe, and times.
//!
//! Invariant: `Debug` shows no secret, and no more of an address than its host.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};

/// The longest deadline of a publish.
const DEADLINE_MAX: Duration = Duration::from_secs(10 * 60);
/// The most batches under way at once.
const BATCHES_MAX: u32 = 256;
/// What no service of these takes more of in one message.
const MESSAGE_BYTES_MAX: u32 = 1024 * 1024;
/// Digits of an account's number.
const ACCOUNT_DIGITS: usize = 12;

/// The settings of a connection to services of AWS.
#[derive(Clone)]
#[non_exhaustive]
pub struct AwsSettings {
    /// The region, such as `eu-west-1`. Default: what the environment, the profile, or the machine says.
    pub region: Option<String>,
    /// Where the service is, as `https://host:port`, if not where the region has it: an endpoint of a private
    /// network, or LocalStack.
    pub endpoint: Option<String>,
    /// Who we are. Default: the chain of the SDK.
    pub credentials: Credentials,
    /// The account, twelve digits, whose queues and topics are meant where a name does not say it. Default: for
    /// queues that of the credentials; topics of SNS have to be named by their ARN then.
    pub account: Option<String>,
    /// A file of root certificates in PEM to believe in place of the system's.
    pub roots: Option<PathBuf>,
    /// From the beginning of a publish to its last answer. Default 4 s: less than the relay's own publish
    /// deadline (5 s), so that each event is named in the answer.
    pub deadline: Duration,
    /// Batches under way at once. Default 8, each of up to 50 events in calls of ten: enough for some ten
    /// thousand events a second at a round trip of 20 ms.
    pub batches_in_flight: u32,
    /// Bytes of one message, and of the messages of one call. Default: what the service takes, 1 MiB for SQS and
    /// 256 KiB for SNS and EventBridge.
    pub message_bytes_max: Option<u32>,
    /// Every queue, or topic of SNS, is of the kind FIFO, and one that is not is refused: then a key's order holds
    /// to the consumer. Default: no, then both kinds are taken. Of no meaning for EventBridge.
    pub fifo: bool,
}

/// Who we are, for the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credentials {
    /// What the SDK finds: the environment, the default profile, a web identity, the container, the machine.
    #[default]
    Chain,
    /// A profile of the shared configuration files.
    Profile(String),
    /// A key.
    Key {
        /// Its public name.
        id: String,
        /// The secret that goes with it.
        secret: Secret,
        /// The session's token, if the key is a temporary one.
        session: Option<Secret>,
    },
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Secret {
        Secret(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Default for AwsSettings {
    fn default() -> AwsSettings {
        AwsSettings {
            region: None,
            endpoint: None,
            credentials: Credentials::Chain,
            account: None,
            roots: None,
            deadline: Duration::from_secs(4),
            batches_in_flight: 8,
            message_bytes_max: None,
            fifo: false,
        }
    }
}

impl AwsSettings {
    /// The defaults, in a region.
    pub fn new(region: &str) -> AwsSettings {
        AwsSettings { region: Some(region.to_owned()), ..AwsSettings::default() }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.deadline.is_zero() || self.deadline > DEADLINE_MAX {
            return Err(wrong("`deadline` is more than nothing and at most 10 min"));
        }
        if !(1..=BATCHES_MAX).contains(&self.batches_in_flight) {
            return Err(wrong(format!("`batches_in_flight` is 1 to {BATCHES_MAX}")));
        }
        if self.message_bytes_max.is_some_and(|max| !(1..=MESSAGE_BYTES_MAX).contains(&max)) {
            return Err(wrong(format!("`message_bytes_max` is 1 to {MESSAGE_BYTES_MAX}")));
        }
        if self.region.as_deref().is_some_and(|region| !is_region(region)) {
            return Err(wrong("`region` is a name such as eu-west-1"));
        }
        if self.account.as_deref().is_some_and(|account| !is_account(account)) {
            return Err(wrong("`account` has twelve digits"));
        }
        let web = |url: &str| url.starts_with("http://") || url.starts_with("https://");
        if self.endpoint.as_deref().is_some_and(|url| !web(url) || shown(url).ends_with("//")) {
            return Err(wrong("`endpoint` is an address like https://host:port"));
        }
        if self.endpoint.as_deref().is_some_and(has_user) {
            return Err(wrong(
                "`endpoint` holds a user or a password: say who we are by `profile` or a key",
            ));
        }
        Ok(())
    }
}

fn is_region(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=40).contains(&text.len()) && text.chars().all(plain)
}

fn is_account(text: &str) -> bool {
    text.len() == ACCOUNT_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn has_user(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    rest.split(['/', '?', '#']).next().is_some_and(|host| host.contains('@'))
}

/// An address without what stands before an `@` and behind the host.
pub(crate) fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}")
}

pub(crate) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, "open aws").message(message)
}

impl fmt::Debug for AwsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsSettings")
            .field("region", &self.region)
            .field("endpoint", &self.endpoint.as_deref().map(shown))
            .field("credentials", &self.credentials)
            .field("account", &self.account)
            .field("roots", &self.roots)
            .field("deadline", &self.deadline)
            .field("batches_in_flight", &self.batches_in_flight)
            .field("message_bytes_max", &self.message_bytes_max)
            .field("fifo", &self.fifo)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F32: settings may be logged.
    #[test]
    fn debug_shows_no_secret() {
        let mut settings = AwsSettings::new("eu-west-1");
        settings.endpoint = Some("https://joe:pa55@aws.example:4566/hush?hush".to_owned());
        settings.credentials = Credentials::Key {
            id: "AKIAEXAMPLE".to_owned(),
            secret: "sesame".into(),
            session: Some("token".into()),
        };
        let text = format!("{settings:?}");
        for secret in ["pa55", "sesame", "hush", "token"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(text.contains("https://aws.example:4566") && text.contains("AKIAEXAMPLE"));
    }

    #[test]
    fn senseless_settings_are_refused() {
        let good = AwsSettings::new("eu-west-1");
        assert!(good.check().is_ok());
        let wrong = [
            AwsSettings { deadline: Duration::ZERO, ..good.clone() },
            AwsSettings { batches_in_flight: 0, ..good.clone() },
            AwsSettings { message_bytes_max: Some(MESSAGE_BYTES_MAX + 1), ..good.clone() },
            AwsSettings { region: Some("Ireland!".to_owned()), ..good.clone() },
            AwsSettings { account: Some("12345".to_owned()), ..good.clone() },
            AwsSettings { endpoint: Some("localhost:4566".to_owned()), ..good.clone() },
            AwsSettings { endpoint: Some("https://".to_owned()), ..good.clone() },
            AwsSettings { endpoint: Some("https://joe:pa55@aws.example".to_owned()), ..good },
        ];
        for settings in wrong {
            assert_eq!(settings.check().unwrap_err().kind(), ErrorKind::Config, "{settings:?}");
        }
    }
}
