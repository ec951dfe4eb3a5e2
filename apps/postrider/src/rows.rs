//! Rows of an inbox that are looked for: whether there are any, and how many.
//!
//! Invariant: what was not looked at is not taken for nothing.

use postrider_core::Error;
use postrider_core::operate::{Listed, PageRequest};

use crate::failure::Failure;
use crate::filter::CHUNK;

/// Pages of the inbox that are asked for. One of DynamoDB ends after 10,000 rows that were looked at, whatever was found:
/// a million then, for some cents.
const PAGES_MAX: usize = 100;

/// Rows of an inbox that were found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) number: u64,
    /// Whether all were looked at.
    pub(crate) whole: bool,
}

/// Reads on until so many rows are found, or all were looked at, or too many. A page without rows is not the end.
pub(crate) async fn find<T>(
    enough: u64,
    pages: impl AsyncFn(&PageRequest) -> Result<Listed<T>, Error>,
) -> Result<Found, Failure> {
    let limit = u32::try_from(enough).unwrap_or(CHUNK).min(CHUNK);
    let mut page = PageRequest { after: None, limit };
    let mut number = 0;
    for _ in 0..PAGES_MAX {
        let listed = pages(&page).await?;
        number += listed.rows.len() as u64;
        page.after = listed.next;
        if page.after.is_none() || number >= enough {
            return Ok(Found { number, whole: page.after.is_none() });
        }
    }
    Ok(Found { number, whole: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages without rows up to the `of`th, which has two rows and is the last one.
    async fn found(enough: u64, of: usize) -> Found {
        let pages = async |page: &PageRequest| {
            let at: usize = page.after.as_deref().map_or(1, |place| place.parse().unwrap());
            let (rows, next) = if at == of {
                (vec![(), ()], None)
            } else {
                (Vec::new(), Some((at + 1).to_string()))
            };
            Ok(Listed { rows, next })
        };
        find(enough, pages).await.unwrap()
    }

    /// R097: a service that looked at its fill says so by a page without rows; what is behind it counts as well.
    #[tokio::test]
    async fn rows_behind_empty_pages_are_found() {
        assert_eq!(found(u64::MAX, 1).await, Found { number: 2, whole: true });
        assert_eq!(found(u64::MAX, PAGES_MAX).await, Found { number: 2, whole: true });
        assert_eq!(found(1, 3).await, Found { number: 2, whole: true });
    }

    /// The negative control: behind the bound nothing was looked at, and that is told apart from nothing.
    #[tokio::test]
    async fn what_was_not_looked_at_is_not_taken_for_nothing() {
        assert_eq!(found(u64::MAX, PAGES_MAX + 1).await, Found { number: 0, whole: false });
    }
}
