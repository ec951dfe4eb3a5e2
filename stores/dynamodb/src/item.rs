//! Items: typed access to their attributes.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

/// Attributes by name, as requests and answers have them.
pub type Item = HashMap<String, AttributeValue>;

/// A text attribute.
pub(crate) fn s(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// A whole number.
pub(crate) fn n(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// Bytes.
pub(crate) fn b(value: impl Into<Vec<u8>>) -> AttributeValue {
    AttributeValue::B(Blob::new(value))
}

/// The text of an attribute, if it is one.
pub(crate) fn text<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

/// The number of an attribute, if it is a whole one of this type.
pub(crate) fn number<T: std::str::FromStr>(item: &Item, name: &str) -> Option<T> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

/// The truth of an attribute; what is absent is false.
pub(crate) fn truth(item: &Item, name: &str) -> bool {
    item.get(name).and_then(|value| value.as_bool().ok()).copied().unwrap_or_default()
}

/// What an item weighs for the limits of the service, roughly: names and values.
pub(crate) fn weight(item: &Item) -> u64 {
    let of = |value: &AttributeValue| match value {
        AttributeValue::S(text) | AttributeValue::N(text) => text.len(),
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::M(map) => {
            3 + usize::try_from(weight(map)).unwrap_or(usize::MAX) + map.len()
        }
        AttributeValue::Ss(texts) | AttributeValue::Ns(texts) => {
            texts.iter().map(|text| text.len() + 1).sum()
        }
        AttributeValue::L(values) => {
            let deep = |value: &AttributeValue| match value {
                AttributeValue::S(text) | AttributeValue::N(text) => text.len() + 1,
                AttributeValue::B(bytes) => bytes.as_ref().len() + 1,
                AttributeValue::M(map) => usize::try_from(weight(map)).unwrap_or(usize::MAX),
                _ => 1,
            };
            3 + values.iter().map(deep).sum::<usize>()
        }
        _ => 1,
    };
    item.iter().map(|(name, value)| (name.len() + of(value)) as u64).sum()
}
