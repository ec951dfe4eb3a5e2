//! What happens to the parts of the way.

/// Whom it happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A relay is killed, and another one started.
    RelayKilled,
    /// A relay stands still for longer than its lease.
    RelayStopped,
    /// A consumer is killed, and another one started.
    ConsumerKilled,
    /// A consumer stands still for longer than what it holds is hidden.
    ConsumerStopped,
    /// DynamoDB is away, for everybody.
    TablesCut,
    /// The server of the tables is killed and started again on its files: what it only remembered is gone, such as
    /// where readers of the stream are, and which transactions it has seen.
    TablesKilled,
    /// The stream is away, and the tables are there.
    StreamCut,
    /// The database with the outbox is killed, and recovers.
    DatabaseKilled,
    /// SQS and EventBridge are away, for everybody. LocalStack keeps queues in its memory alone, so it is not killed.
    QueueCut,
    /// The queue has some events twice.
    Copied,
}

impl Fault {
    /// Whether the outbox may say of a commit neither yes nor no. Whoever writes has its answers first: what is on
    /// its way to the effects is hit, and not the application's own transaction.
    pub(crate) fn hits_writers(self) -> bool {
        matches!(self, Fault::TablesKilled | Fault::DatabaseKilled)
    }
}
