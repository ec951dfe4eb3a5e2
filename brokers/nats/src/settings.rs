//! What the operator says: servers, who we are, whom to believe, and times.
//!
//! Invariant: `Debug` shows no secret, and no more of an address than its host.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::ServerAddr;
use percent_encoding::percent_decode_str;
use postrider_core::{Error, ErrorKind, Result, TopicRule, http_hosts};

/// The longest deadline of a publish.
const DEADLINE_MAX: Duration = Duration::from_secs(10 * 60);
/// The most batches under way at once.
const BATCHES_MAX: u32 = 1_024;

/// The settings of a connection to NATS.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NatsSettings {
    /// Servers of one cluster, as `nats://host:port` or `tls://host:port`. Others of the cluster are learnt
    /// from them. `user:password@` or `token@` before the first host says who we are, if `credentials` does
    /// not.
    pub servers: Vec<Address>,
    /// Who we are. Default: nobody.
    pub credentials: Credentials,
    /// Whom to believe, and with which certificate to show who we are.
    pub tls: Tls,
    /// The domain of JetStream whose streams are meant, which need not be the one of the servers: a leaf node has one of its
    /// own. Default: that of the servers.
    pub domain: Option<String>,
    /// Where the servers tell their operators how they are set, as `http://one:8222,two:8222`: what `examine` cannot know
    /// otherwise, which is how often they force their files to the disk. Default: nowhere.
    pub monitoring: Option<String>,
    /// From the beginning of a publish to its last acknowledgement, waiting for a connection included.
    /// Default 4 s: less than the relay's own publish deadline (5 s), so that each event is named in the
    /// answer.
    pub deadline: Duration,
    /// Batches under way at once. Default 8: enough to fill the round trip to a stream of three replicas.
    pub batches_in_flight: u32,
    /// Publish with core NATS, which keeps nothing: whoever does not listen at that moment never hears of the
    /// event. Default: no.
    pub allow_lossy: bool,
}

/// Where a server is. Shown without what stands before the `@`.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    /// Where it is, with nothing of a secret, and who we are there: `user:password@`, or `token@`.
    ///
    /// # Errors
    /// `Config` if it is no address.
    pub(crate) fn parse(&self) -> Result<(ServerAddr, Credentials)> {
        let unusable = |said: String| wrong(format!("`{self}` is no address of NATS: {said}"));
        let parsed: ServerAddr = self.0.parse().map_err(|error| unusable(format!("{error}")))?;
        if parsed.host().is_empty() {
            return Err(unusable("the host is missing".into()));
        }
        let decoded = |text: &str| {
            let text = percent_decode_str(text).decode_utf8();
            text.map(Cow::into_owned)
                .map_err(|_| unusable("what is before the @ is no text".into()))
        };
        let credentials = match (parsed.username(), parsed.password()) {
            (None, _) => Credentials::None,
            (Some(token), None) => Credentials::Token(decoded(token)?.into()),
            (Some(name), Some(password)) => {
                Credentials::User { name: decoded(name)?, password: decoded(password)?.into() }
            }
        };
        let mut url = parsed.into_inner();
        if !matches!(url.path(), "" | "/") {
            return Err(unusable(
                "it is nats://HOST:PORT, and a subject has a setting of its own".into(),
            ));
        }
        // The client shows its addresses in its log. Both can only fail where there is nothing to remove.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        let bare = ServerAddr::from_url(url).map_err(|error| unusable(format!("{error}")))?;
        Ok((bare, credentials))
    }

    /// The servers of it, where hosts stand with commas between. Scheme and who we are stand before the first one, and count
    /// for all: a comma of a password stands before the `@`.
    fn each(self) -> Vec<Address> {
        let Some((scheme, rest)) = self.0.split_once("://") else { return vec![self] };
        let (who, hosts) =
            rest.rsplit_once('@').map_or(("", rest), |(who, _)| rest.split_at(who.len() + 1));
        let each = hosts.split(',').map(|host| Address(format!("{scheme}://{who}{}", host.trim())));
        each.collect()
    }
}

