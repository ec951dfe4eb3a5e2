//! What changes at the cluster and is nobody's failure: told to whoever wants to know.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Something changed at the cluster, and goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Partitions were added to a topic. From now on a key may stand in another one: its events are still sent one
    /// after the other, and whoever reads the old partition and the new one sees no order between them.
    PartitionsAdded {
        /// The topic.
        topic: String,
        /// How many it had.
        before: usize,
        /// How many it has.
        now: usize,
    },
    /// The servers have let go of records that the group had not settled: by their retention, or by an operator.
    RecordsLetGo {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Up to where the group had settled.
        settled: i64,
        /// The first record that is left.
        first: i64,
    },
    /// As many records of a partition are unsettled as may be, since one before them is not done: it is read no further.
    PartitionFull {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// A partition is ours of which another handler has settled something, in the same group: by the mark beside its offset.
    OtherHandler {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Who that was.
        before: String,
        /// Who acts on it now.
        now: String,
    },
    /// A topic was deleted and made anew under its consumers. What was settled of the one before says nothing of this one, so it
    /// is read from its beginning.
    TopicReplaced {
        /// The topic.
        topic: String,
    },
    /// The wall clock stepped back, so another client was made: the library's own threads wait until the clock has caught up.
    ClockSteppedBack {
        /// By how much.
        by: Duration,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::PartitionsAdded { topic, before, now } => write!(
                f,
                "the topic `{topic}` has {now} partitions and had {before}: from now on a key may stand in another \
                 one, and between the two a consumer sees no order"
            ),
            Notice::RecordsLetGo { topic, partition, settled, first } => write!(
                f,
                "lost, as far as there were any: the servers let go of offsets {settled} to {} of {topic}/{partition} before \
                 the group had settled them, by the topic's retention or by an operator. At most {} records stood there: each \
                 end of another producer's transaction, what such a one took back, and what compaction removed, was an offset \
                 as well, and nobody can tell any more. Nobody of the group has acted on them. It goes on behind them. Keep \
                 the topic for longer, or its consumers alive",
                first - 1,
                first - settled
            ),
            Notice::PartitionFull { topic, partition } => write!(
                f,
                "{topic}/{partition} is read no further: as many of its records are unsettled as may be (`unsettled`, and \
                 the bytes of all), behind one that is tried again later or has long been at work. Other keys of it wait \
                 as well; nothing is lost"
            ),
            Notice::OtherHandler { topic, partition, before, now } => write!(
                f,
                "in this group {topic}/{partition} was settled by a handler named `{before}` before, and this one is named \
                 `{now}`: an inbox tells their work apart by these names, so what one of them did is done again by the other \
                 where it comes again. Give all instances of a group one name (`--handler`), and handlers that are to act on \
                 the same events a group each. After a renaming on purpose this is said once for each partition"
            ),
            Notice::TopicReplaced { topic } => write!(
                f,
                "the topic `{topic}` was deleted and made anew: what stood in the one before and was not settled is gone, and \
                 this one is read from its beginning, by another client"
            ),
            Notice::ClockSteppedBack { by } => write!(
                f,
                "the wall clock stepped back by {by:?}: another client is made, since the one before stands still until the \
                 clock has caught up; nothing is lost, and what was under way may come twice"
            ),
        }
    }
}

type Told = dyn Fn(&Notice) + Send + Sync;

/// Who is told of what changes.
#[derive(Clone, Default)]
pub struct Notices(Option<Arc<Told>>);

impl Notices {
    /// Tells this function, which must not wait.
    pub fn to(told: impl Fn(&Notice) + Send + Sync + 'static) -> Notices {
        Notices(Some(Arc::new(told)))
    }

    pub(crate) fn tell(&self, notice: &Notice) {
        if let Some(told) = &self.0 {
            told(notice);
        }
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "told" } else { "nobody" })
    }
}
