//! Requests: what operators ask of the partitions' owners, and how far it is carried out.

use postrider_core::Result;
use postrider_core::operate::{RequestId, RequestState, Submission};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn submit(_store: &PostgresStore, _submission: &Submission) -> Result<RequestId> {
    not_yet("submit").await
}

pub(super) async fn read(_store: &PostgresStore, _id: RequestId) -> Result<RequestState> {
    not_yet("request").await
}

pub(super) async fn open(_store: &PostgresStore) -> Result<Vec<RequestState>> {
    not_yet("open requests").await
}
