//! The statements of the benchmarks and their baselines, one file per operation.

pub(crate) const BUSINESS_TABLES: &str = include_str!("../sql/business_tables.sql");
pub(crate) const BUSINESS_UPDATE: &str = include_str!("../sql/business_update.sql");
pub(crate) const BUSINESS_INSERT: &str = include_str!("../sql/business_insert.sql");
pub(crate) const BACKLOG_REWIND: &str = include_str!("../sql/backlog_rewind.sql");
pub(crate) const PLAIN_READ: &str = include_str!("../sql/plain_read.sql");
pub(crate) const POLL_READ: &str = include_str!("../sql/poll_read.sql");
pub(crate) const TEXTBOOK_TABLE: &str = include_str!("../sql/textbook_table.sql");
pub(crate) const TEXTBOOK_INSERT: &str = include_str!("../sql/textbook_insert.sql");
pub(crate) const TEXTBOOK_SELECT: &str = include_str!("../sql/textbook_select.sql");
pub(crate) const TEXTBOOK_MARK: &str = include_str!("../sql/textbook_mark.sql");
