//! `postrider audit`: what was changed, by whom, and why.

use clap::Args;

use crate::failure::{Exit, Failure};
use crate::filter::{self, PageArgs};
use crate::global::Global;
use crate::shape::Audited;

/// Show what was changed, by whom, and why, newest first
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider audit
  postrider audit --all --output ndjson | jq 'select(.who == \"anna@db1\")'")]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: AuditArgs) -> Result<Exit, Failure> {
    let store = args.global.open_to_read().await?;
    let out = args.global.out();
    filter::list::<_, Audited>(out, &args.page, async |page| store.operator.audit(page).await).await
}
