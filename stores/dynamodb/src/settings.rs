//! Settings: where the tables are, and what they and their attributes are called.
//!
//! Invariant: names are checked here once, so that everything behind may put them into requests.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result, TargetUrl};

/// The region that an address without one means, where an endpoint is given.
const REGION_LOCAL: &str = "us-east-1";

/// The longest a call may take with its repetitions, unless settings say otherwise: less than a lease by
/// far, and more than the slowest transaction.
const CALL_TIME_MAX: Duration = Duration::from_secs(5);

/// The longest name of a table that DynamoDB takes.
const TABLE_NAME_MAX: usize = 255;

/// The longest name of a key attribute that DynamoDB takes.
const ATTRIBUTE_NAME_MAX: usize = 255;

/// The attribute with the time to live in a table of the application's, unless it is named: one that nobody
/// else's items have, because the service deletes whatever has a past time there.
const TTL_SHARED: &str = "pr_expires_at";

/// What the tables and their attributes are called.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Names {
    /// The table with the events. One of the application's own is named by [`Names::in_table`].
    pub outbox: String,
    /// Whether the outbox table is the application's, with items of its own beside the events.
    pub shared: bool,
    /// Leases, destinations, and waiting events.
    pub store: String,
    /// What consumers have done.
    pub inbox: String,
    /// The outbox table's partition key.
    pub pk: String,
    /// The outbox table's sort key.
    pub sk: String,
    /// The outbox table's sparse index over what is pending.
    pub index: String,
    /// The outbox table's attribute with the time to live.
    pub ttl: String,
}

impl Default for Names {
    fn default() -> Names {
        Names::with_prefix("postrider-")
    }
}

impl Names {
    /// Three tables of our own whose names begin with a prefix.
    pub fn with_prefix(prefix: &str) -> Names {
        Names {
            outbox: format!("{prefix}outbox"),
            shared: false,
            store: format!("{prefix}store"),
            inbox: format!("{prefix}inbox"),
            pk: "pk".to_owned(),
            sk: "sk".to_owned(),
            index: "postrider-pending".to_owned(),
            ttl: "expires_at".to_owned(),
        }
    }

    /// Events among the application's own items: its table, and what its keys are called there. Events expire
    /// by `pr_expires_at`, so that no item of the application's does; another attribute is set in
    /// [`Names::ttl`] afterwards.
    #[must_use]
    pub fn in_table(mut self, table: &str, pk: &str, sk: &str) -> Names {
        (self.outbox, self.pk, self.sk) = (table.to_owned(), pk.to_owned(), sk.to_owned());
        (self.shared, self.ttl) = (true, TTL_SHARED.to_owned());
        self
    }

    /// Checks every name against what DynamoDB takes.
    ///
    /// # Errors
    /// `Config`, naming what is refused.
    pub fn check(&self) -> Result<()> {
        for table in [&self.outbox, &self.store, &self.inbox, &self.index] {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
            if !(3..=TABLE_NAME_MAX).contains(&table.len()) || !table.chars().all(allowed) {
                return Err(refused(format!(
                    "`{}` is no name of a table: 3 to {TABLE_NAME_MAX} out of letters, digits, \
                     and _ . -",
                    table.escape_debug()
                )));
            }
        }
        for name in [&self.pk, &self.sk, &self.ttl] {
            if name.is_empty() || name.len() > ATTRIBUTE_NAME_MAX {
                return Err(refused(format!(
                    "`{}` is no name of an attribute: 1 to {ATTRIBUTE_NAME_MAX} bytes",
                    name.escape_debug()
                )));
            }
        }
        if self.outbox == self.store || self.store == self.inbox || self.outbox == self.inbox {
            return Err(refused("outbox, store, and inbox must be tables of their own".to_owned()));
        }
        Ok(())
    }
}

/// Where the tables are.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// The region, or nothing where the environment says it.
    pub region: Option<String>,
    /// Another endpoint than the region's: an emulator, or a private one.
    pub endpoint: Option<String>,
    /// What the tables are called.
    pub names: Names,
    /// The longest a call may take with its repetitions; a single attempt takes half of it at most. 5 s.
    pub call_time_max: Duration,
}

/// An endpoint is shown without what may be a secret in it.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { region, endpoint, names, call_time_max } = self;
        f.debug_struct("Settings")
            .field("region", region)
            .field("endpoint", &endpoint.as_deref().map(shown))
            .field("names", names)
            .field("call_time_max", call_time_max)
            .finish()
    }
}

/// An endpoint as a person may see it.
fn shown(endpoint: &str) -> String {
    let url: Result<TargetUrl> = endpoint.parse();
    url.map_or_else(|_| "an endpoint that is no address".to_owned(), |url| url.to_string())
}

