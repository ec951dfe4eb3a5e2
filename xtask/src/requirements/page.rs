//! The page itself, as Markdown. Tests are linked by file, not by line, so that the page changes
//! only where a citation does.

use std::collections::BTreeMap;

use super::citations::Proof;
use super::rows::{Row, Section};

const HEAD: &str = "\
<!-- Written by `cargo x requirements` from xtask/*.txt and the tests; do not edit. -->

# Requirements and faults

A requirement is *met* where a test proves it; the test's comment cites the number. *Partly* says
what is missing although a test cites it. Everything else is *not yet*. A case of a contract suite
is shown with the crates that run it.
";

/// The whole page.
pub(super) fn render(
    requirements: &[Section],
    faults: &[Section],
    proofs: &BTreeMap<String, Vec<Proof>>,
    partial: &BTreeMap<String, String>,
) -> String {
    let rows: Vec<&Row> = requirements.iter().flat_map(|section| &section.rows).collect();
    let count = |word: &str| {
        rows.iter().filter(|row| state(row, proofs, partial).starts_with(word)).count()
    };
    let mut text = format!(
        "{HEAD}\n{} requirements: {} met, {} partly, {} not yet.\n",
        rows.len(),
        count("met"),
        count("partly"),
        count("not yet"),
    );
    for section in requirements {
        text.push_str(&format!("\n## {}\n\n", section.title));
        table(&mut text, section, "Requirement", proofs, partial);
    }
    text.push_str("\n## Faults\n\nFaults that tests inject, by the same rule.\n\n");
    for section in faults {
        table(&mut text, section, "Fault", proofs, partial);
    }
    text
}

/// The line of a page that counts.
pub(super) fn count_line(page: &str) -> &str {
    page.lines().find(|line| line.contains(" requirements: ")).unwrap_or_default()
}

fn table(
    text: &mut String,
    section: &Section,
    title: &str,
    proofs: &BTreeMap<String, Vec<Proof>>,
    partial: &BTreeMap<String, String>,
) {
    text.push_str(&format!("| # | {title} | State | Tests |\n|---|---|---|---|\n"));
    for row in &section.rows {
        let tests: Vec<String> = proofs.get(&row.id).into_iter().flatten().map(link).collect();
        text.push_str(&format!(
            "| {} | {} | {} | {} |\n",
            row.id,
            row.text.replace('|', "\\|"),
            state(row, proofs, partial),
            tests.join("<br>")
        ));
    }
}

fn state(
    row: &Row,
    proofs: &BTreeMap<String, Vec<Proof>>,
    partial: &BTreeMap<String, String>,
) -> String {
    match (proofs.contains_key(&row.id), partial.get(&row.id)) {
        (true, None) => "met".to_owned(),
        (true, Some(missing)) => format!("partly: {}", missing.replace('|', "\\|")),
        (false, _) => "not yet".to_owned(),
    }
}

fn link(proof: &Proof) -> String {
    let link = format!("[{}](../{})", proof.name, proof.path);
    match &proof.suite {
        Some((suite, crates)) => format!("{link} of `{suite}!` in {}", crates.join(", ")),
        None => link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirements::rows;

    fn page(cited: &[&str], partial: &[(&str, &str)]) -> String {
        let requirements = rows::sections("## A\nR001 one\nR002 two\n", 'R').expect("rows");
        let proof =
            Proof { name: "a_test".to_owned(), path: "a/tests/b.rs".to_owned(), suite: None };
        let proofs = cited.iter().map(|id| ((*id).to_owned(), vec![proof.clone()])).collect();
        let partial =
            partial.iter().map(|(id, missing)| ((*id).to_owned(), (*missing).to_owned())).collect();
        render(&requirements, &[], &proofs, &partial)
    }

    #[test]
    fn a_cited_requirement_is_met_and_links_its_test() {
        let page = page(&["R001"], &[]);
        assert!(page.contains("| R001 | one | met | [a_test](../a/tests/b.rs) |"));
        assert!(page.contains("| R002 | two | not yet |  |"));
        assert_eq!(count_line(&page), "2 requirements: 1 met, 0 partly, 1 not yet.");
    }

    #[test]
    fn a_partial_requirement_says_what_is_missing_and_is_not_met() {
        let page = page(&["R001"], &[("R001", "the plan"), ("R002", "all of it")]);
        assert!(page.contains("| R001 | one | partly: the plan |"));
        assert!(page.contains("| R002 | two | not yet |"));
    }
}
