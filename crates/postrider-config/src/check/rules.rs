//! What the fields' own declarations say about each other: [`Rule`]s, looked at here once for all of them.
//!
//! Invariant: a rule is looked at where its key has a meaning, and nothing is said that rests on a value which was not
//! understood.

use std::collections::BTreeMap;

use postrider_core::http_hosts;

use crate::config::Config;
use crate::duration;
use crate::field::Listed;
use crate::key::{Json, Leaf, Rule};
use crate::path::Path;
use crate::reading::{Complaint, Reading};

type Values<'a> = BTreeMap<&'a Path, &'a Listed>;

pub(super) fn examine(config: &Config, reading: &mut Reading) {
    let listed = config.listed();
    let values: Values<'_> = listed.iter().map(|listed| (&listed.path, listed)).collect();
    for one in listed.iter().filter(|one| is_given(one)) {
        for rule in one.key.rules {
            match *rule {
                Rule::With(other) => examine_with(one, other, &values, reading),
                Rule::OneOf { keys, does, why } => {
                    examine_one_of(one, (keys, does, why), &values, reading);
                }
                Rule::AtMost { key, part, why } => {
                    examine_at_most(one, (key, part, why), &values, reading);
                }
                Rule::Topic(rule) => {
                    let why = one.exact.as_deref().and_then(|text| rule.unusable(text));
                    examine_text(one, why, reading);
                }
                Rule::Hosts => {
                    let why = one.exact.as_deref().and_then(|text| http_hosts(text).err());
                    examine_text(one, why, reading);
                }
            }
        }
    }
}

/// Says why a text is not what it has to be, if there is a reason.
fn examine_text(one: &Listed, why: Option<&str>, reading: &mut Reading) {
    let Some(why) = why else { return };
    let message = format!("`{}`: {why}", one.key.name);
    let advice = format!("write {} = {}", one.key.name, one.key.shown_example());
    reading.contradict(std::slice::from_ref(&one.path), Complaint::new(message, advice));
}

/// Whether it has a value that says something: a flag says something if it is true.
fn is_given(one: &Listed) -> bool {
    one.value.as_deref().is_some_and(|value| value != "false")
}

fn examine_with(one: &Listed, other: &str, values: &Values<'_>, reading: &mut Reading) {
    let path = one.path.parent().key(other);
    let found = values.get(&path);
    // What was not understood may have been meant as the right thing.
    if found.is_some_and(|found| is_given(found)) || !reading.is_sound(&[path]) {
        return;
    }
    let is_flag = found.and_then(|found| found.key.shape.leaf()).is_some_and(is_flag);
    let other = if is_flag { format!("{other} = true") } else { other.to_owned() };
    let name = one.key.name;
    let message = format!("`{name}` is of no use without `{other}`");
    let advice = format!("write {other} beside it, or leave {name} out");
    reading.contradict(std::slice::from_ref(&one.path), Complaint::new(message, advice));
}

fn is_flag(leaf: &Leaf) -> bool {
    matches!(leaf.json, Json::Flag)
}

/// Said at the first of those that are given, with the second beside it.
fn examine_one_of(
    one: &Listed,
    (keys, does, why): (&[&str], &str, &str),
    values: &Values<'_>,
    reading: &mut Reading,
) {
    let table = one.path.parent();
    let paths = keys.iter().map(|key| table.key(key));
    let mut given = paths.filter(|path| values.get(path).is_some_and(|found| is_given(found)));
    if let (Some(first), Some(second)) = (given.next(), given.next())
        && first == one.path
    {
        let (name, other) = (one.key.name, values.get(&second).map_or("", |found| found.key.name));
        let message = format!("`{name}` and `{other}` both {does}");
        let advice = format!("leave one of them out: {why}");
        reading.contradict(&[first, second], Complaint::new(message, advice));
    }
}

fn examine_at_most(
    one: &Listed,
    (key, part, why): (&str, u32, &str),
    values: &Values<'_>,
    reading: &mut Reading,
) {
    let path = if key.contains('.') { Path::of(key) } else { one.path.parent().key(key) };
    let Some(other) = values.get(&path) else { return };
    let (Some(leaf), Some(value), Some(limit)) =
        (one.key.shape.leaf(), amount(one), amount(other).map(|all| all / u128::from(part)))
    else {
        return;
    };
    if value <= limit {
        return;
    }
    let is_possible = measure(leaf, one.key.min).is_none_or(|min| limit >= min);
    let (name, limit) = (one.key.name, shown(leaf, limit));
    let value = one.exact.as_deref().unwrap_or_default();
    let message = format!("`{name}` is {value}; at most {limit} ({}): {why}", share(part, key));
    let last = key.rsplit('.').next().unwrap_or(key);
    let advice = match is_possible {
        true => format!("write {name} = {}, or raise {last}", leaf.literal(&limit)),
        false => format!("raise {last}: {name} is at least {}", one.key.min),
    };
    reading.contradict(&[one.path.clone(), path], Complaint::new(message, advice));
}

/// So many parts of a key, in words.
pub(crate) fn share(part: u32, key: &str) -> String {
    match part {
        1 => format!("`{key}`"),
        2 => format!("half of `{key}`"),
        4 => format!("a quarter of `{key}`"),
        part => format!("1/{part} of `{key}`"),
    }
}

fn amount(listed: &Listed) -> Option<u128> {
    measure(listed.key.shape.leaf()?, listed.exact.as_deref()?)
}

/// A duration in milliseconds, or a number.
fn measure(leaf: &Leaf, text: &str) -> Option<u128> {
    match leaf.json {
        Json::Integer => text.parse().ok(),
        _ => Some(duration::parse(text).ok()?.as_millis()),
    }
}

fn shown(leaf: &Leaf, amount: u128) -> String {
    match leaf.json {
        Json::Integer => amount.to_string(),
        _ => {
            let millis = u64::try_from(amount).unwrap_or(u64::MAX);
            duration::print(std::time::Duration::from_millis(millis))
        }
    }
}
