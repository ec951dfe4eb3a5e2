//! A table of the application's own in place of the outbox: the configuration as a mapping, and what a
//! comparison found.

use std::sync::Arc;

use postrider_config::{Config, OwnTableConfig, TableLayout};
use postrider_core::OutboxSource;
use postrider_core::operate::{Finding, findings};
use postrider_postgres::{Comparison, Mapping, OwnTable, Settled};

use crate::failure::Failure;
use crate::store::{Opened, Place};
use crate::terminal;

/// What a relay serves in place of the outbox.
#[derive(Clone)]
pub(crate) struct Own {
    mapping: Mapping,
    compares: bool,
}

impl Own {
    /// Reads the section, if it names a table.
    ///
    /// # Errors
    /// A configuration failure: a name that is none, or columns without a table.
    pub(crate) fn of(config: &Config) -> Result<Option<Own>, Failure> {
        let own = &config.own_table;
        let Some(table) = &own.table else {
            if own.compare || columns(own).iter().any(|(_, given)| given.is_some()) {
                return Err(Failure::config("columns are mapped, and no table is named").advice(
                    "Nothing was started. Write table = \"public.outbox_events\" in [own_table], or \
                     leave the section out.",
                ));
            }
            return Ok(None);
        };
        let mapping = mapping(own, table);
        mapping.check()?;
        Ok(Some(Own { mapping, compares: own.compare }))
    }

    /// A handle on the table.
    ///
    /// # Errors
    /// A configuration failure.
    fn table(&self, place: &Place) -> Result<OwnTable, Failure> {
        let Place::Postgres(database) = place else {
            return Err(elsewhere("Nothing was started."));
        };
        let mapping = self.mapping.clone();
        let store = database.store()?;
        Ok(match self.compares {
            true => OwnTable::comparing_on(store, mapping)?,
            false => OwnTable::on(store, mapping)?,
        })
    }
}

/// What is said where the store is another one. `kept`: what did not come of it.
fn elsewhere(kept: &str) -> Failure {
    Failure::config("a table of your own is served from PostgreSQL alone")
        .advice(format!("{kept} Name its database: postgres://HOST/DATABASE."))
}

/// Opens what a relay reads: the store, or the table in place of its outbox. Says what a person should
/// know of the table.
///
/// # Errors
/// What the store says.
pub(crate) async fn source(
    own: Option<&Own>,
    place: &Place,
) -> Result<(Arc<dyn OutboxSource>, Option<OwnTable>), Failure> {
    let Some(own) = own else {
        return Ok((place.open_to_relay().await?.source, None));
    };
    let table = own.table(place)?;
    table.open().await?;
    for finding in table.findings().await? {
        let advice = finding.advice.map(|advice| format!("\n  {advice}")).unwrap_or_default();
        terminal::note(&format!("{}: {}{advice}", finding.subject, finding.message));
    }
    let compared = own.compares.then(|| table.clone());
    Ok((Arc::new(table), compared))
}

/// A handle on the table beside an open store, whose overview counts what is pending in it as long as that is kept.
///
/// # Errors
/// A configuration failure: of the mapping.
pub(crate) fn beside(own: Option<&Own>, opened: &Opened) -> Result<Option<OwnTable>, Failure> {
    let (Some(own), Some(store)) = (own.filter(|own| !own.compares), &opened.postgres) else {
        return Ok(None);
    };
    Ok(Some(OwnTable::on(store.clone(), own.mapping.clone())?))
}

/// What would keep a relay from serving the table, or make it slow; what cannot be asked is a finding. And a handle on a table
/// that can be served, which is beside the store as that of [`beside`].
pub(crate) async fn examine(own: &Own, opened: &Opened) -> (Vec<Finding>, Option<OwnTable>) {
    let subject = format!("own table {}", own.mapping.table);
    let asked = async {
        let Some(store) = &opened.postgres else { return Err(elsewhere("No relay starts.")) };
        let table = OwnTable::on(store.clone(), own.mapping.clone())?;
        let found = table.examine(own.compares).await?;
        Ok((found, table))
    };
    match asked.await {
        Ok((mut found, table)) => {
            if found.is_empty() {
                let message = "its columns fit, and its rows may be read and marked";
                found.push(findings::good(&subject, message));
            }
            (found, Some(table).filter(|_| !own.compares))
        }
        Err(failure) => (vec![failure.finding(&subject)], None),
    }
}

/// Says what a comparison found, if there was one.
///
/// # Errors
/// What the store says.
pub(crate) async fn tell(compared: Option<&OwnTable>) -> Result<(), Failure> {
    if let Some(table) = compared {
        terminal::note(&told(&table.compare().await?));
    }
    Ok(())
}

