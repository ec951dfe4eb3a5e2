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
