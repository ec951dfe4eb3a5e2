//! The alert rules: they speak of metrics that exist, and Prometheus reads them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::pages::read;

const RULES: &str = "deploy/alerts/postrider.rules.yml";

/// Every metric that a text names: its own words, without the parts of a histogram.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("postrider_")).map(str::to_owned).collect()
}

/// The metrics of the reference page: the first cell of each row.
fn known() -> BTreeSet<String> {
    let page = read("docs/reference/metrics.md");
    page.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect()
}

/// What the rules name and the page does not.
fn unknown(rules: &str) -> Vec<String> {
    metrics(rules).difference(&known()).cloned().collect()
}

/// The lines that are no comment.
fn rules() -> String {
    let text = read(RULES);
    text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Each alert's name, and its rule up to the next.
fn alerts(rules: &str) -> Vec<(&str, &str)> {
    let parts = rules.split("- alert: ").skip(1);
    parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).collect()
}

/// R099: there is an alert on the oldest age, on growth, and on what else an operator must see; and
/// each metric in them is on the reference page. R124, F16: so is one on the age of the oldest transaction and xmin,
/// and one on dead rows.
#[test]
fn alerts_speak_of_metrics_that_exist() {
    let rules = rules();
    let no_metrics: [&str; 0] = [];
    assert_eq!(unknown(&rules), no_metrics);
    let wanted = [
        ("postrider_oldest_pending_age_seconds", "> 300"),
        ("postrider_pending_events", "deriv("),
        ("postrider_waiting_events", "state=\"dead\""),
        ("postrider_waiting_events", "state=\"held\""),
        ("postrider_relays", "== 0"),
        ("postrider_disabled_endpoints", "> 0"),
        ("postrider_oldest_transaction_seconds", "> 1800"),
        ("postrider_oldest_xmin_age_transactions", "> 10000000"),
        ("postrider_dead_rows", "> 1000000"),
        ("postrider_certificate_end_timestamp_seconds", "< 1209600"),
        ("postrider_sidecar_certificate_end_timestamp_seconds", "< 1209600"),
        ("postrider_invariant_violations_total", "> 0"),
        ("postrider_scrape_failures_total", "increase("),
    ];
    let alerts = alerts(&rules);
    for (metric, how) in wanted {
        let so = |rule: &str| rule.contains(metric) && rule.contains(how);
        assert!(alerts.iter().any(|(_, rule)| so(rule)), "no alert on {metric} {how}");
    }
    let names: BTreeSet<_> = alerts.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), alerts.len(), "two alerts of one name");
    for (name, rule) in alerts {
        for part in ["expr: ", "severity: ", "summary: ", "description: "] {
            assert!(rule.contains(part), "{name} has no {part}");
        }
    }
}

/// The comparison would notice a metric that was renamed.
#[test]
fn a_metric_that_is_not_on_the_page_is_noticed() {
    assert!(known().len() > 20, "the page lists the metrics");
    let renamed = rules().replace("postrider_pending_events", "postrider_pending");
    assert_eq!(unknown(&renamed), ["postrider_pending"]);
}

/// R099: Prometheus' own tool reads the rules, and sees the two main ones fire.
#[test]
fn prometheus_reads_the_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let promtool = |args: &[&str]| Command::new("promtool").args(args).current_dir(&root).output();
    for args in [["check", "rules", RULES], ["test", "rules", "deploy/alerts/postrider.test.yml"]] {
        match promtool(&args) {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stdout).into_owned()
                    + &String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{said}");
            }
            Err(_) => eprintln!("skipped: there is no promtool on this machine"),
        }
    }
}
