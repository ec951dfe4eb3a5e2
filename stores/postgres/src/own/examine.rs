//! What a person should know of an application's own table before a relay serves it, and while it does.
//!
//! Invariant: nothing is written.

use postrider_core::operate::Finding;
use postrider_core::operate::findings::coded;
use postrider_core::{Code, Result};

use crate::own::OwnTable;
use crate::sessions::Line;
use crate::setup::Setup;
use crate::sql::{Sql, sql};
use crate::typed::params;

const INDEXED: Sql = sql!("own/indexed");

impl OwnTable {
    /// What a person should know of the table before a relay serves it, or compares it: nothing is written.
    ///
    /// # Errors
    /// What would keep the relay from its start, as `open`, and `register` where there is more than one destination.
    pub async fn examine(&self, compares: bool) -> Result<Vec<Finding>> {
        let session = self.inner.store.sessions().line(Line::Read, "examine").await?;
        let setup = crate::schema::setup(&session).await?;
        drop(session);
        self.fits(setup.partitions.unwrap_or(Setup::PARTITIONS), compares).await?;
        self.one_destination(&[]).await?;
        self.findings().await
    }

    /// What a person should know of the table.
    ///
    /// # Errors
    /// As `open`.
    pub async fn findings(&self) -> Result<Vec<Finding>> {
        self.checked().await?;
        let mapping = &self.inner.mapping;
        let subject = format!("own table {}", mapping.table);
        let finding =
            |message: &str, advice: String| coded(&subject, message, advice, Code::OwnTableSlow);
        let mut found = Vec::new();
        if let Some(mark) = mapping.mark() {
            let session = self.inner.store.sessions().line(Line::Read, "examine").await?;
            let (schema, table) = mapping.place();
            let row = session.row("examine", &INDEXED, params![schema, table, mark]).await?;
            if !row.get::<_, bool>(0) {
                let offer = OwnTable::index(mapping).unwrap_or_default();
                found.push(finding(
                    "no index holds only what is pending: each poll reads the whole table",
                    offer.lines().filter(|line| !line.starts_with("--")).collect(),
                ));
            }
        }
        if self.checked().await?.row_security {
            let mut hides = finding(
                "policies of row security apply to the relay's user: rows that they hide are not published",
                "Give the user BYPASSRLS, or a policy that lets it read and mark every row."
                    .to_owned(),
            );
            hides.code = None;
            found.push(hides);
        }
        if self.is_numbered().await? {
            found.push(finding(
                "rows have no number: Postrider gives them one, at a write for each, and two rows \
                 that are read together may go out in another order than they were committed",
                "Add a column: bigint generated always as identity, unique; and name it as `order`."
                    .to_owned(),
            ));
        }
        Ok(found)
    }
}
