//! The JSON Schema of the file, for editors and for checks outside the program.
//!
//! Invariant: it follows from the tables, so a key that the program reads is a key that the schema
//! has. It says less than the program: limits of durations and contradictions are words in it.

use postrider_core::TopicRule;
use serde_json::{Map, Value, json};

use crate::check::rules::share;
use crate::config::Config;
use crate::key::{Class, Json, Key, Leaf, MapShape, Rule, Shape, TableShape, plain};

/// The JSON Schema (draft 2020-12) of the configuration file.
///
/// ```
/// let schema = postrider_config::schema();
/// assert_eq!(schema["properties"]["relay"]["properties"]["lease"]["default"], "15s");
/// assert_eq!(schema["additionalProperties"], false);
/// ```
pub fn schema() -> Value {
    let mut schema = table(&Config::TABLE);
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!("Postrider configuration"));
    Value::Object(schema)
}

type Object = Map<String, Value>;

fn table(shape: &TableShape) -> Object {
    let property = |key: &Key| (key.name.to_owned(), Value::Object(property(key)));
    let mut object = Object::new();
    object.insert("type".into(), json!("object"));
    object.insert("description".into(), json!(plain(shape.doc)));
    object.insert("properties".into(), Value::Object(shape.keys.iter().map(property).collect()));
    let required: Vec<&str> =
        shape.keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    if !required.is_empty() {
        object.insert("required".into(), json!(required));
    }
    object.insert("additionalProperties".into(), json!(false));
    object
}

fn map(shape: &MapShape) -> Object {
    let mut object = Object::new();
    object.insert("type".into(), json!("object"));
    object.insert("propertyNames".into(), json!({ "pattern": shape.pattern }));
    object.insert("additionalProperties".into(), Value::Object(of(&shape.of)));
    object
}

fn of(shape: &Shape) -> Object {
    match shape {
        Shape::Leaf(leaf) => single(leaf),
        Shape::Table(shape) => table(shape),
        Shape::Map(shape) => map(shape),
        Shape::List(item) => {
            let mut object = Object::new();
            object.insert("type".into(), json!("array"));
            object.insert("items".into(), Value::Object(of(item)));
            object
        }
    }
}

fn single(leaf: &Leaf) -> Object {
    let mut object = Object::new();
    match leaf.json {
        Json::Text(pattern) => {
            object.insert("type".into(), json!("string"));
            object.insert("pattern".into(), json!(pattern));
        }
        Json::Choice(names) => _ = object.insert("enum".into(), json!(names)),
        Json::Integer => _ = object.insert("type".into(), json!("integer")),
        Json::Number => _ = object.insert("type".into(), json!("number")),
        Json::Flag => _ = object.insert("type".into(), json!("boolean")),
    }
    object
}

fn property(key: &Key) -> Object {
    let mut object = of(&key.shape);
    object.insert("description".into(), json!(description(key)));
    if let Ok(max) = key.max.parse::<u64>() {
        match key.shape {
            Shape::List(_) => _ = object.insert("maxItems".into(), json!(max)),
            Shape::Map(_) => _ = object.insert("maxProperties".into(), json!(max)),
            Shape::Leaf(_) | Shape::Table(_) => {}
        }
    }
    let Some(leaf) = key.shape.leaf() else { return object };
    if !key.default.is_empty() {
        object.insert("default".into(), typed(leaf, key.default));
    }
    let example =
        [key.example, key.default, leaf.example].into_iter().find(|text| !text.is_empty());
    object.insert("examples".into(), json!([typed(leaf, example.unwrap_or_default())]));
    if matches!(leaf.json, Json::Integer | Json::Number) {
        for (word, limit) in [("minimum", key.min), ("maximum", key.max)] {
            if !limit.is_empty() {
                object.insert(word.into(), typed(leaf, limit));
            }
        }
    }
    object
}

/// The documentation, the limits that JSON Schema cannot say, and what changing it means.
fn description(key: &Key) -> String {
    let mut text = plain(key.doc);
    let limits = limits(key);
    if !limits.is_empty() {
        text.push_str(&format!(" Allowed: {limits}."));
    }
    if key.shape.leaf().is_some() {
        text.push_str(match key.class {
            Class::Live => " A change takes effect with a reload.",
            Class::Restart => " A change takes effect with a restart.",
            Class::Definition => " Part of the destination's definition.",
        });
    }
    text
}

/// The limits of a key, and what goes with it, in words.
pub(crate) fn limits(key: &Key) -> String {
    let range = match (key.min, key.max) {
        ("", "") => String::new(),
        (min, "") => format!("at least {min}"),
        ("", max) => format!("at most {max}"),
        (min, max) => format!("{min} to {max}"),
    };
    let rules = key.rules.iter().map(|rule| match rule {
        Rule::With(other) => format!("with `{other}`"),
        Rule::OneOf { keys, .. } => {
            let others: Vec<String> = keys
                .iter()
                .filter(|other| **other != key.name)
                .map(|other| format!("`{other}`"))
                .collect();
            format!("without {}", others.join(", "))
        }
        Rule::AtMost { key, part, .. } => format!("at most {}", share(*part, key)),
        Rule::Topic(TopicRule::Subject) => "a subject without wildcards".to_owned(),
        Rule::Topic(TopicRule::Word) => "one word of a subject".to_owned(),
        Rule::Topic(_) => "a topic's name".to_owned(),
        Rule::Hosts => "`http://HOST:PORT`, and more hosts behind commas".to_owned(),
    });
    let words: Vec<String> =
        std::iter::once(range).chain(rules).filter(|words| !words.is_empty()).collect();
    words.join("; ")
}

/// A text of the tables as a value of its type.
fn typed(leaf: &Leaf, text: &str) -> Value {
    match leaf.json {
        Json::Text(_) | Json::Choice(_) => json!(text),
        Json::Integer => json!(text.parse::<i64>().unwrap_or_default()),
        Json::Number => json!(text.parse::<f64>().unwrap_or_default()),
        Json::Flag => json!(text == "true"),
    }
}
