//! An item as a JSON document: what consumers see of it, and never DynamoDB's own JSON.
//!
//! Invariant: of the same item always the same bytes, because an event that is sent again under its id says what it
//! said before: names are sorted, and so are the members of sets. A number stands as the service wrote it, with all
//! of its digits; bytes are base64.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_core::{Error, ErrorKind, Result};

/// Attributes by name, as an object.
pub(crate) fn object(attributes: &HashMap<String, AttributeValue>) -> Result<String> {
    let mut text = String::new();
    write_object(&mut text, attributes)?;
    Ok(text)
}

/// One attribute's value.
pub(crate) fn value(value: &AttributeValue) -> Result<String> {
    let mut text = String::new();
    write(&mut text, value)?;
    Ok(text)
}

fn write_object(to: &mut String, attributes: &HashMap<String, AttributeValue>) -> Result<()> {
    let sorted: BTreeMap<&String, &AttributeValue> = attributes.iter().collect();
    to.push('{');
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            to.push(',');
        }
        to.push_str(&quoted(name)?);
        to.push(':');
        write(to, value)?;
    }
    to.push('}');
    Ok(())
}

fn write(to: &mut String, value: &AttributeValue) -> Result<()> {
    match value {
        AttributeValue::S(text) => to.push_str(&quoted(text)?),
        AttributeValue::N(digits) => to.push_str(number(digits)?),
        AttributeValue::B(bytes) => to.push_str(&quoted(&STANDARD.encode(bytes.as_ref()))?),
        AttributeValue::Bool(truth) => to.push_str(if *truth { "true" } else { "false" }),
        AttributeValue::Null(_) => to.push_str("null"),
        AttributeValue::M(map) => write_object(to, map)?,
        AttributeValue::L(values) => {
            let each = values.iter().map(self::value);
            list(to, each.collect::<Result<_>>()?);
        }
        AttributeValue::Ss(texts) => set(to, texts.iter().map(|text| quoted(text)))?,
        AttributeValue::Ns(all) => set(to, all.iter().map(|one| number(one).map(str::to_owned)))?,
        AttributeValue::Bs(all) => {
            set(to, all.iter().map(|bytes| quoted(&STANDARD.encode(bytes.as_ref()))))?;
        }
        _ => return Err(refused("of a kind that this program does not know")),
    }
    Ok(())
}

fn set(to: &mut String, members: impl Iterator<Item = Result<String>>) -> Result<()> {
    let mut members = members.collect::<Result<Vec<String>>>()?;
    members.sort_unstable();
    list(to, members);
    Ok(())
}

fn list(to: &mut String, members: Vec<String>) {
    to.push('[');
    to.push_str(&members.join(","));
    to.push(']');
}

fn quoted(text: &str) -> Result<String> {
    serde_json::to_string(text).map_err(|_| refused("no text"))
}

fn number(digits: &str) -> Result<&str> {
    match serde_json::from_str::<serde_json::Number>(digits) {
        Ok(_) => Ok(digits),
        Err(_) => Err(refused("a number that JSON has no form for")),
    }
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, "derive").message(format!("an attribute is {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Item, b, n, s};

    /// R048: an item is plain JSON, with sorted names, and with numbers as exact as they were.
    #[test]
    fn an_item_is_plain_json_and_always_the_same_bytes() {
        let inner = Item::from([("deep".to_owned(), AttributeValue::L(vec![n(1), s("x\"")]))]);
        let item = Item::from([
            ("z".to_owned(), n("12345678901234567890.123456789")),
            ("a".to_owned(), AttributeValue::M(inner)),
            ("bytes".to_owned(), b([0, 255])),
            ("none".to_owned(), AttributeValue::Null(true)),
            ("set".to_owned(), AttributeValue::Ss(vec!["b".to_owned(), "a".to_owned()])),
            ("yes".to_owned(), AttributeValue::Bool(true)),
        ]);
        let expected = r#"{"a":{"deep":[1,"x\""]},"bytes":"AP8=","none":null,"set":["a","b"],"yes":true,"z":12345678901234567890.123456789}"#;
        for _ in 0..4 {
            // A map's order is another one each time.
            let again: Item = item.clone().into_iter().collect();
            assert_eq!(object(&again).unwrap(), expected);
        }
        assert!(value(&n("NaN")).is_err());
    }
}
