//! The recipe: what `init` does, as commands of the `aws` program, for whoever makes tables otherwise.
//!
//! Invariant: every word that comes from a name is quoted, so that a shell takes it as it is.

use postrider_core::Result;
use serde_json::{Value, json};

use crate::control::{CONTROL, SCHEMA};
use crate::control::{FACTS, Facts, PK, SK};
use crate::design::{Design, INDEX_KEYS, INDEX_PROJECTION, STREAM_VIEW};
use crate::settings::Settings;
use crate::tables::Setup;

/// The commands that make what [`init`](crate::init) makes, one a line.
///
/// # Errors
/// `Config` if the number of partitions or a name is none.
pub fn recipe(settings: &Settings, setup: &Setup) -> Result<String> {
    setup.check()?;
    settings.names.check()?;
    let mut place = String::new();
    for (option, value) in [("--region", &settings.region), ("--endpoint-url", &settings.endpoint)]
    {
        if let Some(value) = value {
            place += &format!(" {option} {}", quoted(value));
        }
    }
    let aws = |command: &str, rest: &str| format!("aws dynamodb{place} {command} {rest}\n");
    let mut text =
        "# What `postrider init` makes. deploy/aws has the same for Terraform.\n".to_owned();
    let designs = Design::all(&settings.names);
    for design in &designs {
        if design.shared {
            text += &format!("# {}\n", SHARED_SAYS);
            for input in additions(design) {
                let input = quoted(&input.to_string());
                text += &aws("update-table", &format!("--cli-input-json {input}"));
                text +=
                    &aws("wait table-exists", &format!("--table-name {}", quoted(design.table)));
            }
            continue;
        }
        let input = quoted(&creation(design).to_string());
        text += &aws("create-table", &format!("--cli-input-json {input}"));
    }
    for design in &designs {
        text += &aws("wait table-exists", &format!("--table-name {}", quoted(design.table)));
        let live = json!({ "Enabled": true, "AttributeName": design.ttl }).to_string();
        let rest = format!(
            "--table-name {} --time-to-live-specification {}",
            quoted(design.table),
            quoted(&live)
        );
        text += &aws("update-time-to-live", &rest);
    }
    let rest = format!(
        "--table-name {} --item {} --condition-expression {}",
        quoted(&settings.names.store),
        quoted(&item(&setup.facts()).to_string()),
        quoted(&format!("attribute_not_exists({PK})"))
    );
    text += &aws("put-item", &rest);
    Ok(text)
}

/// What a table of the application's is told to be.
const SHARED_SAYS: &str = "The first table is yours and is there: it gets a stream and an index. With capacity \
                           of its own, give the index ProvisionedThroughput.";

/// The inputs of `UpdateTable` for a table that is there: it takes one change at a time.
fn additions(design: &Design<'_>) -> Vec<Value> {
    let mut whole = creation(design);
    let stream = json!({
        "TableName": design.table, "StreamSpecification": whole["StreamSpecification"].take(),
    });
    let index = json!({
        "TableName": design.table,
        "AttributeDefinitions": whole["AttributeDefinitions"].take(),
        "GlobalSecondaryIndexUpdates": [{ "Create": whole["GlobalSecondaryIndexes"][0].take() }],
    });
    vec![stream, index]
}

/// The input of `CreateTable`.
fn creation(design: &Design<'_>) -> Value {
    let keys = |keys: [(&str, &str); 2]| -> Vec<Value> {
        let key = |(name, kind): &(&str, &str)| json!({ "AttributeName": name, "KeyType": kind });
        keys.iter().map(key).collect()
    };
    let attributes: Vec<Value> = design
        .attributes()
        .iter()
        .map(|(name, kind)| json!({ "AttributeName": name, "AttributeType": kind }))
        .collect();
    let mut input = json!({
        "TableName": design.table,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": attributes,
        "KeySchema": keys(design.keys()),
    });
    if let Some(index) = design.index {
        input["GlobalSecondaryIndexes"] = json!([{
            "IndexName": index,
            "KeySchema": keys(INDEX_KEYS),
            "Projection": { "ProjectionType": INDEX_PROJECTION },
        }]);
        input["StreamSpecification"] =
            json!({ "StreamEnabled": true, "StreamViewType": STREAM_VIEW });
    }
    input
}

/// What the store is, as its item.
fn item(facts: &Facts) -> Value {
    json!({
        PK: { "S": CONTROL },
        SK: { "S": FACTS },
        "schema": { "N": SCHEMA.to_string() },
        "partitions": { "N": facts.partitions.to_string() },
        "source": { "S": facts.source },
    })
}

/// A word of a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Names;

    #[test]
    fn what_a_name_holds_is_no_command() {
        let mut names = Names::with_prefix("shop-");
        names.ttl = "it's; rm".to_owned();
        let setup = Setup { source: Some("$(date)'".to_owned()), ..Setup::default() };
        let text = recipe(&Settings::new("eu-central-1", names), &setup).unwrap();
        assert!(text.contains(r"it'\''s; rm"), "{text}");
        assert!(text.contains(r"$(date)'\''"), "{text}");
        assert_eq!(quoted("eu-central-1"), "eu-central-1");
    }

    #[test]
    fn a_store_without_partitions_has_no_recipe() {
        let setup = Setup { partitions: Some(0), ..Setup::default() };
        let error = recipe(&Settings::new("eu-central-1", Names::default()), &setup).unwrap_err();
        assert_eq!(error.kind(), postrider_core::ErrorKind::Config);
    }
}
