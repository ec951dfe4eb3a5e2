//! Ranges: keys of which so much waits that nothing more of them is copied.

use postrider_core::operate::Finding;
use postrider_core::{Code, Result};
use tokio_postgres::Row;

use super::{Patient, coded, good, listed};
use crate::operator::value::{shown, time};
use crate::sql::{Sql, sql};
use crate::typed::params;

const RANGES: Sql = sql!("doctor/ranges");

/// Keys of which so much waits that a range stands for the rest. What each has not passed no retention takes.
pub(super) async fn ranges(patient: &Patient<'_>) -> Result<Finding> {
    let rows = patient.session.rows("doctor", &RANGES, params![]).await?;
    let Some(oldest) = rows.first() else {
        return Ok(good("ranges", "of no key so much waits that it is not copied any more"));
    };
    let name =
        |row: &Row| format!("`{}` of destination {}", shown(row, 1).escape_debug(), shown(row, 0));
    let names: Vec<String> = rows.iter().map(name).collect();
    Ok(coded(
        "ranges",
        format!(
            "so much waits of {} keys that nothing more of them is copied, of the first since {}, and nothing \
             behind is deleted until it is delivered: {}",
            rows.len(),
            time(oldest, 2).unwrap_or_default(),
            listed(&names)
        ),
        format!("postrider dead ls {}: what is at the head of these keys?", patient.option()),
        Code::StoreGrows,
    ))
}
