//! Rows of the inbox as operators see and change them.

use postrider_core::Result;
use postrider_core::operate::{
    Forgotten, InboxFilter, InboxName, InboxView, Listed, Marked, Note, PageRequest,
};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn list(
    _store: &PostgresStore,
    _filter: &InboxFilter,
    _page: &PageRequest,
) -> Result<Listed<InboxView>> {
    not_yet("inbox").await
}

pub(super) async fn forget(
    _store: &PostgresStore,
    _name: &InboxName,
    _note: &Note,
) -> Result<Forgotten> {
    not_yet("forget").await
}

pub(super) async fn mark(
    _store: &PostgresStore,
    _name: &InboxName,
    _note: &Note,
) -> Result<Marked> {
    not_yet("mark processed").await
}
