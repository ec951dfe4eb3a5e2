//! Tables of DynamoDB: where they are, how a configuration says that they are used, and how they are made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_config::{Config, DerivedConfig};
use postrider_core::{Error, ErrorKind, InboxStore, Operator, OutboxSource};
use postrider_dynamodb::{
    Connection, Derivation, DynamoStore, Inbox, InboxOptions, Mapping, Options, Settings, Setup,
    init, recipe,
};

use crate::failure::Failure;
use crate::init::InitArgs;
use crate::store::Opened;
use crate::terminal;

/// How long one call may take of a command that somebody waits for: a transaction of 4 MB needs its time on a slow line, an
/// emulator on a busy machine needs it for a table, and nobody's lease runs meanwhile.
const PATIENT_CALL_MAX: Duration = Duration::from_secs(30);

/// Tables that nothing was asked of yet.
#[derive(Clone)]
pub(crate) struct Tables {
    settings: Settings,
    options: Options,
}

impl Tables {
    /// Reads an address: `dynamodb://REGION`, with `prefix`, `endpoint`, `table`, `pk`, `sk`, and `ttl`.
    ///
    /// # Errors
    /// A configuration failure.
    pub(crate) fn read(text: &str) -> Result<Tables, Failure> {
        // An endpoint may be any URL, but who we are is said elsewhere.
        if text.contains('@') {
            return Err(Failure::config("the store's address holds a user name or a password").advice(
                "Nothing was started. Credentials are found in the environment, a profile, or the machine's \
                 role.",
            ));
        }
        Ok(Tables { settings: text.parse()?, options: Options::default() })
    }

    /// The same as the configuration says that they are used.
    ///
    /// # Errors
    /// A configuration failure: something is asked for that this store does not do.
    pub(crate) fn used(mut self, config: &Config) -> Result<Tables, Failure> {
        if config.retention.archive.is_some() {
            return Err(Failure::config("no archive is written of a store on DynamoDB").advice(
                "Nothing was started. Published events leave by the table's time to live; leave `archive` \
                 out.",
            ));
        }
        self.options.stream = config.dynamodb.stream;
        self.options.backstop = config.dynamodb.backstop;
        self.options.mark_first = config.dynamodb.mark_first;
        self.options.derivation = mapping(&config.dynamodb.derived).map(Derivation::declared);
        if let Some(kept) = config.retention.outbox {
            self.options.retention = kept;
        }
        self.options.inbox.retention = config.retention.inbox;
        // How late a message may come again is known where it is consumed, and is compared there.
        self.options.inbox.horizon = Duration::ZERO;
        Ok(self)
    }

    /// Whether events are made of business items.
    pub(crate) fn derives(&self) -> bool {
        self.options.derivation.is_some()
    }

    /// The same for a command that makes tables or commits events.
    pub(crate) fn patient(&self) -> Tables {
        let mut patient = self.clone();
        patient.settings.call_time_max = PATIENT_CALL_MAX;
        patient
    }

    fn connection(&self) -> Result<Connection, Failure> {
        Ok(Connection::new(self.settings.clone())?)
    }

    /// A store that is not open yet. The stream has two readers at most, so whoever does not relay leaves
    /// it to those that do.
    ///
    /// # Errors
    /// A configuration failure.
    pub(crate) fn connect(&self, relays: bool) -> Result<Opened, Failure> {
        let connection = self.connection()?;
        let mut options = self.options.clone();
        options.relays_read_stream = options.stream;
        options.stream &= relays;
        let store = Arc::new(DynamoStore::with(connection.clone(), options));
        if relays {
            super::tally::remember(&store);
        }
        let source = Arc::<DynamoStore>::clone(&store) as Arc<dyn OutboxSource>;
        let inbox = Arc::new(Inbox::new(connection, self.options.inbox.clone())?);
        Ok(Opened { source, operator: store as Arc<dyn Operator>, inbox, postgres: None })
    }

