//! The JSON Schema against files that are right, and files that are wrong.

use std::path::Path;

use serde_json::{Value, json};

use crate::{EXAMPLE, load};

/// The first thing that is wrong with a value: as much of JSON Schema as the schema uses.
fn fault(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let found = match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::Null => "null",
    };
    if let Some(expected) = schema["type"].as_str()
        && expected != found
        && (expected, found) != ("number", "integer")
    {
        return Some(format!("{at}: {found} in place of {expected}"));
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        return Some(format!("{at}: {value} is no choice"));
    }
    if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str())
        && !matches(pattern, text)
    {
        return Some(format!("{at}: {value} does not match {pattern}"));
    }
    if let Some(number) = value.as_f64() {
        let below = schema["minimum"].as_f64().is_some_and(|least| number < least);
        let above = schema["maximum"].as_f64().is_some_and(|most| number > most);
        if below || above {
            return Some(format!("{at}: {number} is outside"));
        }
    }
    let items = value.as_array().into_iter().flatten().enumerate();
    let mut inner =
        items.filter_map(|(n, item)| fault(&schema["items"], item, &format!("{at}[{n}]")));
    inner.next().or_else(|| object_fault(schema, value, at))
}

fn object_fault(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let object = value.as_object()?;
    for name in schema["required"].as_array().into_iter().flatten() {
        if !object.contains_key(name.as_str().unwrap()) {
            return Some(format!("{at}: {name} is missing"));
        }
    }
    object.iter().find_map(|(name, value)| {
        let at = format!("{at}.{name}");
        let pattern = schema["propertyNames"]["pattern"].as_str();
        if pattern.is_some_and(|pattern| !matches(pattern, name)) {
            return Some(format!("{at}: the name does not match"));
        }
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(property), _) => fault(property, value, &at),
            (None, Value::Bool(false)) => Some(format!("{at} is unknown")),
            (None, other) => fault(other, value, &at),
        }
    })
}

fn matches(pattern: &str, text: &str) -> bool {
    regex_lite::Regex::new(pattern).unwrap().is_match(text)
}

fn judge(text: &str) -> Option<String> {
    let value: toml::Table = text.parse().unwrap();
    fault(&postrider_config::schema(), &serde_json::to_value(value).unwrap(), "")
}

#[test]
fn files_that_are_right_fit() {
    assert_eq!(judge(EXAMPLE), None);
    assert_eq!(judge(""), None);
    // What is listed as in effect is a file too.
    let lines = load(EXAMPLE).values().into_iter().filter(|value| !value.key.contains('['));
    let lines = lines.filter_map(|value| Some(format!("{} = {}\n", value.key, value.value?)));
    assert_eq!(judge(&lines.collect::<String>()), None);
}

/// Negative control: what the program refuses for a form, the schema refuses too.
#[test]
fn files_that_are_wrong_do_not_fit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    for name in ["unknown-keys", "types", "choices", "names", "secrets", "units"] {
        let text = std::fs::read_to_string(folder.join(name).with_extension("toml")).unwrap();
        assert!(judge(&text).is_some(), "{name}");
    }
    for (text, expected) in [
        ("[relay]\nlease = \"15\"\n", ".relay.lease: \"15\" does not match"),
        ("[relay]\nleese = \"15s\"\n", ".relay.leese is unknown"),
        ("[relay.window]\nrows = 20000\n", ".relay.window.rows: 20000 is outside"),
        ("[destinations.a]\n", ".destinations.a: \"kind\" is missing"),
        ("[destinations.\"a b\"]\nkind = \"stdout\"\n", "the name does not match"),
        ("[observe]\ntoken = \"hunter2\"\n", ".observe.token"),
    ] {
        let fault = judge(text).unwrap_or_default();
        assert!(fault.contains(expected), "{text}: {fault}");
    }
}

/// Defaults and examples of the schema fit the schema, and every key is explained.
#[test]
fn the_schema_is_whole() {
    fn walk(schema: &Value, at: &str, leaves: &mut usize) {
        for word in ["properties", "items", "additionalProperties"] {
            match (word, &schema[word]) {
                ("properties", Value::Object(keys)) => {
                    for (name, key) in keys {
                        let at = format!("{at}.{name}");
                        assert!(
                            key["description"].as_str().is_some_and(|text| text.len() > 10),
                            "{at}"
                        );
                        walk(key, &at, leaves);
                    }
                }
                (_, inner @ Value::Object(_)) => walk(inner, at, leaves),
                _ => {}
            }
        }
        let examples = schema["examples"].as_array().into_iter().flatten();
        for value in examples.chain(schema.get("default")) {
            assert_eq!(fault(schema, value, at), None);
            *leaves += 1;
        }
    }
    let mut leaves = 0;
    walk(&postrider_config::schema(), "", &mut leaves);
    assert!(leaves > 80, "{leaves}");
    assert_eq!(
        postrider_config::schema()["properties"]["relay"]["additionalProperties"],
        json!(false)
    );
}
