//! Opening: the tables are there, of this version, and may be written to.

use postrider_core::source::StoreFacts;
use postrider_core::{Error, ErrorKind, Result};

use crate::schema;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::params;

const WRITABLE: Sql = sql!("meta/writable");

/// Checks the database, and says what it is.
pub(crate) async fn open(store: &PostgresStore) -> Result<StoreFacts> {
    let session = store.sessions().line(Line::Lease, "open store").await?;
    let missing =
        |message: String| Error::new(ErrorKind::SchemaMissing, "open store").message(message);
    match schema::version(&session).await {
        Ok(schema::VERSION) => {}
        Ok(0) => return Err(missing("the database has no Postrider tables".to_owned())),
        Ok(older) => {
            return Err(missing(format!(
                "the tables have version {older}, this program needs {}: run `postrider init`",
                schema::VERSION
            )));
        }
        Err(e) if e.kind() == ErrorKind::Conflict => {
            return Err(missing("the database has no Postrider tables".to_owned()).source(e));
        }
        Err(e) => return Err(e),
    }
    let meta = schema::meta(&session).await?;
    let partitions = schema::number(&meta, "partitions")?;
    session.execute("open store", &WRITABLE, params![]).await?;
    Ok(StoreFacts {
        name: store.name().to_owned(),
        partitions: u16::try_from(partitions).map_err(|_| {
            Error::new(ErrorKind::Corrupt, "open store").message("too many partitions")
        })?,
        schema: schema::VERSION,
    })
}
