//! Whether the topics of a consumer are there, as it looks now and then.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use postrider_core::ErrorKind;
use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;

use crate::notice::Notice;
use crate::reader::{COMMIT_MAX, Reader};

/// How often it is asked whether the topics are there, and how long that may take: records wait meanwhile. The library
/// asks every few minutes.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The same while one is gone.
const GONE_EVERY: Duration = Duration::from_secs(1);

/// So many looks without an answer are no accident.
const SILENT_MAX: u32 = 3;

/// What is said when a topic is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// There is none.
    Missing,
    /// That it is there, or something else.
    Answered,
    Silence,
}

/// The topics that are gone, and when it was asked for last.
pub(crate) struct Absence {
    gone: Vec<String>,
    asked: Instant,
    /// Looks without an answer, one after the other.
    silent: u32,
}

impl Absence {
    pub(crate) fn begin() -> Absence {
        Absence { gone: Vec::new(), asked: Instant::now(), silent: 0 }
    }

    /// Servers that stand still keep their connections, and the library says nothing of them for a minute.
    fn hear(&mut self, looks: &[Look], reader: &Reader) {
        let holdings = &reader.member().holdings;
        if !looks.contains(&Look::Silence) {
            self.silent = 0;
            return holdings.is_up();
        }
        self.silent = self.silent.saturating_add(1);
        if self.silent == SILENT_MAX {
            holdings.is_down();
            let said = format!("no server has answered for {:?}", LOOK_EVERY * SILENT_MAX);
            reader.tell(ErrorKind::Unavailable, &said, "it goes on when one of them does");
        }
    }
}

impl Reader {
    /// Looks whether topics are gone, or one is there again: then the group is to be joined anew, by another client.
    ///
    /// What is known of the places of one that is gone is of no topic that will ever be: one that is made anew begins at
    /// its beginning, and the library would go on where the old one ended. A commit that was refused says the same,
    /// also where the topic is there again; and the library says of one that it is another now.
    pub(crate) fn follow_topics(&self, absence: &mut Absence) -> bool {
        let member = self.member();
        let refused = member.refused.swap(false, Ordering::AcqRel);
        let every = if absence.gone.is_empty() { LOOK_EVERY } else { GONE_EVERY };
        let mut lost = member.replaced.all();
        for topic in lost.clone() {
            member.notices.tell(&Notice::TopicReplaced { topic });
        }
        let replaced = !lost.is_empty();
        if !refused && !replaced && absence.asked.elapsed() < every {
            return false;
        }
        let looks: Vec<Look> = self.topics.iter().map(|topic| self.look(topic)).collect();
        let of = |look: Look| {
            move |(seen, topic): (&Look, &String)| (*seen == look).then(|| topic.clone())
        };
        let gone: Vec<String> =
            looks.iter().zip(&self.topics).filter_map(of(Look::Missing)).collect();
        absence.hear(&looks, self);
        absence.asked = Instant::now();
        let again = absence.gone.iter().any(|topic| !gone.contains(topic));
        // One that was refused and is there again: nobody says which.
        let unknown = refused && gone.is_empty();
        lost.extend(if unknown { self.topics.clone() } else { gone.clone() });
        member.turn.alone(COMMIT_MAX, || member.holdings.let_go(&lost));
        if gone.iter().any(|topic| !absence.gone.contains(topic)) {
            let said = format!("there is no topic `{}`", gone.join("`, `"));
            self.tell(ErrorKind::Unroutable, &said, "create the topic, or correct its name");
        }
        absence.gone = gone;
        again || unknown || replaced
    }

    fn look(&self, topic: &str) -> Look {
        let Ok(found) = self.consumer.fetch_metadata(Some(topic), GONE_EVERY) else {
            return Look::Silence;
        };
        let error = found.topics().first().and_then(|topic| topic.error());
        match error.map(RDKafkaErrorCode::from) {
            Some(RDKafkaErrorCode::UnknownTopicOrPartition) => Look::Missing,
            _ => Look::Answered,
        }
    }
}