    /// Looks whether the inbox's table is there, and at no other.
    ///
    /// # Errors
    /// What the service says.
    #[cfg(feature = "aws")]
    pub(crate) async fn see_inbox(&self) -> Result<(), Failure> {
        Ok(Inbox::new(self.connection()?, self.options.inbox.clone())?.open().await?)
    }

    /// The inbox. It asks for nothing but its own table, so that a consumer needs no other permission.
    ///
    /// # Errors
    /// What the service says.
    pub(crate) async fn inbox(
        &self,
        retention: Duration,
        horizon: Duration,
    ) -> Result<Arc<dyn InboxStore>, Failure> {
        let mut options = InboxOptions::default();
        options.retention = retention;
        options.horizon = horizon.min(options.horizon);
        let inbox = Inbox::new(self.connection()?, options)?;
        inbox.open().await?;
        Ok(Arc::new(inbox))
    }

    /// What `init` does, as commands.
    ///
    /// # Errors
    /// A configuration failure.
    pub(crate) fn recipe(&self, args: &InitArgs) -> Result<String, Failure> {
        Ok(recipe(&self.settings, &setup(args)?)?)
    }

    /// Makes what is absent.
    ///
    /// # Errors
    /// What the service says.
    pub(crate) async fn make(&self, args: &InitArgs) -> Result<(), Failure> {
        let made = init(&self.patient().connection()?, &setup(args)?).await.map_err(not_made)?;
        terminal::note(&match &*made {
            [] => format!("{self} has the tables already: nothing was changed"),
            tables => format!("created {} in {}", tables.join(", "), self.place()),
        });
        Ok(())
    }

    fn place(&self) -> &str {
        let Settings { endpoint, region, .. } = &self.settings;
        endpoint.as_deref().or(region.as_deref()).unwrap_or("the environment's region")
    }
}

/// What whoever makes tables can do about a refusal: the code's own advice is a relay's.
fn not_made(error: Error) -> Failure {
    let refused = error.kind() == ErrorKind::Unauthorized;
    let failure = Failure::from(error);
    match refused {
        true => failure.advice(
            "Nothing is lost, and what was made stays: the same command makes the rest. Give credentials \
             by environment, profile (AWS_PROFILE), or role, that may dynamodb:CreateTable, DescribeTable, \
             DescribeTimeToLive, UpdateTimeToLive, GetItem, and PutItem, and for a table of your own UpdateTable. Or have somebody make the \
             tables who may: `postrider init --print` prints what to make, and deploy/aws has it for Terraform.",
        ),
        false => failure,
    }
}

/// How events are made of items. A configuration that was checked has all of it, or nothing.
fn mapping(derived: &DerivedConfig) -> Option<Mapping> {
    let (kind, id) = derived.aggregate_type.as_ref().zip(derived.aggregate_id_from.as_ref())?;
    let mut mapping = Mapping::new(kind, id, derived.event_type.as_deref().unwrap_or_default());
    if let Some(attribute) = &derived.event_type_from {
        mapping = mapping.event_type_from(attribute);
    }
    Some(match &derived.payload_from {
        Some(attribute) => mapping.payload_from(attribute),
        None => mapping,
    })
}

fn setup(args: &InitArgs) -> Result<Setup, Failure> {
    if args.layout.is_some() {
        return Err(Failure::config("DynamoDB has no --layout")
            .advice("Nothing was changed. Leave it out, or name a PostgreSQL database."));
    }
    Ok(Setup { partitions: args.partitions, source: args.source.clone() })
}

impl fmt::Display for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynamoDB, table {} at {}", self.settings.names.outbox, self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R087: the configured retention of the inbox is that of every inbox the program opens, a mark by hand included.
    #[test]
    fn the_inbox_keeps_as_long_as_the_configuration_says() {
        let day = Duration::from_secs(24 * 3_600);
        for days in [14, 60] {
            let mut config = Config::default();
            config.retention.inbox = days * day;
            let tables = Tables::read("dynamodb://eu-central-1?endpoint=http://127.0.0.1:1");
            let used = tables.unwrap().used(&config).unwrap();
            assert_eq!(used.options.inbox.retention, days * day);
            assert!(used.options.inbox.check().is_ok());
        }
    }
}