/// What a comparison found, for a person.
fn told(found: &Comparison) -> String {
    let differences = [
        ("only Postrider would have published", found.only_postrider),
        ("only the loop has published", found.only_loop),
        ("the loop published before an earlier one of their key", found.reordered),
    ];
    let mut text = format!("compared: {} were published by both", found.both);
    if found.neither > 0 {
        text.push_str(&format!(", {} by neither", found.neither));
    }
    for ((what, count), numbers) in differences.iter().zip(&found.examples) {
        if *count > 0 {
            let more = if (numbers.len() as u64) < *count { ", …" } else { "" };
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            text.push_str(&format!("\n  {count} {what}: {}{more}", numbers.join(", ")));
        }
    }
    text
}

/// The columns that may be given, each with its value.
fn columns(own: &OwnTableConfig) -> [(&'static str, &Option<String>); 15] {
    [
        ("id", &own.id),
        ("order", &own.order),
        ("source", &own.source),
        ("aggregate_type", &own.aggregate_type),
        ("aggregate_id", &own.aggregate_id),
        ("ordering_key", &own.ordering_key),
        ("event_type", &own.event_type),
        ("event_version", &own.event_version),
        ("payload", &own.payload),
        ("payload_bytes", &own.payload_bytes),
        ("content_type", &own.content_type),
        ("headers", &own.headers),
        ("tenant", &own.tenant),
        ("occurred_at", &own.occurred_at),
        ("created_at", &own.created_at),
    ]
}

/// The layout, with what is given in place of what it says.
fn mapping(own: &OwnTableConfig, table: &str) -> Mapping {
    let mut mapping = match own.layout {
        TableLayout::PublishedAt => Mapping::published_at(table),
        TableLayout::Status => Mapping::status(table),
        TableLayout::Debezium => Mapping::debezium(table),
    };
    if own.default_source.is_some() {
        mapping.default_source.clone_from(&own.default_source);
    }
    for (key, given) in columns(own) {
        let Some(name) = given else { continue };
        let column = (name != "-").then(|| name.clone());
        let place = match key {
            "id" => {
                mapping.id = name.clone();
                continue;
            }
            "order" => &mut mapping.order,
            "source" => &mut mapping.source,
            "aggregate_type" => &mut mapping.aggregate_type,
            "aggregate_id" => &mut mapping.aggregate_id,
            "ordering_key" => &mut mapping.key,
            "event_type" => &mut mapping.event_type,
            "event_version" => &mut mapping.event_version,
            "payload" => &mut mapping.payload,
            "payload_bytes" => &mut mapping.payload_bytes,
            "content_type" => &mut mapping.content_type,
            "headers" => &mut mapping.headers,
            "tenant" => &mut mapping.tenant,
            "occurred_at" => &mut mapping.occurred_at,
            _ => &mut mapping.created_at,
        };
        *place = column;
    }
    match &mut mapping.settled {
        Settled::At { column } => {
            if let Some(given) = &own.published_at {
                column.clone_from(given);
            }
        }
        Settled::Status { column, pending, published } => {
            if let Some(given) = &own.status {
                column.clone_from(given);
            }
            pending.clone_from(&own.pending);
            published.clone_from(&own.published);
        }
        Settled::Delete => {}
    }
    mapping
}

#[cfg(test)]
mod tests {
    use postrider_config::{Environment, Loader};

    use super::*;

    fn read(text: &str) -> Result<Option<Own>, Failure> {
        let environment = Environment::default();
        let loaded = Loader::new(&environment).text("postrider.toml", text).load();
        Own::of(&loaded.expect("it is right").config)
    }

    #[test]
    fn a_key_is_the_column_of_its_name() {
        let text = "[own_table]\ntable = \"shop.events\"\nlayout = \"status\"\norder = \"-\"\n\
                    ordering_key = \"customer\"\nstatus = \"state\"\npublished = \"sent\"\n";
        let own = read(text).expect("it is right").expect("a table");
        let mut expected = Mapping::status("shop.events");
        (expected.order, expected.key) = (None, Some("customer".to_owned()));
        expected.settled = Settled::Status {
            column: "state".to_owned(),
            pending: "pending".to_owned(),
            published: "sent".to_owned(),
        };
        assert_eq!((own.mapping, own.compares), (expected, false));
        assert!(read("").expect("nothing is wrong").is_none());
    }

    #[test]
    fn columns_without_a_table_are_refused() {
        for text in ["[own_table]\ncompare = true\n", "[own_table]\nid = \"id\"\n"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_comparison_is_told_with_numbers() {
        let mut found = Comparison::default();
        assert_eq!(told(&found), "compared: 0 were published by both");
        (found.only_postrider, found.reordered) = (3, 1);
        found.examples = [vec![4, 7], vec![], vec![9]];
        assert!(
            told(&found)
                .contains("\n  3 only Postrider would have published: 4, 7, …\n  1 the loop")
        );
        assert!(told(&found).ends_with(": 9"), "{}", told(&found));
    }
}
