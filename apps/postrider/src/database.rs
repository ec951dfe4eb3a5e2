//! A PostgreSQL database: its address with our own words in it, and how a configuration says that it is used.

use std::fmt;

use postrider_config::{Address, Environment, Pooler, PostgresConfig, PublishAfter};
use postrider_core::{Error, ErrorKind};
use postrider_postgres::{Names, Options, PostgresStore};

use crate::failure::Failure;

/// A database that is not connected yet.
#[derive(Clone)]
pub(crate) struct Database {
    /// As it was when the program started; it may hold a password.
    address: String,
    /// Where it stands, if that may say something else later.
    reference: Option<Address>,
    options: Options,
}

impl Database {
    /// Reads an address, and connects to nothing.
    ///
    /// # Errors
    /// A configuration failure.
    pub(crate) fn read(text: &str) -> Result<Database, Failure> {
        let (address, names) = named(text)?;
        PostgresStore::new(&address)?;
        let mut options = Options::default();
        options.names = names;
        Ok(Database { address, reference: None, options })
    }

    /// The same as the configuration says that it is used.
    pub(crate) fn used(mut self, config: &PostgresConfig, reference: Option<&Address>) -> Database {
        self.options.pooler = match config.pooler {
            Pooler::Auto => postrider_postgres::Pooler::Auto,
            Pooler::None | Pooler::Session => postrider_postgres::Pooler::None,
            Pooler::Transaction => postrider_postgres::Pooler::Transaction,
        };
        self.options.publish_after = match &config.publish_after {
            PublishAfter::Local => postrider_postgres::PublishAfter::Local,
            PublishAfter::Standby(name) => {
                postrider_postgres::PublishAfter::Standby(name.as_str().into())
            }
        };
        self.reference = reference.filter(|address| address.literal().is_none()).cloned();
        self
    }

    /// The address as it was when the program started.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn names(&self) -> &Names {
        &self.options.names
    }

    /// A store that is not open yet: what is wrong with it may be what is to be mended.
    ///
    /// # Errors
    /// A configuration failure, of the address.
    pub(crate) fn store(&self) -> Result<PostgresStore, Failure> {
        let options = self.options.clone();
        let Some(reference) = self.reference.clone() else {
            return Ok(PostgresStore::with(&self.address, options)?);
        };
        let names = options.names.clone();
        Ok(PostgresStore::with_address(move || read_again(&reference, &names), options)?)
    }
}

impl fmt::Display for Database {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = PostgresStore::new(&self.address).map_err(|_| fmt::Error)?;
        write!(f, "{}, schema {}", store.name(), self.names().schema())
    }
}

/// The address as it is now. The tables stay what they were: other ones are another store.
fn read_again(reference: &Address, names: &Names) -> postrider_core::Result<String> {
    let refused = |why: String| Error::new(ErrorKind::Config, "read address").message(why);
    let (secret, _) = reference.resolve(&Environment::of_process()).map_err(refused)?;
    let (address, now) = named(secret.expose())?;
    if now != *names {
        return Err(refused(
            "the address names other tables than when this program started; restart it".to_owned(),
        ));
    }
    Ok(address)
}

/// An address without our own words in it, and the names that they gave.
fn named(text: &str) -> postrider_core::Result<(String, Names)> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