impl<T: Into<String>> From<T> for Address {
    fn from(text: T) -> Address {
        Address(text.into())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("nats", &self.0));
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        let host = host.split(['/', '?', '#']).next().unwrap_or_default();
        write!(f, "{scheme}://{host}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
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

/// Who we are, for the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credentials {
    /// Nobody; a server may know us by a client certificate all the same.
    #[default]
    None,
    /// A token.
    Token(Secret),
    /// A user and a password.
    User {
        /// The user's name.
        name: String,
        /// The password.
        password: Secret,
    },
    /// The seed of a user's nkey, `SU…`. It signs; it is never sent.
    Nkey(Secret),
    /// The content of a credentials file: a JWT, and the seed that goes with it.
    Creds(Secret),
}

/// Encryption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Refuse a server that does not encrypt. An address with `tls://` says the same.
    pub required: bool,
    /// A file of root certificates in PEM to believe in place of the system's.
    pub roots: Option<PathBuf>,
    /// Files of our certificate and its key in PEM, for a server that asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl NatsSettings {
    /// The defaults, with one server, or several of a cluster: `nats://one:4222,two:4222`.
    pub fn new(servers: impl Into<Address>) -> NatsSettings {
        NatsSettings {
            servers: servers.into().each(),
            credentials: Credentials::None,
            tls: Tls::default(),
            domain: None,
            monitoring: None,
            deadline: Duration::from_secs(4),
            batches_in_flight: 8,
            allow_lossy: false,
        }
    }

    /// Who we are: what was said, else what stands in the first address.
    ///
    /// # Errors
    /// `Config` if that cannot be read, without repeating it.
    pub(crate) fn identity(&self) -> Result<Credentials> {
        match (&self.credentials, self.servers.first()) {
            (Credentials::None, Some(server)) => Ok(server.parse()?.1),
            (credentials, _) => Ok(credentials.clone()),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.servers.is_empty() {
            return Err(wrong("`servers` names at least one server"));
        }
        for server in &self.servers {
            server.parse()?;
        }
        if let Some(domain) = self.domain.as_deref()
            && let Some(why) = TopicRule::Word.unusable(domain)
        {
            return Err(wrong(format!("`domain` {:?}: {why}", domain)));
        }
        self.monitors()?;
        if self.deadline.is_zero() || self.deadline > DEADLINE_MAX {
            return Err(wrong("`deadline` is more than nothing and at most 10 min"));
        }
        if !(1..=BATCHES_MAX).contains(&self.batches_in_flight) {
            return Err(wrong(format!("`batches_in_flight` is 1 to {BATCHES_MAX}")));
        }
        Ok(())
    }

    /// The hosts at which servers tell how they are set.
    ///
    /// # Errors
    /// `Config` if that is no such address.
    pub(crate) fn monitors(&self) -> Result<Vec<String>> {
        let hosts = self.monitoring.as_deref().map(http_hosts).transpose();
        hosts.map(Option::unwrap_or_default).map_err(|why| wrong(format!("`monitoring`: {why}")))
    }

    /// Where JetStream is asked: what its subjects begin with.
    pub(crate) fn api(&self) -> String {
        match &self.domain {
            Some(domain) => format!("$JS.{domain}.API"),
            None => "$JS.API".to_owned(),
        }
    }

    /// An error, with the domain that was asked where that is not the servers' own.
    pub(crate) fn within(&self, error: Error) -> Error {
        match &self.domain {
            Some(domain) => error.context("domain", domain),
            None => error,
        }
    }

    /// The servers, for a message.
    pub(crate) fn shown(&self) -> String {
        let shown: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        shown.join(", ")
    }
}

pub(crate) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, "open nats").message(message)
}

/// What is consumed, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubscriptionSettings {
    /// The stream.
    pub stream: String,
    /// The name of the durable consumer: instances with the same name share the work.
    pub group: String,
    /// The subjects to take; all of the stream if there is none. One. Where a word of it is `{partition:8}`, as
    /// in the topic of a route, there is a durable consumer for each of the eight, with one unsettled delivery
    /// at a time: each key is in order across instances and crashes, and the instances share the partitions.
    pub subject: Option<String>,
    /// How long a delivery is ours without being extended. Default 30 s, as the server has it.
    pub visibility: Duration,
    /// Deliveries that may be unsettled at once in the whole group. Default 1,000, as the server has it. With
    /// one, the order of the stream holds across instances and crashes. Of no meaning with partitions.
    pub unsettled_max: u32,
    /// Where a new group begins. Default: with the oldest message of the stream.
    pub from_now: bool,
    /// The subject that takes what was refused for good, with the reason as headers. A stream has to take
    /// it. Without one a refused message is ended on the server, which tells nobody but its advisories.
    pub dead_letters: Option<String>,
}

