//! Store addresses: which of them this program can open, and how.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_config::{Config, PostgresConfig};
use postrider_core::{InboxStore, Operator, OutboxSource, TargetUrl};
use postrider_postgres::PostgresStore;
use postrider_sqlite::SqliteStore;

use crate::database::Database;
use crate::dynamodb::Tables;
use crate::failure::Failure;
use crate::terminal::note;

/// The stores that work today, as they are written.
pub(crate) const WORKS: [&str; 3] =
    ["dynamodb://REGION", "postgres://HOST/DATABASE", "sqlite://PATH"];

/// Where a store is.
#[derive(Clone)]
pub(crate) enum Place {
    /// A file.
    Sqlite(PathBuf),
    /// A database of PostgreSQL.
    Postgres(Database),
    /// Tables of DynamoDB.
    Dynamo(Box<Tables>),
}

/// A store by all its sides.
pub(crate) struct Opened {
    pub(crate) source: Arc<dyn OutboxSource>,
    pub(crate) operator: Arc<dyn Operator>,
    pub(crate) inbox: Arc<dyn InboxStore>,
    /// The same, where it can do what the contracts do not ask for.
    pub(crate) postgres: Option<PostgresStore>,
}

impl Opened {
    fn of<S: OutboxSource + Operator + InboxStore + 'static>(store: S) -> Opened {
        let store = Arc::new(store);
        let source = Arc::<S>::clone(&store) as Arc<dyn OutboxSource>;
        let operator = Arc::<S>::clone(&store) as Arc<dyn Operator>;
        Opened { source, operator, inbox: store, postgres: None }
    }
}

impl Place {
    /// Reads an address. In that of a PostgreSQL database `?schema=`, `outbox=` and `inbox=` say how the
    /// tables are called, if not `postrider.outbox` and `postrider.inbox`.
    ///
    /// # Errors
    /// A configuration failure that lists what works, or says what this program was built without.
    pub(crate) fn read(text: &str) -> Result<Place, Failure> {
        let url: TargetUrl = text.parse().map_err(|error| {
            Failure::from(error).advice(format!("A store is written {}.", WORKS.join(" or ")))
        })?;
        match url.scheme() {
            "sqlite" if url.path().is_empty() => Err(Failure::config(
                "the store's path is missing",
            )
            .advice("Write sqlite://shop.db, or sqlite:///var/lib/shop.db for an absolute path.")),
            "sqlite" => Ok(Place::Sqlite(PathBuf::from(url.path()))),
            "postgres" | "postgresql" => Ok(Place::Postgres(Database::read(text)?)),
            "dynamodb" => Ok(Place::Dynamo(Box::new(Tables::read(text)?))),
            scheme => Err(unknown("store", text, scheme, &WORKS)),
        }
    }

    /// The same as a configuration says that it is used. Where its address is read from a file, it is read
    /// again for each connection: a password may change while the program runs.
    ///
    /// # Errors
    /// A configuration failure: something is asked for that this store does not have.
    pub(crate) fn used(
        self,
        config: &Config,
        reference: Option<&postrider_config::Address>,
    ) -> Result<Place, Failure> {
        let postgres = matches!(self, Place::Postgres(_));
        if !postgres && !config.postgres.asks_for_nothing() {
            return Err(Failure::config(format!(
                "[postgres] of the configuration is about PostgreSQL, and the store is {self}"
            ))
            .advice("Nothing was started. Leave `pooler` and `publish_after` out."));
        }
        if !matches!(self, Place::Dynamo(_)) && !config.dynamodb.asks_for_nothing() {
            return Err(Failure::config(format!(
                "[dynamodb] of the configuration is about DynamoDB, and the store is {self}"
            ))
            .advice("Nothing was started. Leave the table [dynamodb] out."));
        }
        Ok(match self {
            Place::Postgres(database) => {
                Place::Postgres(database.used(&config.postgres, reference))
            }
            Place::Dynamo(tables) => Place::Dynamo(Box::new(tables.used(config)?)),
            place => place,
        })
    }

    /// The same for an inbox, where what is asked of the outbox means nothing.
    pub(crate) fn of_inbox(
        self,
        config: &PostgresConfig,
        reference: Option<&postrider_config::Address>,
    ) -> Place {
        match self {
            Place::Postgres(database) => Place::Postgres(database.used(config, reference)),
            place => place,
        }
    }

