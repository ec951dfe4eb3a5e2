//! Store addresses: which of them this program can open, and how.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use postrider_core::{InboxStore, Operator, OutboxSource, TargetUrl};
use postrider_postgres::{Names, PostgresStore};
use postrider_sqlite::SqliteStore;

use crate::failure::Failure;

/// The stores that work today, as they are written.
pub(crate) const WORKS: [&str; 2] = ["postgres://HOST/DATABASE", "sqlite://PATH"];

/// Where a store is.
#[derive(Clone)]
pub(crate) enum Place {
    /// A file.
    Sqlite(PathBuf),
    /// A database, with its address, which may hold a password, and the names of its tables.
    Postgres(String, Names),
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
    /// A configuration failure that lists what works.
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
            "postgres" | "postgresql" => {
                let (address, names) = named(text)?;
                // Says at once what is wrong with it, and connects to nothing.
                PostgresStore::new(&address)?;
                Ok(Place::Postgres(address, names))
            }
            scheme => Err(unknown("store", text, scheme, &WORKS)),
        }
    }

    /// Opens the store, and says at once what is wrong with it.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        let opened = match self {
            Place::Sqlite(path) => Opened::of(SqliteStore::new(path)?),
            Place::Postgres(address, names) => {
                let store = postgres(address, names)?;
                Opened { postgres: Some(store.clone()), ..Opened::of(store) }
            }
        };
        opened.source.open().await?;
        Ok(opened)
    }
}

impl fmt::Display for Place {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Sqlite(path) => path.display().fmt(f),
            Place::Postgres(address, names) => {
                let store = PostgresStore::new(address).map_err(|_| fmt::Error)?;
                write!(f, "{}, schema {}", store.name(), names.schema())
            }
        }
    }
}

/// A store that is not open yet: what is wrong with it may be what is to be mended.
///
/// # Errors
/// A configuration failure, of the address.
pub(crate) fn postgres(address: &str, names: &Names) -> Result<PostgresStore, Failure> {
    let mut options = postrider_postgres::Options::default();
    options.names = names.clone();
    Ok(PostgresStore::with(address, options)?)
}

/// An address without our own words in it, and the names that they gave.
fn named(text: &str) -> Result<(String, Names), Failure> {
    // A question mark may stand in a password.
    let host = text.find('@').unwrap_or(0);
    let question = text[host..].find('?').map_or(text.len(), |at| host + at);
    let (address, query) = (&text[..question], text[question..].trim_start_matches('?'));
    let (mut schema, mut outbox, mut inbox) = ("postrider", "outbox", "inbox");
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("schema", name)) => schema = name,
            Some(("outbox", name)) => outbox = name,
            Some(("inbox", name)) => inbox = name,
            _ => rest.push(pair),
        }
    }
    let names = Names::new(schema, outbox, inbox)?;
    let address = match rest.is_empty() {
        true => address.to_owned(),
        false => format!("{address}?{}", rest.join("&")),
    };
    Ok((address, names))
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
    fn names_of_tables_stand_in_the_address() {
        let (address, names) =
            named("postgres://u:p@db/shop?schema=billing&sslmode=require&inbox=seen")
                .unwrap_or_else(|_| panic!("read"));
        assert_eq!(address, "postgres://u:p@db/shop?sslmode=require");
        assert_eq!(names, Names::new("billing", "outbox", "seen").expect("names"));
        assert!(named("postgres://db/shop?schema=a;drop").is_err());
        let (address, names) =
            named("postgres://u:p?schema=x@db/shop").unwrap_or_else(|_| panic!("read"));
        assert_eq!((&*address, names), ("postgres://u:p?schema=x@db/shop", Names::default()));
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
