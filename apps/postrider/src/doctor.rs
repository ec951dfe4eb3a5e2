//! `postrider doctor`: looks for what will go wrong, and says what to do about it.

use clap::Args;
use postrider_core::Timestamp;
use postrider_core::operate::Level;

use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output::Format;
use crate::shape::Found;
use crate::table::clean;
use crate::terminal::{self, Style, wrap};

/// Examine the store for what will go wrong
///
/// Each finding comes with what to do. Nothing is changed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider doctor --store sqlite://shop.db
  postrider doctor --strict --output json

Exit codes:
  0  good, or warnings only
  1  the store could not be read
  6  something is critical; with --strict: or a warning")]
pub(crate) struct DoctorArgs {
    /// Warnings count as well
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    global: Global,
}

pub(crate) async fn run(args: DoctorArgs) -> Result<Exit, Failure> {
    let store = args.global.open().await?;
    let mut findings = store.operator.doctor(Timestamp::now()).await?;
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let worst = findings.iter().map(|finding| finding.level).max();
    let found: Vec<Found> = findings.into_iter().map(Found::from).collect();
    match args.global.output {
        Format::Table => {
            let style = terminal::stdout_style();
            let text: String = found.iter().map(|finding| lines(finding, style)).collect();
            crate::output::write(&text)?;
        }
        _ => {
            let mut out = args.global.out();
            out.documents_of_page(found)?;
            out.end(None)?;
        }
    }
    Ok(match worst {
        Some(Level::Critical) => Exit::Unhealthy,
        Some(Level::Warning) if args.strict => Exit::Unhealthy,
        _ => Exit::Success,
    })
}

/// A finding as people read it: the level, what it is about, and below it what to do.
fn lines(finding: &Found, style: Style) -> String {
    let level = format!("{:<9}", finding.level);
    let level = match finding.level {
        "good" => style.good(&level),
        "warning" => style.notable(&level),
        _ => style.bad(&level),
    };
    let code = finding.code.as_ref().map_or(String::new(), |code| format!(" [{code}]"));
    let indent = " ".repeat(9);
    let said = format!("{}: {}{code}", clean(&finding.subject), clean(&finding.message));
    // The indent stands before the first line as well, so that it is counted, and is taken away.
    let mut text = format!("{level}{}\n", wrap(&said, &indent));
    if let Some(advice) = &finding.advice {
        text.push_str(&format!("{indent}{}\n", style.dim(&wrap(&clean(advice), &indent))));
    }
    text
}
