//! What operators asked for, carried out by the partition's owner under its lease.

use postrider_core::Result;
use postrider_core::source::{CarriedOut, CarryOutRequest};

use crate::store::{PostgresStore, not_yet};

pub(crate) async fn carry_out(
    store: &PostgresStore,
    request: &CarryOutRequest,
) -> Result<CarriedOut> {
    let _ = store;
    let _ = request;
    not_yet("carry_out").await
}