    /// Opens the store for operators and handlers, and says at once what is wrong with it.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        let opened = self.connect(false)?;
        opened.source.open().await?;
        Ok(opened)
    }

    /// The same for who commits events by hand: what many or large ones take is waited for.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn open_to_enqueue(&self) -> Result<Opened, Failure> {
        let Place::Dynamo(tables) = self else { return self.open().await };
        Place::Dynamo(Box::new(tables.patient())).open().await
    }

    /// The same for who only looks: a PostgreSQL database that cannot be written to is taken, and that is said.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn open_to_read(&self) -> Result<Opened, Failure> {
        let opened = self.connect(false)?;
        let Some(store) = &opened.postgres else { return self.open().await };
        if !store.open_to_read().await? {
            note(&format!(
                "{self} cannot be written to (PR-1003): it is a standby, was demoted to one, or is set to read-only. What \
                 is shown is what it holds; no relay delivers out of it"
            ));
        }
        Ok(opened)
    }

    /// The same for a relay, which follows what is committed where the store tells of it.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn open_to_relay(&self) -> Result<Opened, Failure> {
        let opened = self.connect(true)?;
        opened.source.open().await?;
        Ok(opened)
    }

    /// The same for whoever examines it: what would keep it from being opened is what is looked for.
    ///
    /// # Errors
    /// What the store says, of what cannot be found out while it does not open.
    pub(crate) async fn open_to_examine(&self) -> Result<Opened, Failure> {
        match self {
            Place::Dynamo(_) => self.connect(false),
            Place::Sqlite(_) | Place::Postgres(_) => self.open_to_read().await,
        }
    }

    /// The same for whoever looks at the inbox alone: on DynamoDB it may stand without the other tables, or they may be
    /// another's.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn open_to_ask_inbox(&self) -> Result<Opened, Failure> {
        let Place::Dynamo(tables) = self else { return self.open().await };
        tables.see_inbox().await?;
        tables.connect(false)
    }

    /// The inbox alone, which remembers what was done for so long. `horizon` is how long a message may
    /// come again.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn open_inbox(
        &self,
        retention: Duration,
        horizon: Duration,
    ) -> Result<(Arc<dyn InboxStore>, Option<PostgresStore>), Failure> {
        if let Place::Dynamo(tables) = self {
            return Ok((tables.inbox(retention, horizon).await?, None));
        }
        let Opened { inbox, postgres, .. } = self.open().await?;
        Ok((inbox, postgres))
    }

    fn connect(&self, relays: bool) -> Result<Opened, Failure> {
        Ok(match self {
            Place::Sqlite(path) => Opened::of(SqliteStore::new(path)?),
            Place::Postgres(database) => {
                let store = database.store()?;
                Opened { postgres: Some(store.clone()), ..Opened::of(store) }
            }
            Place::Dynamo(tables) => tables.connect(relays)?,
        })
    }

    /// Whether its inbox forgets by itself what it need not remember: reading a whole table for it would
    /// cost more than all that is done with it.
    pub(crate) fn forgets_by_itself(&self) -> bool {
        matches!(self, Place::Dynamo(_))
    }

    /// Whether events are made of business items here, which the outbox keeps nothing of.
    pub(crate) fn derives(&self) -> bool {
        matches!(self, Place::Dynamo(tables) if tables.derives())
    }

    /// What it is, for a sentence about what it does not have.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Place::Sqlite(_) => "a SQLite file",
            Place::Postgres(_) => "a PostgreSQL database",
            Place::Dynamo(_) => "a store on DynamoDB",
        }
    }
}

impl fmt::Display for Place {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Sqlite(path) => path.display().fmt(f),
            Place::Postgres(database) => database.fmt(f),
            Place::Dynamo(tables) => tables.fmt(f),
        }
    }
}

/// The failure for a scheme that is not there: what it may have meant, and what works today.
pub(crate) fn unknown(what: &str, text: &str, scheme: &str, works: &[&str]) -> Failure {
    let schemes: Vec<&str> =
        works.iter().map(|form| form.split_once("://").map_or(*form, |(name, _)| name)).collect();
    let nearest = postrider_core::template::nearest(scheme, &schemes);
    let form = works.iter().find(|form| form.starts_with(nearest)).copied().unwrap_or(nearest);
    // A text without a scheme is a path that somebody forgot to name; with an `@` it may be a secret.
    let path = !text.contains("://") && !text.contains('@') && text.contains(['.', '/']);
    let message = if path {
        let text = text.escape_debug();
        let form = works.iter().rfind(|form| form.ends_with("PATH")).copied().unwrap_or(form);
        format!(
            "`{text}` is a path, not a {what}; did you mean `{}`?",
            form.replace("PATH", &text.to_string())
        )
    } else if is_close(scheme, nearest) {
        format!("unknown {what} scheme `{}`; did you mean `{form}`?", scheme.escape_debug())
    } else {
        format!("unknown {what} scheme `{}`", scheme.escape_debug())
    };
    Failure::config(message).advice(format!("What works today: {}.", works.join(", ")))
}

/// Whether one may be a slip for the other: they share at least half, at the ends.
fn is_close(written: &str, known: &str) -> bool {
    let common = |a: &mut dyn Iterator<Item = (char, char)>| a.take_while(|(x, y)| x == y).count();
    let head = common(&mut written.chars().zip(known.chars()));
    let tail = common(&mut written.chars().rev().zip(known.chars().rev()));
    2 * (head + tail) >= written.chars().count().max(known.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_unless_they_begin_with_a_slash() {
        for (text, path) in
            [("sqlite://shop.db", "shop.db"), ("sqlite:///var/shop.db", "/var/shop.db")]
        {
            assert_eq!(Place::read(text).unwrap_or_else(|_| panic!("{text}")).to_string(), path);
        }
    }

    #[test]
    fn what_was_meant_is_suggested() {
        let cases = [
            ("sqlit://a.db", "did you mean `sqlite://PATH`?"),
            ("shop.db", "did you mean `sqlite://shop.db`?"),
            ("sqlite://", "path is missing"),
            ("://", "begins with a scheme"),
        ];
        for (text, expected) in cases {
            let Err(failure) = Place::read(text) else { panic!("{text} is read") };
            let shown = failure.plain_text();
            assert!(shown.contains(expected), "{text}: {shown}");
        }
    }

    #[test]
    fn secrets_are_not_repeated() {
        let place = Place::read("postgres://u:hunter2@db/shop").unwrap_or_else(|_| panic!("read"));
        assert_eq!(place.to_string(), "postgres://db/shop, schema postrider");
        for text in ["postgres://u:hunter2@db:port/shop", "mysql://u:hunter2@db/shop"] {
            let Err(failure) = Place::read(text) else { panic!("{text} is read") };
            assert!(!failure.plain_text().contains("hunter2"));
        }
    }
}
