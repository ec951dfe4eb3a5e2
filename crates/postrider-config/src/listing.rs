//! The kinds of brokers with all their fields, for programs that show or fill in a configuration.
//!
//! Invariant: it follows from the shapes and the tables, as the reference page and the JSON Schema do.

use serde_json::{Map, Value, json};

use crate::broker::{self, BrokerShape, SourceShape, UrlShape};
use crate::key::{Json, Key, Rule, Shape, TableShape, plain};

/// What each kind of broker takes: addresses, fields with their limits and what goes with them, formats, and how a
/// sidecar receives from it. Keys are only ever added.
///
/// ```
/// let brokers = postrider_config::brokers();
/// let kafka = brokers.as_array().unwrap().iter().find(|one| one["kind"] == "kafka").unwrap();
/// let fields = kafka["destination"]["tables"][0]["fields"].as_array().unwrap();
/// let password = fields.iter().find(|field| field["name"] == "password").unwrap();
/// assert_eq!(password["secret"], true);
/// assert_eq!(password["needs"][0], "user");
/// ```
pub fn brokers() -> Value {
    broker::ALL.iter().map(|shape| Value::Object(of(shape))).collect()
}

type Object = Map<String, Value>;

fn of(shape: &BrokerShape) -> Object {
    let tables = shape.tables.iter().map(|(name, table)| fields("destinations.NAME", name, table));
    let mut object = Object::new();
    object.insert("kind".into(), json!(shape.word));
    object.insert("about".into(), json!(shape.doc));
    object.insert("feature".into(), json!(shape.feature));
    object.insert(
        "destination".into(),
        json!({
            "url": url(&shape.url),
            "formats": shape.formats.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "record_key": shape.has_record_key,
            "message_bytes": shape.message_bytes,
            "topics": shape.topics,
            "tables": tables.collect::<Vec<_>>(),
        }),
    );
    object.insert("source".into(), shape.source.as_ref().map_or(Value::Null, source));
    object
}

fn url(shape: &UrlShape) -> Value {
    match shape {
        UrlShape::Needed { schemes, example, .. } => {
            json!({ "schemes": schemes, "example": example })
        }
        UrlShape::In { table, .. } => json!({ "in": table }),
        UrlShape::Nowhere { .. } => Value::Null,
    }
}

fn source(shape: &SourceShape) -> Value {
    let tables = shape.table.iter().map(|(name, table)| fields("consume.NAME", name, table));
    json!({
        "from": { "schemes": shape.schemes, "example": shape.example },
        "tables": tables.collect::<Vec<_>>(),
    })
}

fn fields(parent: &str, name: &str, table: &TableShape) -> Value {
    json!({
        "table": format!("{parent}.{name}"),
        "about": plain(table.doc),
        "fields": table.keys.iter().map(field).collect::<Vec<_>>(),
    })
}

/// A field. What there is nothing to say of is left out.
fn field(key: &Key) -> Value {
    let mut object = Object::new();
    object.insert("name".into(), json!(key.name));
    object.insert("about".into(), json!(plain(key.doc)));
    let leaf = match key.shape {
        Shape::List(Shape::Leaf(leaf)) => {
            object.insert("holds".into(), json!("list"));
            Some(*leaf)
        }
        Shape::Map(map) => {
            object.insert("holds".into(), json!("table"));
            map.of.leaf()
        }
        shape => shape.leaf(),
    };
    if let Some(leaf) = leaf {
        object.insert("type".into(), json!(leaf.word));
        match leaf.json {
            Json::Choice(words) => _ = object.insert("choices".into(), json!(words)),
            Json::Text(pattern) => _ = object.insert("pattern".into(), json!(pattern)),
            Json::Integer | Json::Number | Json::Flag => {}
        }
        let example =
            [key.example, key.default, leaf.example].into_iter().find(|text| !text.is_empty());
        object.insert("example".into(), json!(example));
    }
    object.insert("secret".into(), json!(key.shape.holds_secret()));
    object.insert("required".into(), json!(key.required));
    object.insert("change".into(), json!(key.class.word()));
    for (word, text) in [("default", key.default), ("min", key.min), ("max", key.max)] {
        if !text.is_empty() {
            object.insert(word.into(), json!(text));
        }
    }
    rules(key, &mut object);
    Value::Object(object)
}

fn rules(key: &Key, object: &mut Object) {
    let mut more = |word: &str, value: Value| {
        let list = object.entry(word).or_insert_with(|| json!([]));
        list.as_array_mut().into_iter().for_each(|list| list.push(value.clone()));
    };
    for rule in key.rules {
        match rule {
            Rule::With(other) => more("needs", json!(other)),
            Rule::OneOf { keys, .. } => {
                let others = keys.iter().filter(|other| **other != key.name);
                others.for_each(|other| more("excludes", json!(other)));
            }
            Rule::AtMost { key, part, .. } => {
                more("at_most", json!({ "key": key, "parts": part }));
            }
            Rule::Topic(rule) => more("topic", json!(rule)),
            Rule::Hosts => more("hosts", json!("http")),
        }
    }
}
