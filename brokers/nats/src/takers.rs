//! Who takes the partitions of a route: the streams that keep them, and the groups that read them.
//!
//! Invariant: a partition that no stream keeps, or that one of the groups leaves out, is told of before somebody
//! misses its events.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, Result, Template};

use crate::connection::Up;
use crate::examine::{answer, filter, taking};
use crate::partitions::of_consumer;

/// Consumers of a stream that are looked at. A server lists 256 at once.
const CONSUMERS_MAX: usize = 4_096;

/// Looks at the partitions of a topic; what else to do where no stream takes them is said with it. Returns the streams that take some of them.
pub(crate) async fn examine_partitions(
    up: &Up,
    topic: &Template,
    elsewhere: &str,
    found: &mut Vec<Finding>,
) -> Result<BTreeSet<String>> {
    let count = topic.partitions().unwrap_or_default();
    let subjects: Vec<String> = (0..count).map(|it| filter(topic.prefix_within(it))).collect();
    let (mut streams, mut missing) = (BTreeSet::new(), Vec::new());
    for (partition, subject) in (0..count).zip(&subjects) {
        // Behind another field the number is anywhere, and all partitions are the same to a filter.
        let same = partition > 0 && *subject == subjects[0];
        let names = if same { Vec::new() } else { taking(up, subject).await? };
        if names.is_empty() && !same {
            missing.push(partition);
        }
        streams.extend(names);
    }
    if !missing.is_empty() {
        let (numbers, all) = (numbered(&missing), filter(topic.prefix()));
        found.push(findings::critical(
            "subjects",
            format!("no stream takes the partitions {numbers} of {topic}: their events wait"),
            format!(
                "let a stream take all of them, like nats stream add NAME --subjects '{all}', or correct \
                 the route's topic{elsewhere}"
            ),
            Code::Unroutable,
        ));
    }
    if subjects.first() != subjects.get(1) {
        for stream in &streams {
            found.extend(of_groups(topic, stream, &subjects, &consumers(up, stream).await?));
        }
    }
    Ok(streams)
}

/// A stream's consumers: their names, and the subjects that they take.
async fn consumers(up: &Up, stream: &str) -> Result<Vec<(String, String)>> {
    let mut consumers = Vec::new();
    while consumers.len() < CONSUMERS_MAX {
        let question = serde_json::json!({ "offset": consumers.len() });
        let answer = answer(up, &format!("CONSUMER.LIST.{stream}"), &question).await?;
        let Some(page) = answer["consumers"].as_array().filter(|page| !page.is_empty()) else {
            break;
        };
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let read = page.iter().map(|it| (text(&it["name"]), text(&it["config"]["filter_subject"])));
        consumers.extend(read);
        if consumers.len() as u64 >= answer["total"].as_u64().unwrap_or_default() {
            break;
        }
    }
    Ok(consumers)
}

/// The groups that take some of a topic's partitions, and not all.
fn of_groups(
    topic: &Template,
    stream: &str,
    subjects: &[String],
    consumers: &[(String, String)],
) -> Vec<Finding> {
    let mut groups: BTreeMap<&str, BTreeSet<u16>> = BTreeMap::new();
    for (name, subject) in consumers {
        let Some((group, partition)) = of_consumer(name) else { continue };
        let of_topic = subjects.get(usize::from(partition));
        if of_topic.is_some_and(|of_topic| overlap(of_topic, subject)) {
            groups.entry(group).or_default().insert(partition);
        }
    }
    let untaken = groups.iter().filter_map(|(group, taken)| {
        let all = 0..u16::try_from(subjects.len()).unwrap_or(u16::MAX);
        let missing: Vec<u16> = all.filter(|it| !taken.contains(it)).collect();
        if missing.is_empty() {
            return None;
        }
        let message = format!(
            "it takes {} of the {} partitions of {topic}: what is in the partitions {} waits in the stream \
             {stream}",
            taken.len(),
            subjects.len(),
            numbered(&missing)
        );
        let advice = format!(
            "write {{partition:{}}} in the subjects of the group, and start its consumers again",
            subjects.len()
        );
        let subject = format!("group {group}");
        Some(findings::critical(&subject, message, advice, Code::PartitionsUntaken))
    });
    untaken.collect()
}

/// Numbers for a sentence: `4 to 7, 9`. They ascend.
fn numbered(numbers: &[u16]) -> String {
    let runs = numbers.chunk_by(|one, next| *next == *one + 1);
    let shown = runs.map(|run| match run {
        [first, .., last] => format!("{first} to {last}"),
        _ => run.first().map(ToString::to_string).unwrap_or_default(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Whether two filters have a subject in common.
fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (Some(">"), Some(_)) | (Some(_), Some(">")) | (None, None) => return true,
            (Some(a), Some(b)) if a == b || a == "*" || b == "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_numbers_are_shown_as_such() {
        for (numbers, shown) in
            [(&[4, 5, 6, 7][..], "4 to 7"), (&[1], "1"), (&[0, 1, 5, 7, 8, 9], "0 to 1, 5, 7 to 9")]
        {
            assert_eq!(numbered(numbers), shown);
        }
    }

    #[test]
    fn filters_overlap_where_a_subject_is_in_both() {
        for (one, other, expected) in [
            ("shop.3.>", "shop.3.order.*", true),
            ("shop.3.>", "shop.4.>", false),
            ("shop.*", "shop.3", true),
            ("shop.3", "shop.3.x", false),
            (">", "a", true),
        ] {
            assert_eq!((overlap(one, other), overlap(other, one)), (expected, expected));
        }
    }
}