impl Settings {
    /// Checks the names, and that the endpoint is an address without credentials in it: those come from the
    /// environment, a profile, or a role, and what stands in an address ends up in logs.
    ///
    /// # Errors
    /// `Config`, naming what is refused.
    pub fn check(&self) -> Result<()> {
        self.names.check()?;
        let Some(endpoint) = &self.endpoint else { return Ok(()) };
        let url: TargetUrl = endpoint.parse()?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused("the endpoint does not begin with http:// or https://".to_owned()));
        }
        let authority = url.expose().split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') || url.expose().contains(['?', '#']) {
            return Err(refused(format!(
                "the endpoint {url} has more in it than host, port, and path; nothing was read: give \
                 credentials by environment, profile, or role"
            )));
        }
        Ok(())
    }

    /// Tables of a region.
    pub fn new(region: impl Into<String>, names: Names) -> Settings {
        Settings {
            region: Some(region.into()),
            endpoint: None,
            names,
            call_time_max: CALL_TIME_MAX,
        }
    }

    /// Tables at an endpoint, such as an emulator's.
    pub fn at(endpoint: impl Into<String>, names: Names) -> Settings {
        let region = Some(REGION_LOCAL.to_owned());
        Settings { region, endpoint: Some(endpoint.into()), names, call_time_max: CALL_TIME_MAX }
    }

    /// Whether the endpoint is on this machine: an emulator, which takes any credentials.
    pub(crate) fn is_local(&self) -> bool {
        let Some(rest) = self.endpoint.as_deref().and_then(|url| url.strip_prefix("http://"))
        else {
            return false;
        };
        ["127.0.0.1", "localhost", "[::1]"].iter().any(|host| {
            rest.strip_prefix(host)
                .is_some_and(|rest| matches!(rest.as_bytes().first(), None | Some(b':' | b'/')))
        })
    }

    /// A name for logs and health, without secrets.
    pub(crate) fn name(&self) -> String {
        let place = match (&self.endpoint, &self.region) {
            (Some(endpoint), _) => shown(endpoint),
            (None, Some(region)) => region.clone(),
            (None, None) => "the environment's region".to_owned(),
        };
        format!("dynamodb {} at {place}", self.names.outbox)
    }
}

impl FromStr for Settings {
    type Err = Error;

    /// Reads `dynamodb://REGION`, with the parameters `prefix` (of the tables), `endpoint`, and for a
    /// table that is the application's own `table`, `pk`, `sk`, and `ttl`. An empty region is the
    /// environment's.
    fn from_str(text: &str) -> Result<Settings> {
        const KNOWN: [&str; 6] = ["prefix", "endpoint", "table", "pk", "sk", "ttl"];
        let url: TargetUrl = text.parse()?;
        if url.scheme() != "dynamodb" {
            return Err(refused(format!("`{url}` does not begin with dynamodb://")));
        }
        let query = url.expose().split_once('?').map_or("", |(_, query)| query);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            if !KNOWN.contains(&name) {
                return Err(refused(format!(
                    "`{}` is no parameter of the address; known are {}",
                    name.escape_debug(),
                    KNOWN.join(", ")
                )));
            }
        }
        let given = |name: &str| url.parameter(name).map(str::to_owned);
        let region = url.path().trim_end_matches('/');
        if region.contains('@') {
            return Err(refused(format!("{url} names somebody; credentials stand in no address")));
        }
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !region.chars().all(allowed) {
            return Err(refused(format!("`{}` is no region", region.escape_debug())));
        }
        let endpoint = given("endpoint");
        let local = || endpoint.is_some().then(|| REGION_LOCAL.to_owned());
        let region = if region.is_empty() { local() } else { Some(region.to_owned()) };
        let mut names = given("prefix").map_or_else(Names::default, |p| Names::with_prefix(&p));
        let own = |name: &str, value: String| given(name).unwrap_or(value);
        (names.pk, names.sk) = (own("pk", names.pk), own("sk", names.sk));
        if let Some(table) = given("table") {
            let (pk, sk) = (names.pk.clone(), names.sk.clone());
            names = names.in_table(&table, &pk, &sk);
        }
        names.ttl = own("ttl", names.ttl);
        let settings = Settings { region, endpoint, names, call_time_max: CALL_TIME_MAX };
        settings.check()?;
        Ok(settings)
    }
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Config, "read address").message(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_region_prefix_and_endpoint() {
        let plain: Settings = "dynamodb://eu-central-1".parse().unwrap();
        assert_eq!(plain, Settings::new("eu-central-1", Names::default()));
        let local: Settings =
            "dynamodb://?prefix=shop-&endpoint=http://127.0.0.1:8000".parse().unwrap();
        assert_eq!(local, Settings::at("http://127.0.0.1:8000", Names::with_prefix("shop-")));
        assert!(local.is_local() && !plain.is_local());
        let own: Settings = "dynamodb://us-east-1?table=Shop&pk=PK&sk=SK".parse().unwrap();
        assert_eq!(own.names, Names::default().in_table("Shop", "PK", "SK"));
        let other = Settings::at("http://localhost.example", Names::default());
        assert!(!other.is_local(), "a name that merely begins so");
    }

    /// No password is taken in an address, and none is shown, whoever prints what.
    #[test]
    fn an_address_with_a_password_is_refused_and_does_not_show_it() {
        for given in ["http://relay:hunter2@db.example", "http://db.example/?key=hunter2"] {
            let settings = Settings::at(given, Names::default());
            let refused = settings.check().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Config);
            let told = [
                format!("{refused} {refused:?}"),
                format!("{settings:?} {}", settings.name()),
                format!("{:?}", crate::Connection::new(settings).unwrap_err()),
                format!("{:?}", format!("dynamodb://?endpoint={given}").parse::<Settings>()),
                format!("{:?}", "dynamodb://relay:hunter2@eu-central-1".parse::<Settings>()),
            ];
            assert!(!told.iter().any(|text| text.contains("hunter2")), "{told:?}");
        }
        let plain = Settings::at("http://127.0.0.1:8000", Names::default());
        plain.check().unwrap();
        assert!(format!("{plain:?}").contains("http://127.0.0.1:8000"));
        assert!(Settings::at("ftp://x", Names::default()).check().is_err());
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (bad, why) in [
            ("dynamodb://eu-central-1?prefxi=a", "prefxi"),
            ("dynamodb://EU CENTRAL", "region"),
            ("dynamodb://x?prefix=a%20b", "table"),
            ("dynamodb://x?table=postrider-store", "their own"),
            ("postgres://x", "dynamodb://"),
        ] {
            let error = bad.parse::<Settings>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{bad}");
            assert!(error.to_string().contains(why), "{bad}: {error}");
        }
    }
}