impl SubscriptionSettings {
    /// The defaults, for a stream and a group.
    pub fn new(stream: &str, group: &str) -> SubscriptionSettings {
        SubscriptionSettings {
            stream: stream.to_owned(),
            group: group.to_owned(),
            subject: None,
            visibility: Duration::from_secs(30),
            unsettled_max: 1_000,
            from_now: false,
            dead_letters: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F32: settings may be logged.
    #[test]
    fn debug_shows_no_secret() {
        let mut settings = NatsSettings::new("nats://joe:pa55@nats.example:4222/hush");
        settings.credentials =
            Credentials::User { name: "joe".to_owned(), password: "sesame".into() };
        let text = format!("{settings:?}");
        for secret in ["pa55", "sesame", "hush"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(text.contains("nats://nats.example:4222"));
        for credentials in [
            Credentials::Token("hush".into()),
            Credentials::Nkey("hush".into()),
            Credentials::Creds("hush".into()),
        ] {
            assert!(!format!("{credentials:?}").contains("hush"));
        }
    }

    /// F36: who we are may stand in the address, and is taken out of it.
    #[test]
    fn an_address_may_say_who_we_are() {
        let user = |name: &str, password: &str| Credentials::User {
            name: name.to_owned(),
            password: password.into(),
        };
        for (text, expected) in [
            ("nats://a:4222", Credentials::None),
            ("nats://t0%40ken@a:4222", Credentials::Token("t0@ken".into())),
            ("nats://joe:pa%3A55@a:4222", user("joe", "pa:55")),
        ] {
            let settings = NatsSettings::new(text);
            assert_eq!(settings.identity().unwrap(), expected, "{text}");
            let (bare, _) = settings.servers[0].parse().unwrap();
            assert_eq!(bare.as_url_str(), "nats://a:4222");
        }
        let mut settings = NatsSettings::new("nats://joe:pa55@a:4222");
        settings.credentials = Credentials::Token("said".into());
        assert_eq!(settings.identity().unwrap(), Credentials::Token("said".into()));
        let wrong = Address::from("kafka://joe:pa55@a").parse().unwrap_err();
        assert!(!wrong.to_string().contains("pa55"), "{wrong}");
    }

    /// With one server alone a program does not start while that one is away, however well its cluster is.
    #[test]
    fn hosts_with_commas_between_are_servers() {
        for (text, expected) in [
            ("nats://a:4222", &["nats://a:4222"][..]),
            ("nats://a:4222,b:4223", &["nats://a:4222", "nats://b:4223"]),
            ("tls://joe:p,5@a:4222, [::1]:4223", &["tls://a:4222", "tls://[::1]:4223"]),
        ] {
            let settings = NatsSettings::new(text);
            assert!(settings.check().is_ok(), "{text}");
            let shown: Vec<String> = settings.servers.iter().map(ToString::to_string).collect();
            assert_eq!(shown, expected);
        }
        let settings = NatsSettings::new("nats://joe:p,5@a:4222,b:4222");
        let joe = Credentials::User { name: "joe".to_owned(), password: "p,5".into() };
        assert_eq!(settings.identity().unwrap(), joe);
        for wrong in ["nats://a:4222,", "nats://a:4222,b:70000", "nats://a:4222,nats://b:4222"] {
            assert!(NatsSettings::new(wrong).check().is_err(), "{wrong}");
        }
    }

    #[test]
    fn senseless_settings_are_refused() {
        let good = NatsSettings::new("nats://127.0.0.1:4222");
        assert!(good.check().is_ok());
        let none = NatsSettings { servers: Vec::new(), ..good.clone() };
        let hasty = NatsSettings { deadline: Duration::ZERO, ..good.clone() };
        let idle = NatsSettings { batches_in_flight: 0, ..good };
        for settings in [none, hasty, idle] {
            assert_eq!(settings.check().unwrap_err().kind(), ErrorKind::Config);
        }
        for domain in ["", "a.b", "a b", "*", ">", "a\r\nPUB b 0", &"a".repeat(256)] {
            let mut settings = NatsSettings::new("nats://127.0.0.1:4222");
            settings.domain = Some(domain.to_owned());
            let refused = settings.check().unwrap_err();
            assert!(refused.to_string().contains("`domain`"), "{refused}");
        }
        let mut settings = NatsSettings::new("nats://127.0.0.1:4222");
        settings.monitoring = Some("https://127.0.0.1:8222".to_owned());
        let refused = settings.check().unwrap_err();
        assert!(refused.to_string().contains("`monitoring`"), "{refused}");
        for server in ["nats://127.0.0.1:99999", "nats://", "nats://a:4222/shop", "kafka://a:9092"]
        {
            let refused = NatsSettings::new(server).check().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Config, "{server}");
        }
    }
}
