//! What a consumer group has settled, and who is in it.

use std::fmt::Write as _;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::spawn_blocking;

use super::KafkaServer;
use super::topics::{GLANCE, ends};

/// A partition: what its group has committed, if anything, and where it ends.
type Place = (i32, Option<i64>, i64);

#[expect(clippy::missing_panics_doc, reason = "each fails its test")]
impl KafkaServer {
    /// How many records of a topic its group has not settled; nothing while the server is away.
    pub async fn unsettled(&self, topic: &str, group: &str) -> Option<i64> {
        let places = self.places(topic, group).await?;
        Some(places.iter().map(|(_, committed, end)| end - committed.unwrap_or(0)).sum())
    }

    /// What the group has of each partition, and its members with what is theirs: for the message of a test that
    /// waited in vain.
    pub async fn standing(&self, topic: &str, group: &str) -> String {
        let mut said = String::new();
        match self.places(topic, group).await {
            None => said.push_str("the server does not say what is committed"),
            Some(places) => {
                for (partition, committed, end) in places {
                    let _ = writeln!(said, "partition {partition}: {committed:?} of {end}");
                }
            }
        }
        let (config, group) = (self.client(), group.to_owned());
        let members = spawn_blocking(move || members(&config, &group)).await.expect("no panic");
        said + &members.unwrap_or_else(|| "the server does not say who is in the group".to_owned())
    }

    async fn places(&self, topic: &str, group: &str) -> Option<Vec<Place>> {
        let (mut config, topic) = (self.client(), topic.to_owned());
        config.set("group.id", group);
        spawn_blocking(move || {
            let consumer: BaseConsumer = config.create().expect("a client");
            let ends = ends(&config, &topic)?;
            let mut list = TopicPartitionList::new();
            for (partition, _) in &ends {
                list.add_partition(&topic, *partition);
            }
            let committed = consumer.committed_offsets(list, GLANCE).ok()?;
            let place = |(partition, end): (i32, i64)| {
                let found = committed.find_partition(&topic, partition).map(|it| it.offset());
                let Some(Offset::Offset(offset)) = found else { return (partition, None, end) };
                (partition, Some(offset), end)
            };
            Some(ends.into_iter().map(place).collect())
        })
        .await
        .expect("no panic")
    }
}

/// A line for each member.
fn members(config: &ClientConfig, group: &str) -> Option<String> {
    let consumer: BaseConsumer = config.create().expect("a client");
    let found = consumer.fetch_group_list(Some(group), GLANCE).ok()?;
    let group = found.groups().first()?;
    let mut said =
        format!("the group is {} with {} members\n", group.state(), group.members().len());
    for member in group.members() {
        let theirs = member.assignment().and_then(assigned);
        let _ = writeln!(said, "{}: {theirs:?}", member.id());
    }
    Some(said)
}

/// The partitions of an assignment, as members are given it: a version, and for each topic its name and numbers.
fn assigned(bytes: &[u8]) -> Option<Vec<(String, Vec<i32>)>> {
    let mut left = bytes.get(2..)?;
    let mut take = |length: usize| {
        let (taken, rest) = left.split_at_checked(length)?;
        left = rest;
        Some(taken)
    };
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | i32::from(*byte));
    let mut topics = Vec::new();
    for _ in 0..number(take(4)?) {
        let length = usize::try_from(number(take(2)?)).ok()?;
        let name = String::from_utf8_lossy(take(length)?).into_owned();
        let count = number(take(4)?);
        let partitions = (0..count).map(|_| take(4).map(number)).collect::<Option<_>>()?;
        topics.push((name, partitions));
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_is_read() {
        let bytes = [
            &[0, 3, 0, 0, 0, 1, 0, 6][..],
            b"orders",
            &[0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0],
        ];
        let topics = assigned(&bytes.concat()).unwrap();
        assert_eq!(topics, [("orders".to_owned(), vec![0, 258])]);
        assert_eq!(assigned(&bytes.concat()[..17]), None);
        assert_eq!(assigned(&[]), None);
    }
}
