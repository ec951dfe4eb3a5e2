//! The theatre: on which store scenarios are played, and the making of a scene there.
//!
//! Invariant: what is made on somebody's server has a random name, so that nobody else's is touched.

use postrider_core::EventId;
use postrider_postgres::Setup;

#[cfg(feature = "dynamodb")]
use crate::chaos::dynamo;
use crate::chaos::queue::Road;
use crate::chaos::scenario::Scenario;
use crate::chaos::scene::Scene;
use crate::chaos::story::Story;
use crate::database::Database;
use crate::failure::Failure;
use crate::store::Place;

/// Partitions of a schema that is made for one scenario: a few, so that several are there.
const PARTITIONS: u16 = 4;

/// Where scenarios are played.
#[derive(Clone)]
pub(crate) enum Theatre {
    /// In a file of their own.
    Embedded,
    /// On a server, in a schema of their own.
    Postgres {
        /// Without the schema; it may hold a password.
        address: String,
    },
    /// On DynamoDB, in tables of their own.
    #[cfg(feature = "dynamodb")]
    Dynamo(Box<postrider_dynamodb::Settings>),
}

impl Theatre {
    /// Reads where to play.
    ///
    /// # Errors
    /// A configuration failure: no PostgreSQL, or a schema that is somebody's.
    pub(crate) fn choose(store: Option<&str>) -> Result<Theatre, Failure> {
        let Some(address) = store else { return Ok(Theatre::Embedded) };
        #[cfg(feature = "dynamodb")]
        if let Some(settings) = dynamo::read(address)? {
            return Ok(Theatre::Dynamo(Box::new(settings)));
        }
        let Place::Postgres(_) = Place::read(address)? else {
            return Err(Failure::config("chaos takes an address of PostgreSQL or DynamoDB")
                .advice("Nothing was started. Without --store it plays on SQLite by itself."));
        };
        if address.contains("schema=") {
            return Err(Failure::config("chaos makes a schema of its own")
                .advice("Nothing was started. Leave `schema=` out of the address."));
        }
        Ok(Theatre::Postgres { address: address.to_owned() })
    }

    /// The kind of store that a scenario is played on here.
    pub(crate) fn kind(&self, scenario: &Scenario) -> &'static str {
        let kind = match self {
            Theatre::Embedded => "sqlite",
            Theatre::Postgres { .. } => "postgres",
            #[cfg(feature = "dynamodb")]
            Theatre::Dynamo(_) => "dynamodb",
        };
        if scenario.plays.stores().contains(&kind) { kind } else { "sqlite" }
    }

    /// A fresh scene for a scenario.
    ///
    /// # Errors
    /// What the folder or the store says.
    pub(crate) async fn scene(
        &self,
        scenario: &Scenario,
        road: &Road,
        aloud: bool,
    ) -> Result<Scene, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("postrider-chaos-")
            .tempdir()
            .map_err(|e| Failure::plain(format!("the scenario's folder: {e}")))?;
        let kind = self.kind(scenario);
        let road = if scenario.by_queue { road.clone() } else { Road::Files };
        let story = Story::new(scenario, kind, road.name(), aloud);
        #[cfg(feature = "dynamodb")]
        if let Theatre::Dynamo(settings) = self
            && kind == "dynamodb"
        {
            let tables = dynamo::Tables::make(settings).await?;
            let store = match tables.open().await {
                Ok(store) => store,
                Err(failure) => return Err(joined(failure, tables.remove().await)),
            };
            return Ok(Scene {
                folder,
                store,
                schema: None,
                tables: Some(tables),
                road,
                laid: Vec::new(),
                guarded: true,
                story,
            });
        }
        let (place, schema) = match self {
            Theatre::Postgres { address } if kind == "postgres" => {
                let database = schema(address).await?;
                (Place::Postgres(database.clone()), Some(database))
            }
            _ => {
                let path = folder.path().join("shop.db");
                postrider_sqlite::init(&path)?;
                (Place::Sqlite(path), None)
            }
        };
        let store = match (place.open().await, &schema) {
            (Ok(store), _) => store,
            (Err(failure), None) => return Err(failure),
            (Err(failure), Some(database)) => {
                return Err(joined(failure, drop_schema(database).await));
            }
        };
        Ok(Scene {
            folder,
            store,
            schema,
            #[cfg(feature = "dynamodb")]
            tables: None,
            road,
            laid: Vec::new(),
            guarded: true,
            story,
        })
    }
}

/// A schema with the tables, on a server.
async fn schema(address: &str) -> Result<Database, Failure> {
    let mark = if address.contains('?') { '&' } else { '?' };
    // The end of an id is random; the whole would be too long for a name.
    let name: String = EventId::mint().to_string().replace('-', "")[12..].to_owned();
    let database = Database::read(&format!("{address}{mark}schema=chaos_{name}"))?;
    let setup = Setup {
        names: database.names().clone(),
        partitions: Some(PARTITIONS),
        source: Some("/shop".to_owned()),
        ..Setup::default()
    };
    match postrider_postgres::init(database.address(), &setup).await {
        Ok(_) => Ok(database),
        Err(error) => Err(joined(error.into(), drop_schema(&database).await)),
    }
}

/// Drops a schema that was made here.
///
/// # Errors
/// What the server says, and which schema is left.
pub(super) async fn drop_schema(database: &Database) -> Result<(), Failure> {
    let dropped = postrider_postgres::remove(database.address(), database.names()).await;
    dropped.map_err(|error| {
        Failure::from(error)
            .within(&format!("the schema {} was not dropped", database.names().schema()))
    })
}

/// Why something was not made, and what is left of it.
pub(super) fn joined(failure: Failure, removed: Result<(), Failure>) -> Failure {
    match removed {
        Ok(()) => failure,
        Err(left) => failure.and(left),
    }
}
