//! The partitions of a group: subjects that carry a number, and a durable consumer for each.
//!
//! Invariant: a partition's consumer has the same name and takes the same subject whatever the count, so that
//! instances which were told different counts still share each partition.

use postrider_core::template::partition_count;

/// What stands behind the group's name, before the number of the partition.
const NAME: &str = "-partition-";

/// Where the number of the partition stands in a group's subjects, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partitions {
    before: String,
    behind: String,
    count: u16,
}

impl Partitions {
    /// Reads the subjects of a group: one word may be `{partition:8}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn of(subject: &str) -> Result<Option<Partitions>, String> {
        if !subject.contains(['{', '}']) {
            return Ok(None);
        }
        let words: Vec<&str> = subject.split('.').collect();
        let counted = words.iter().enumerate().filter_map(|(at, word)| {
            let name = word.strip_prefix('{')?.strip_suffix('}')?;
            Some((at, partition_count(name)?))
        });
        let Ok([(at, count)]) = <[_; 1]>::try_from(counted.collect::<Vec<_>>()) else {
            return Err(
                "one whole word of the subject may be {partition:8}, and no other may have braces"
                    .into(),
            );
        };
        let mut before = words[..at].join(".");
        let mut behind = words[at + 1..].join(".");
        if !before.is_empty() {
            before.push('.');
        }
        if !behind.is_empty() {
            behind.insert(0, '.');
        }
        if before.contains(['{', '}', '>']) || behind.contains(['{', '}']) {
            return Err(
                "one word of the subject may be {partition:8}, and no > stands before it".into()
            );
        }
        Ok(Some(Partitions { before, behind, count: count? }))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// The subjects of one partition.
    pub(crate) fn filter(&self, partition: u16) -> String {
        format!("{}{partition}{}", self.before, self.behind)
    }

    /// The subjects of all of them, and of what has another number.
    pub(crate) fn all(&self) -> String {
        format!("{}*{}", self.before, self.behind)
    }
}

/// The name of a partition's consumer.
pub(crate) fn consumer(group: &str, partition: u16) -> String {
    format!("{group}{NAME}{partition}")
}

/// The group and the partition behind a consumer's name, if it is one of a partition.
pub(crate) fn of_consumer(name: &str) -> Option<(&str, u16)> {
    let (group, partition) = name.rsplit_once(NAME)?;
    Some((group, partition.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stands_where_it_is_said_to() {
        for (subject, filter, all) in [
            ("shop.{partition:8}.>", "shop.3.>", "shop.*.>"),
            ("{partition:8}", "3", "*"),
            ("shop.*.{partition:8}", "shop.*.3", "shop.*.*"),
        ] {
            let partitions = Partitions::of(subject).unwrap().unwrap();
            assert_eq!(partitions.count(), 8);
            assert_eq!((&*partitions.filter(3), &*partitions.all()), (filter, all));
        }
        assert_eq!(Partitions::of("shop.>"), Ok(None));
    }

    #[test]
    fn what_is_no_place_for_a_number_is_refused() {
        for subject in [
            "shop.{partition}",
            "shop.{partition:0}",
            "shop.{partition:1000}",
            "shop.p{partition:8}",
            "{partition:8}.{partition:8}",
            "shop.{event_type}",
            "{event_type}.{partition:8}",
            ">.{partition:8}",
        ] {
            assert!(Partitions::of(subject).is_err(), "{subject}");
        }
    }

    #[test]
    fn a_consumer_is_known_by_its_name() {
        assert_eq!(of_consumer(&consumer("billing", 7)), Some(("billing", 7)));
        assert_eq!(of_consumer("billing"), None);
        assert_eq!(of_consumer("billing-partition-x"), None);
    }
}
